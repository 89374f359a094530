package overlay

import (
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// file is what an overlay needs of a file. The tests put one behind it that
// loses power.
type file interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	// Sync makes everything written so far durable (fdatasync).
	Sync() error
	// Punch makes a range read as zeros and frees its space. It may be
	// EOPNOTSUPP.
	Punch(off, n int64) error
	// Resize sets the length.
	Resize(n int64) error
	Length() (int64, error)
	// NextData returns the first offset at or after off that is not in a
	// hole, or io.EOF.
	NextData(off int64) (int64, error)
}

type osFile struct{ *os.File }

func (f osFile) Sync() error {
	for {
		if err := unix.Fdatasync(int(f.Fd())); err != unix.EINTR {
			return err
		}
	}
}

func (f osFile) Punch(off, n int64) error {
	for {
		err := unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, off, n)
		if err != unix.EINTR {
			return err
		}
	}
}

func (f osFile) Resize(n int64) error { return f.Truncate(n) }

func (f osFile) Length() (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

func (f osFile) NextData(off int64) (int64, error) {
	next, err := unix.Seek(int(f.Fd()), off, unix.SEEK_DATA)
	switch err {
	case unix.ENXIO:
		return 0, io.EOF
	case unix.EINVAL: // a file system that does not know about holes
		return off, nil
	}
	return next, err
}
