package image

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/errs"
)

// Source is what a client was told to import: a reference that the node
// pulls, or a stream that the client sends.
type Source struct {
	Kind api.ImageKind // oci or stream
	Name string        // for people, and the reference when Kind is oci
	Size int64         // bytes of the stream; -1: unknown
	io.ReadCloser
}

// OpenSource finds out what a person means: the path of a file or directory
// that exists, else an image reference. A directory, an OCI layout too, is
// streamed as a tar that holds it exactly, in one order; a file as it is. The
// caller closes what comes back; ReadCloser is nil for a reference.
//
// Errors: errs.NotFound for what can only be a path and is not there,
// errs.Denied for a file that may not be read, errs.Invalid otherwise, also
// for a file that billet cannot read as an image.
func OpenSource(s string) (Source, error) {
	info, err := os.Stat(s)
	switch {
	case s == "":
		return Source{}, errs.New(errs.Invalid, "the source is empty").WithHint("%s", wanted)
	case errors.Is(err, fs.ErrNotExist) && !looksLikePath(s):
		if _, err := parseReference(s); err != nil {
			return Source{}, err
		}
		return Source{Kind: api.ImageOCI, Name: s}, nil
	case errors.Is(err, fs.ErrNotExist):
		return Source{}, errs.Wrap(errs.NotFound, err, "open the source").(*errs.Error).WithHint("check the path")
	case err != nil:
		return Source{}, unreadable(err)
	case info.IsDir():
		return Source{Kind: api.ImageStream, Name: base(s), Size: -1, ReadCloser: packing(s)}, nil
	case !info.Mode().IsRegular() && info.Mode()&fs.ModeNamedPipe == 0:
		return Source{}, errs.New(errs.Invalid, "%s is neither a file nor a directory", s).WithHint("%s", wanted)
	}
	f, err := os.Open(s)
	if err != nil {
		return Source{}, unreadable(err)
	}
	src := Source{Kind: api.ImageStream, Name: base(s), Size: info.Size(), ReadCloser: f}
	if !info.Mode().IsRegular() {
		src.Size = -1 // and what was read of it would be gone
		return src, nil
	}
	if err := readable(f); err != nil {
		_ = f.Close()
		return Source{}, fmt.Errorf("%s: %w", src.Name, err)
	}
	return src, nil
}

// readable refuses a file that no node could read, before one is asked, and
// leaves f at its beginning.
func readable(f *os.File) error {
	head := make([]byte, sniffBytes)
	n, err := f.ReadAt(head, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return unreadable(err)
	}
	_, err = Sniff(head[:n])
	return err
}

// base is a path's last name: where it lay on somebody's machine is nobody
// else's business.
func base(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		path = abs
	}
	return filepath.Base(path)
}

func looksLikePath(s string) bool {
	if strings.HasPrefix(s, "/") || strings.HasPrefix(s, ".") || strings.HasPrefix(s, "~") || strings.HasSuffix(s, "/") {
		return true
	}
	return withoutEndings(s) != s
}

func unreadable(err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return errs.Wrap(errs.Denied, err, "read the source").(*errs.Error).WithHint("run the import as a user who may read all of it, such as root")
	}
	return fmt.Errorf("read the source: %w", err)
}

// packing streams dir as a tar.
func packing(dir string) io.ReadCloser {
	r, w := io.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.CloseWithError(pack(dir, w))
	}()
	return &packer{PipeReader: r, done: done}
}

// packer is the reading end; Close waits for the writing one to be gone.
type packer struct {
	*io.PipeReader
	done chan struct{}
}

func (p *packer) Close() error {
	err := p.PipeReader.Close()
	<-p.done
	return err
}
