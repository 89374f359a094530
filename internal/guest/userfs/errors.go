package userfs

import (
	"errors"
	"io"
	"io/fs"

	"golang.org/x/sys/unix"

	"github.com/billethq/billet/internal/errs"
)

// told wraps the error of a system call once, with what was being done.
func told(op, name string, err error) error {
	if err == nil {
		return nil
	}
	var e *errs.Error
	if errors.As(err, &e) {
		return err
	}
	var p *fs.PathError
	if errors.As(err, &p) {
		err = p.Err
	}
	return errs.Wrap(kindOf(err), err, "%s '%s'", op, name)
}

// found is told for what looks for one thing: below a file there is nothing.
func found(op, name string, err error) error {
	if err == unix.ENOTDIR {
		return errs.Wrap(errs.NotFound, err, "%s '%s'", op, name)
	}
	return told(op, name, err)
}

// kindOf says what a program may conclude from the kernel's answer.
func kindOf(err error) errs.Kind {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return errs.Invalid // what a client sends is cut off
	}
	var errno unix.Errno
	if !errors.As(err, &errno) {
		return errs.Internal
	}
	switch errno {
	case unix.ENOENT:
		return errs.NotFound
	case unix.EACCES, unix.EPERM, unix.EROFS:
		return errs.Denied
	case unix.EEXIST, unix.ENOTEMPTY, unix.ELOOP, unix.EBUSY, unix.ETXTBSY:
		return errs.Conflict
	case unix.ENOTDIR, unix.EISDIR, unix.EINVAL, unix.ENAMETOOLONG, unix.ENXIO:
		return errs.Invalid
	case unix.ENOSPC, unix.EDQUOT, unix.EFBIG, unix.EMFILE, unix.ENFILE, unix.ENOMEM, unix.EMLINK:
		return errs.Exhausted
	case unix.ENOTSUP, unix.ENOSYS:
		return errs.Unsupported
	}
	return errs.Internal
}
