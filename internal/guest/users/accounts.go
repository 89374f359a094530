package users

import (
	"errors"
	"io"
	"io/fs"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Accounts looks accounts up as Lookup does, and reads a file again only when it
// has changed: a lookup is part of every start of a process, and opening and
// reading files is what costs most there. It is safe for concurrent use.
type Accounts struct {
	etc string

	mu     sync.Mutex
	passwd kept[User]
	group  kept[Group]
}

// New returns the accounts in the files of etc.
func New(etc string) *Accounts { return &Accounts{etc: etc} }

// Lookup finds the account name; see the function.
func (a *Accounts) Lookup(name string) (User, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	accounts, err := a.passwd.read(filepath.Join(a.etc, "passwd"), now, ParsePasswd)
	if err != nil {
		return User{}, err
	}
	groups, err := a.group.read(filepath.Join(a.etc, "group"), now, ParseGroup)
	if err != nil {
		return User{}, err
	}
	return find(accounts, groups, name)
}

// settled is how old a file's last change must be for its content to be kept. A
// change within one tick of the file system's clock, to as many bytes, leaves no
// trace in what stamp compares.
const settled = 2 * time.Second

// stamp is what changes with a file.
type stamp struct {
	dev, ino     uint64
	size         int64
	mtime, ctime unix.Timespec
}

func stampOf(path string) (stamp, error) {
	var st unix.Stat_t
	for {
		err := unix.Stat(path, &st)
		if err == nil {
			return stamp{st.Dev, st.Ino, st.Size, st.Mtim, st.Ctim}, nil
		}
		if err != unix.EINTR {
			return stamp{}, err
		}
	}
}

// kept is the content of a file while its stamp stays.
type kept[T any] struct {
	stamp stamp // zero: nothing is kept
	all   []T
}

func (k *kept[T]) read(path string, now time.Time, parse func(io.Reader) ([]T, error)) ([]T, error) {
	found, err := stampOf(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil && found == k.stamp {
		return k.all, nil
	}
	// The stamp is older than the content: a change in between is seen by the
	// next lookup.
	all, err := readFile(path, parse)
	if err != nil {
		return nil, err
	}
	*k = kept[T]{}
	if changed := time.Unix(found.ctime.Unix()); found != (stamp{}) && now.Sub(changed) > settled {
		*k = kept[T]{found, all}
	}
	return all, nil
}
