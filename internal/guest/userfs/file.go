package userfs

import (
	"io"
	"os"
	"path"

	"golang.org/x/sys/unix"

	"github.com/billethq/billet/internal/errs"
)

const (
	// fileMode644 is the mode of files that are made.
	fileMode644 = 0o644
	// openRead and openWrite never wait, as opening a pipe would, and never make
	// a terminal the agent's.
	openRead  = unix.O_RDONLY | openQuiet
	openWrite = unix.O_WRONLY | openQuiet
	openQuiet = unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_NOCTTY | unix.O_CLOEXEC

	// copyBuffer is what a copy moves at once.
	copyBuffer = 256 << 10
)

// Open opens the regular file at an absolute path for reading.
func (f *FS) Open(name string) (*os.File, os.FileInfo, error) {
	at, err := f.walk(name, follow)
	if err != nil {
		return nil, nil, found("open", name, err)
	}
	defer at.close()
	fd, err := unix.Openat(at.dir, at.name, openRead, 0)
	if err != nil {
		return nil, nil, told("open", name, err)
	}
	return regular(fd, name)
}

// regular makes a file of fd, which it closes unless that is a regular one.
func regular(fd int, name string) (*os.File, os.FileInfo, error) {
	file := os.NewFile(uintptr(fd), name)
	info, err := file.Stat()
	if err == nil && info.IsDir() {
		err = errs.New(errs.Invalid, "path '%s' is a directory", name)
	} else if err == nil && !info.Mode().IsRegular() {
		err = errs.New(errs.Invalid, "path '%s' is not a regular file", name)
	}
	if err != nil {
		_ = file.Close()
		return nil, nil, told("open", name, err)
	}
	return file, info, nil
}

// Write makes the file at an absolute path, and the directories above it that
// are missing, or replaces the content of the one that is there, which keeps
// its owner and mode. Its metadata becomes m. A write that fails leaves what it
// had written.
func (f *FS) Write(name string, m map[string]string, content io.Reader) (Entry, error) {
	at, err := f.walk(name, follow|parents)
	if err != nil {
		return Entry{}, told("write", name, err)
	}
	defer at.close()
	fd, err := create(at)
	if err == unix.EISDIR || err == unix.EEXIST && at.name == "." {
		return Entry{}, errs.New(errs.Invalid, "path '%s' is a directory", name)
	}
	if err != nil {
		return Entry{}, told("write", name, err)
	}
	file, info, err := regular(fd, name)
	if err != nil {
		return Entry{}, err
	}
	if info.Size() > 0 { // else whoever watches is told of a write that was none
		err = file.Truncate(0)
	}
	if err == nil {
		err = fill(file, m, content)
	}
	if closeErr := file.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return Entry{}, told("write", name, err)
	}
	e, err := f.entry(at, name)
	e.Name = path.Base(name)
	return e, told("write", name, err)
}

// create opens the file at a place for writing and makes it if it is missing.
// Nothing is cut off before it is known to be a regular file.
func create(at place) (int, error) {
	return unix.Openat(at.dir, at.name, openWrite|unix.O_CREAT, fileMode644)
}

// fill gives an empty file its metadata and content. It runs on the user's thread, so
// that limits count for the user and a write takes set-id bits away.
func fill(file *os.File, m map[string]string, content io.Reader) error {
	if err := setMetadata(int(file.Fd()), m); err != nil {
		return err
	}
	_, err := io.CopyBuffer(struct{ io.Writer }{file}, struct{ io.Reader }{content}, make([]byte, copyBuffer))
	return err
}

// Compose makes the file at dest of the content of sources, in their order, and
// removes those. What is at dest is replaced at once, or not at all.
func (f *FS) Compose(dest string, sources []string) (Entry, error) {
	for _, s := range sources {
		if s == dest {
			return Entry{}, errs.New(errs.Invalid, "source '%s' is the destination", s)
		}
		file, _, err := f.Open(s)
		if err != nil {
			return Entry{}, err
		}
		_ = file.Close()
	}
	at, err := f.walk(dest, follow|parents)
	if err != nil {
		return Entry{}, told("compose", dest, err)
	}
	defer at.close()
	temp := at
	temp.name = tempName()
	if err := f.concat(temp, sources); err != nil {
		_ = unix.Unlinkat(temp.dir, temp.name, 0)
		return Entry{}, told("compose", dest, err)
	}
	if err := unix.Renameat(temp.dir, temp.name, at.dir, at.name); err != nil {
		_ = unix.Unlinkat(temp.dir, temp.name, 0)
		return Entry{}, told("compose", dest, err)
	}
	for _, s := range sources {
		if err := f.Remove(s); err != nil {
			return Entry{}, err
		}
	}
	e, err := f.entry(at, dest)
	return e, told("compose", dest, err)
}

// concat writes the content of sources to a new file.
func (f *FS) concat(to place, sources []string) error {
	fd, err := unix.Openat(to.dir, to.name, openWrite|unix.O_CREAT|unix.O_EXCL, fileMode644)
	if err != nil {
		return err
	}
	out := os.NewFile(uintptr(fd), to.name)
	for _, s := range sources {
		in, _, err := f.Open(s)
		if err == nil {
			_, err = io.Copy(out, in) // in the kernel, where it can
			_ = in.Close()
		}
		if err != nil {
			_ = out.Close()
			return err
		}
	}
	return out.Close()
}
