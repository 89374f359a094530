package tree

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/billethq/billet/internal/errs"
)

// Extent is a file's content in the spool.
type Extent struct{ Off, Len int64 }

// Spool is a file that contents are appended to, never more than its limit.
// Regions of zeros become holes.
type Spool struct {
	file  *os.File
	next  int64
	limit int64
	buf   []byte
}

// spoolChunk is the unit of copying and of finding holes; a multiple of every
// file system's block.
const spoolChunk = 256 << 10

// NewSpool returns an empty spool in file, which stays the caller's to close
// after the last use of a tree on it. limit bounds the sum of the contents, so that a small archive of a huge file
// cannot fill the host's disk.
func NewSpool(file *os.File, limit int64) *Spool {
	return &Spool{file: file, limit: limit, buf: make([]byte, spoolChunk)}
}

// Size returns the sum of the contents.
func (s *Spool) Size() int64 { return s.next }

// Add appends size bytes of r. The errors of r come back as they are.
func (s *Spool) Add(r io.Reader, size int64) (Extent, error) {
	if size < 0 || size > s.limit-s.next {
		return Extent{}, errs.New(errs.Exhausted, "the files' contents exceed %d bytes", s.limit).
			WithHint("use a larger disk, if the source is trusted")
	}
	ext := Extent{Off: s.next, Len: size}
	for done := int64(0); done < size; {
		n := min(int64(len(s.buf)), size-done)
		if _, err := io.ReadFull(r, s.buf[:n]); err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return Extent{}, err
		}
		if err := s.write(s.buf[:n], ext.Off+done); err != nil {
			return Extent{}, err
		}
		done += n
	}
	s.next += size
	return ext, nil
}

// write leaves zeros out: they read back as such because the file is extended
// past them by the next content or by Seal.
func (s *Spool) write(p []byte, off int64) error {
	if p[0] == 0 && bytes.Equal(p[:len(p)-1], p[1:]) {
		return nil
	}
	_, err := s.file.WriteAt(p, off)
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return errs.Wrap(errs.Exhausted, err, "spool file contents").(*errs.Error).
			WithHint("free space under %s", s.file.Name())
	}
	if err != nil {
		return fmt.Errorf("spool file contents: %w", err)
	}
	return nil
}

// Seal makes everything added readable, trailing zeros included.
func (s *Spool) Seal() error {
	if err := s.file.Truncate(s.next); err != nil {
		return fmt.Errorf("seal spool: %w", err)
	}
	return nil
}
