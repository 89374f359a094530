package userfs

import (
	"crypto/rand"
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"github.com/billethq/billet/internal/errs"
)

// ErrExists says that a directory to be made is there.
var ErrExists = errors.New("the directory exists")

// MakeDir makes the directory at an absolute path and those above it that are
// missing. Its error is ErrExists if it is there.
func (f *FS) MakeDir(name string) (Entry, error) {
	at, err := f.walk(name, follow|parents)
	if err != nil {
		return Entry{}, told("make", name, err)
	}
	defer at.close()
	err = unix.Mkdirat(at.dir, at.name, dirMode)
	if err == unix.EEXIST {
		var st unix.Stat_t
		if err := unix.Fstatat(at.dir, at.name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return Entry{}, told("make", name, err)
		}
		if st.Mode&unix.S_IFMT != unix.S_IFDIR {
			return Entry{}, errs.New(errs.Invalid, "path '%s' is there and is not a directory", name)
		}
		return Entry{}, errs.Wrap(errs.Conflict, ErrExists, "make '%s'", name)
	}
	if err != nil {
		return Entry{}, told("make", name, err)
	}
	e, err := f.entry(at, name)
	return e, told("make", name, err)
}

// Move renames what is at the absolute path from, and makes the directories
// above to that are missing. Between file systems it copies and removes: a
// guest's /tmp is not on its disk.
func (f *FS) Move(from, to string) (Entry, error) {
	src, err := f.walk(from, 0)
	if err != nil {
		return Entry{}, told("move", from, err)
	}
	defer src.close()
	var st unix.Stat_t
	if err := unix.Fstatat(src.dir, src.name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return Entry{}, told("move", from, err)
	}
	dst, err := f.walk(to, parents)
	if err != nil {
		return Entry{}, told("move to", to, err)
	}
	defer dst.close()
	err = unix.Renameat(src.dir, src.name, dst.dir, dst.name)
	if err == unix.EXDEV {
		err = f.transfer(src, dst)
	}
	if err != nil {
		return Entry{}, told("move", from, err)
	}
	e, err := f.entry(dst, to)
	return e, told("move", from, err)
}

// transfer moves between file systems. What is at dst is replaced at once, and
// src is removed only then.
func (f *FS) transfer(src, dst place) error {
	temp := dst
	temp.name = tempName()
	err := copyTree(src, temp, 1)
	if err == nil {
		err = unix.Renameat(temp.dir, temp.name, dst.dir, dst.name)
	}
	if err != nil {
		_ = remove(temp, 1)
		return err
	}
	return remove(src, 1)
}

// tempName is a name that nothing has.
func tempName() string { return ".billet-" + rand.Text() }

// Remove removes what is at an absolute path, with everything below; of a link,
// the link. That nothing is there is as it should be.
func (f *FS) Remove(name string) error {
	at, err := f.walk(name, 0)
	if err == unix.ENOENT {
		return nil
	}
	if err != nil {
		return told("remove", name, err)
	}
	defer at.close()
	if at.name == "." {
		return errs.New(errs.Invalid, "remove '%s': the root stays", name)
	}
	return told("remove", name, remove(at, 1))
}

// remove removes what is at a place. It never leaves the directories that it
// has opened, whatever is put in their way.
func remove(at place, level int) error {
	err := unix.Unlinkat(at.dir, at.name, 0)
	if err == nil || err == unix.ENOENT {
		return nil
	}
	if err != unix.EISDIR && err != unix.EPERM {
		return err
	}
	fd, openErr := openDir(at)
	if openErr != nil {
		// An empty directory that cannot be read can still be removed.
		if rmErr := unix.Unlinkat(at.dir, at.name, unix.AT_REMOVEDIR); rmErr == nil || rmErr == unix.ENOENT {
			return nil
		}
		if openErr == unix.ENOTDIR || openErr == unix.ELOOP {
			return err // no directory: what was said first is why
		}
		return openErr
	}
	if level > MaxDepth {
		_ = unix.Close(fd)
		return tooDeep()
	}
	d := os.NewFile(uintptr(fd), at.name)
	defer d.Close()
	if err := removeAll(d, fd, level); err != nil {
		return err
	}
	if err := unix.Unlinkat(at.dir, at.name, unix.AT_REMOVEDIR); err != nil && err != unix.ENOENT {
		return err
	}
	return nil
}

// removeAll empties a directory, a batch of names at a time.
func removeAll(d *os.File, fd, level int) error {
	for {
		names, err := d.Readdirnames(readBatch)
		if len(names) == 0 {
			return ignoreEOF(err)
		}
		for _, name := range names {
			if err := remove(place{dir: fd, name: name}, level+1); err != nil {
				return err
			}
		}
		// What was removed may have moved the reader's position.
		if _, err := d.Seek(0, 0); err != nil {
			return err
		}
	}
}
