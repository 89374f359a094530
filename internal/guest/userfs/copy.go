package userfs

import (
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/billethq/billet/internal/errs"
)

// copyTree copies what is at src to dst, where nothing is, with modes, times
// and metadata. Owners are the user, as of everything that a user makes.
func copyTree(src, dst place, level int) error {
	var st unix.Stat_t
	if err := unix.Fstatat(src.dir, src.name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	var err error
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		err = copyFile(src, dst)
	case unix.S_IFDIR:
		err = copyDir(src, dst, level)
	case unix.S_IFLNK:
		var text string
		if text, err = readlink(src.dir, src.name); err == nil {
			err = unix.Symlinkat(text, dst.dir, dst.name)
		}
	default:
		return errs.New(errs.Invalid, "'%s' is no file, directory or link, and cannot go to another file system", src.name)
	}
	if err != nil {
		return err
	}
	times := []unix.Timespec{st.Atim, st.Mtim}
	return unix.UtimesNanoAt(dst.dir, dst.name, times, unix.AT_SYMLINK_NOFOLLOW)
}

func copyFile(src, dst place) error {
	fd, err := unix.Openat(src.dir, src.name, openRead, 0)
	if err != nil {
		return err
	}
	in, info, err := regular(fd, src.name)
	if err != nil {
		return err
	}
	defer in.Close()
	fd, err = unix.Openat(dst.dir, dst.name, openWrite|unix.O_CREAT|unix.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	out := os.NewFile(uintptr(fd), dst.name)
	_, err = io.Copy(out, in)
	if m := metadata(int(in.Fd())); err == nil && m != nil {
		err = setMetadata(int(out.Fd()), m)
	}
	if err == nil {
		err = out.Chmod(info.Mode().Perm())
	}
	if closeErr := out.Close(); err == nil {
		err = closeErr
	}
	return err
}

func copyDir(src, dst place, level int) error {
	if level > MaxDepth {
		return tooDeep()
	}
	from, err := openDir(src)
	if err != nil {
		return err
	}
	in := os.NewFile(uintptr(from), src.name)
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return err
	}
	if err := unix.Mkdirat(dst.dir, dst.name, 0o700); err != nil {
		return err
	}
	to, err := openDir(dst)
	if err != nil {
		return err
	}
	out := os.NewFile(uintptr(to), dst.name)
	defer out.Close()
	for {
		names, err := in.Readdirnames(readBatch)
		for _, name := range names {
			if err := copyTree(place{dir: from, name: name}, place{dir: to, name: name}, level+1); err != nil {
				return err
			}
		}
		if len(names) == 0 {
			if err := ignoreEOF(err); err != nil {
				return err
			}
			return out.Chmod(info.Mode().Perm() | info.Mode()&os.ModeSticky)
		}
	}
}

func ignoreEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}
