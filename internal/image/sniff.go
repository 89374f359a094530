package image

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/bzip2"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/model"
)

// sniffBytes is one tar header: enough to know a format by its beginning.
const sniffBytes = 512

// format is how a stream is packed.
type format struct {
	name  string
	magic string
	at    int
	// open returns the unpacked stream; nil: billet cannot read the format.
	open func(io.Reader) (io.ReadCloser, error)
	hint string
}

// zstdMemory bounds a decoder's window: the largest that zstd itself makes
// without being told to.
const zstdMemory = 128 << 20

// formats are tried in this order.
func formats() []format {
	return []format{
		{name: "gzip", magic: "\x1f\x8b", open: func(r io.Reader) (io.ReadCloser, error) { return gzip.NewReader(r) }},
		{name: "zstd", magic: "\x28\xb5\x2f\xfd", open: func(r io.Reader) (io.ReadCloser, error) {
			d, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(zstdMemory))
			if err != nil {
				return nil, err
			}
			return d.IOReadCloser(), nil
		}},
		{name: "bzip2", magic: "BZh", open: func(r io.Reader) (io.ReadCloser, error) { return io.NopCloser(bzip2.NewReader(r)), nil }},
		{name: "xz", magic: "\xfd7zXZ\x00", hint: "decompress it first: xz -d FILE"},
		{name: "zip", magic: "PK\x03\x04", hint: "unpack it and import the directory"},
		{name: "qcow2", magic: "QFI\xfb", hint: "mount the disk and import the mounted directory"},
		{name: "SquashFS", magic: "hsqs", hint: "unpack it (unsquashfs) and import the directory"},
		{name: "ext4", magic: "\x53\xef", at: 0x38, hint: "mount it and import the mounted directory"},
	}
}

// Sniff names how a stream that begins with head is packed: "tar", "gzip",
// "zstd" or "bzip2". What billet cannot read is errs.Invalid, with what it is
// and what to do.
func Sniff(head []byte) (string, error) {
	f, err := sniff(head)
	return f.name, err
}

func sniff(head []byte) (format, error) {
	if len(head) == 0 {
		return format{}, errs.New(errs.Invalid, "the input is empty").WithHint("%s", wanted)
	}
	if isTar(head) {
		return format{name: "tar", open: func(r io.Reader) (io.ReadCloser, error) { return io.NopCloser(r), nil }}, nil
	}
	for _, f := range formats() {
		if len(head) < f.at || !bytes.HasPrefix(head[f.at:], []byte(f.magic)) {
			continue
		}
		if f.open == nil {
			return f, errs.New(errs.Invalid, "the input is in the %s format, which billet does not read", f.name).WithHint("%s", f.hint)
		}
		return f, nil
	}
	what := "binary data of no known format"
	if utf8.Valid(head) && bytes.IndexByte(head, 0) < 0 {
		what = "text"
	}
	return format{}, errs.New(errs.Invalid, "the input is no image: it is %s", what).WithHint("%s", wanted)
}

const wanted = "import a container image's reference, layout or archive (docker save), a tar of a root file system (docker export), or its directory"

// isTar reports whether head is a tar header, or the two empty blocks of a tar
// without members.
func isTar(head []byte) bool {
	if len(head) < sniffBytes {
		return false
	}
	if len(bytes.TrimLeft(head, "\x00")) == 0 {
		return true
	}
	_, err := tar.NewReader(bytes.NewReader(head)).Next()
	// A first member that is larger than its header is tried on that alone.
	return err == nil || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF)
}

// unpacked returns the tar stream inside r, and how it was packed.
func unpacked(r io.Reader) (io.ReadCloser, string, error) {
	br := bufio.NewReaderSize(r, 64<<10)
	head, err := br.Peek(sniffBytes)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, "", err
	}
	f, err := sniff(head)
	if err != nil {
		return nil, "", err
	}
	inner, err := f.open(br)
	if err != nil {
		return nil, "", damaged(f.name, err)
	}
	if f.name == "tar" {
		return inner, f.name, nil
	}
	return &packed{name: f.name, inner: inner}, f.name, nil
}

// packed gives a decoder's errors a kind. Errors of the input below have one
// already, and cutting it short is said by the tar reader.
type packed struct {
	name  string
	inner io.ReadCloser
}

func (p *packed) Read(b []byte) (int, error) {
	n, err := p.inner.Read(b)
	if err != nil && !errors.Is(err, io.EOF) {
		err = damaged(p.name, err)
	}
	return n, err
}

func (p *packed) Close() error { return p.inner.Close() }

func damaged(name string, err error) error {
	var known *errs.Error
	switch {
	case errors.As(err, &known), errors.Is(err, io.ErrUnexpectedEOF):
		return err
	case errors.Is(err, io.EOF):
		return io.ErrUnexpectedEOF
	case errors.Is(err, zstd.ErrWindowSizeExceeded), errors.Is(err, zstd.ErrDecoderSizeExceeded):
		return errs.Wrap(errs.Exhausted, err, "the zstd stream wants more than %s of memory", model.Size(zstdMemory)).(*errs.Error).
			WithHint("compress it again without --ultra or --long")
	}
	return errs.Wrap(errs.Invalid, err, "the %s stream is damaged", name).(*errs.Error).WithHint("fetch or make it again")
}

// origin gives the errors of the place a stream comes from a kind, so that a
// lost connection is not taken for a damaged archive.
type origin struct{ r io.Reader }

func (o origin) Read(p []byte) (int, error) {
	n, err := o.r.Read(p)
	var known *errs.Error
	if err != nil && !errors.Is(err, io.EOF) && !errors.As(err, &known) {
		err = errs.Wrap(errs.Unavailable, err, "read the input").(*errs.Error).WithHint("try again")
	}
	// A reader may wrap io.EOF; those above compare.
	if errors.Is(err, io.EOF) && known == nil {
		err = io.EOF
	}
	return n, err
}

// bounded ends in errs.Exhausted after limit bytes: what a small compressed
// stream can become.
type bounded struct {
	r     io.Reader
	limit int64
	left  int64
}

func newBounded(r io.Reader, limit int64) *bounded { return &bounded{r: r, limit: limit, left: limit} }

func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, errs.New(errs.Exhausted, "the archive unpacks to more than %s", model.Size(b.limit)).
			WithHint("use a larger disk, if the source is trusted")
	}
	n, err := b.r.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	return n, err
}

// headerAllowance is what the headers of tree.MaxEntries members may take
// beside the contents: 1 KiB for each, and long names and attributes for some.
const headerAllowance = 2 << 30

// open is unpacked over r with every guard: bounded by the disk that the
// contents have to fit.
func (j *job) open(r io.Reader) (io.ReadCloser, string, error) {
	inner, name, err := unpacked(origin{r})
	var known *errs.Error
	if errors.Is(err, io.ErrUnexpectedEOF) && !errors.As(err, &known) {
		return nil, "", errs.New(errs.Invalid, "the input is cut short at its beginning").WithHint("fetch or make it again")
	}
	if err != nil {
		return nil, "", err
	}
	return struct {
		io.Reader
		io.Closer
	}{newBounded(inner, j.req.Disk+headerAllowance), inner}, name, nil
}

// describe joins words for Result.Source.
func describe(source, what string) string {
	if source == "" {
		return what
	}
	return fmt.Sprintf("%s (%s)", source, what)
}
