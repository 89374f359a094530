package userfs

import (
	"errors"
	"io"
	"os"
	"path"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/billethq/billet/internal/errs"
)

const (
	// MaxEntries bounds a listing, and with it the memory and the message that
	// it takes: some 300 bytes each.
	MaxEntries = 50_000
	// MaxDepth bounds how deep a tree is listed, copied, removed or watched: each
	// level holds a descriptor open.
	MaxDepth = 256
	// readBatch is how many names are read from a directory at once.
	readBatch = 1024
)

// List describes what is in the directory at an absolute path, sorted, and what
// is in directories below it down to depth, 1 being the directory's own
// entries. Links below are not followed. Directories below that the user may
// not read are left unread.
func (f *FS) List(name string, depth int) ([]Entry, error) {
	at, err := f.walk(name, follow)
	if err != nil {
		return nil, told("list", name, err)
	}
	defer at.close()
	fd, err := openDir(at)
	if err != nil {
		return nil, told("list", name, err)
	}
	l := lister{fs: f}
	err = l.dir(fd, at.full(), name, depth, 1)
	return l.all, told("list", name, err)
}

type lister struct {
	fs  *FS
	all []Entry
}

// dir adds the entries of a directory, whose descriptor it closes. It is called
// real without links, and shown by the client's name for it.
func (l *lister) dir(fd int, real, shown string, depth, level int) error {
	d := os.NewFile(uintptr(fd), shown)
	defer d.Close()
	names, err := readDir(d, MaxEntries-len(l.all))
	if err != nil {
		return err
	}
	for _, name := range names {
		at := place{dir: fd, path: real, name: name}
		e, err := l.fs.entry(at, path.Join(shown, name))
		if errors.Is(err, unix.ENOENT) {
			continue // gone meanwhile
		}
		if err != nil {
			return err
		}
		l.all = append(l.all, e)
		if level >= depth || e.Kind != KindDir || e.Target != nil {
			continue
		}
		if level >= MaxDepth {
			return tooDeep()
		}
		sub, err := openDir(at)
		if err != nil {
			continue // forbidden, or another thing by now
		}
		if err := l.dir(sub, path.Join(real, name), e.Path, depth, level+1); err != nil {
			return err
		}
	}
	return nil
}

func tooDeep() error {
	return errs.New(errs.Exhausted, "more than %d levels of directories", MaxDepth)
}

// readDir returns the names in a directory, sorted, and refuses more than most.
func readDir(d *os.File, most int) ([]string, error) {
	var all []string
	for {
		names, err := d.Readdirnames(readBatch)
		all = append(all, names...)
		if len(all) > most {
			return nil, errs.New(errs.Exhausted, "more than %d entries", MaxEntries)
		}
		if errors.Is(err, io.EOF) {
			slices.Sort(all)
			return all, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// openDir opens the directory at a place, whose last element is no link.
func openDir(at place) (int, error) {
	return unix.Openat(at.dir, at.name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
}
