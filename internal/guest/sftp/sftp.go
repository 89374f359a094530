// Package sftp is the file transfer server of a guest, over the streams of the
// process that it runs in: with that user's rights and no others.
package sftp

import (
	"errors"
	"io"

	"github.com/pkg/sftp"
)

// stdio is a process's two streams as one.
type stdio struct {
	io.Reader
	io.Writer
}

func (stdio) Close() error { return nil }

// Serve answers requests until the client ends them.
func Serve(in io.Reader, out io.Writer) error {
	s, err := sftp.NewServer(stdio{in, out})
	if err != nil {
		return err
	}
	if err := s.Serve(); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	return s.Close()
}
