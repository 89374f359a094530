package image

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/errs"
)

func gzipped(t *testing.T, b []byte) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := gzip.NewWriter(&buf)
	if _, err := w.Write(b); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func zstded(t *testing.T, b []byte, options ...zstd.EOption) []byte {
	t.Helper()
	var buf bytes.Buffer
	w, err := zstd.NewWriter(&buf, options...)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(b); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func TestTree_Compressions(t *testing.T) {
	plain := tarOf(t, dirHeader("bin/"), fileHeader("bin/sh", 5000))
	for _, c := range []struct {
		name  string
		input []byte
	}{{"tar", plain}, {"gzip", gzipped(t, plain)}, {"zstd", zstded(t, plain)}} {
		t.Run(c.name, func(t *testing.T) {
			tr, source, err := streamTree(t, c.input)
			if err != nil {
				t.Fatal(err)
			}
			if got, want := names(t, tr), "bin bin/sh dev proc run run/billet run/billet-guest sys tmp"; got != want {
				t.Errorf("got %s, want %s", got, want)
			}
			if want := "x.tar (root file system, " + c.name + ")"; source != want {
				t.Errorf("source %q, want %q", source, want)
			}
			if name, err := Sniff(c.input[:min(512, len(c.input))]); err != nil || name != c.name {
				t.Errorf("Sniff: %q, %v", name, err)
			}
		})
	}
}

// noise is what no compression makes smaller.
func noise(n int) []byte {
	out := make([]byte, n)
	x := uint64(88172645463325252)
	for i := range out {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		out[i] = byte(x)
	}
	return out
}

func TestTree_RefusesStreams(t *testing.T) {
	plain := tarOf(t, dirHeader("bin/"), fileHeader("bin/sh", 5000))
	damaged := gzipped(t, append(tarOf(t), noise(4000)...))
	damaged[len(damaged)-6] ^= 1
	for _, c := range []struct {
		name, says string
		kind       errs.Kind
		input      []byte
	}{
		{"nothing", "input is empty", errs.Invalid, nil},
		{"text", "it is text", errs.Invalid, []byte("FROM debian\nRUN true\n")},
		{"long text", "it is text", errs.Invalid, bytes.Repeat([]byte("text\n"), 1000)},
		{"noise", "no known format", errs.Invalid, noise(5000)},
		{"zip", "zip format", errs.Invalid, []byte("PK\x03\x04rest of it")},
		{"xz", "xz format", errs.Invalid, []byte("\xfd7zXZ\x00rest")},
		{"qcow2", "qcow2 format", errs.Invalid, []byte("QFI\xfbrest")},
		{"text in gzip", "cut short", errs.Invalid, gzipped(t, []byte("hello\n"))},
		{"no member", "it has no file", errs.Invalid, tarOf(t)},
		{"cut tar", "cut short", errs.Invalid, plain[:2000]},
		{"cut gzip", "cut short", errs.Invalid, gzipped(t, tarOfFile(t, "a", string(noise(9000))))[:5000]},
		{"cut zstd", "cut short", errs.Invalid, zstded(t, plain)[:40]},
		{"only a gzip header", "cut short", errs.Invalid, gzipped(t, plain)[:5]},
		{"wrong checksum", "is damaged", errs.Invalid, damaged},
		{"absolute member", `member "/etc/x" leaves the root`, errs.Invalid, tarOf(t, fileHeader("/etc/x", 1))},
		{"member through a link", `member "a/x" leaves the root`, errs.Invalid,
			tarOf(t, tar.Header{Typeflag: tar.TypeSymlink, Name: "a", Linkname: "/etc"}, fileHeader("a/x", 1))},
		{"docker archive without its parts", "lacks its part", errs.Invalid,
			tarOfFile(t, "manifest.json", `[{"Config":"c.json","Layers":["l.tar"]}]`)},
		{"OCI layout without its parts", "lacks its part", errs.Invalid, tarOfFile(t, "oci-layout", `{"imageLayoutVersion":"1.0.0"}`,
			"index.json", `{"manifests":[{"mediaType":"application/vnd.oci.image.manifest.v1+json","digest":"sha256:`+strings.Repeat("a", 64)+`"}]}`)},
		{"large file", "contents exceed", errs.Exhausted, sparseTar(t, testDisk+1)},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, _, err := streamTree(t, c.input)
			if errs.KindOf(err) != c.kind || !strings.Contains(err.Error(), c.says) || errs.HintOf(err) == "" {
				t.Errorf("got %v (%s), hint %q; want %s: %q and a hint", err, errs.KindOf(err), errs.HintOf(err), c.kind, c.says)
			}
		})
	}
}

// tarOfFile makes a tar of name, text pairs.
func tarOfFile(t *testing.T, files ...string) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for i := 0; i < len(files); i += 2 {
		h := fileHeader(files[i], int64(len(files[i+1])))
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, files[i+1]); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

// sparseTar is a header that promises size bytes, and then nothing.
func sparseTar(t *testing.T, size int64) []byte {
	t.Helper()
	var buf bytes.Buffer
	h := fileHeader("bomb", size)
	if err := tar.NewWriter(&buf).WriteHeader(&h); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

// TestOpen_BoundsWhatAStreamBecomes: members that replace each other, and what
// follows the end of a tar, never reach the tree's own bounds.
func TestOpen_BoundsWhatAStreamBecomes(t *testing.T) {
	j := &job{req: Request{Disk: 1<<20 - headerAllowance}}
	for name, bomb := range map[string][]byte{
		"gzip": gzipped(t, make([]byte, 4<<20)),
		"zstd": zstded(t, make([]byte, 4<<20)),
	} {
		in, _, err := j.open(bytes.NewReader(bomb))
		if err != nil {
			t.Fatal(err)
		}
		n, err := io.Copy(io.Discard, in)
		if !errs.Is(err, errs.Exhausted) || n != 1<<20 {
			t.Errorf("%s: %d bytes, %v; want exhausted after 1 MiB", name, n, err)
		}
		_ = in.Close()
	}
}

func TestOpen_BoundsADecodersMemory(t *testing.T) {
	bomb := zstded(t, noise(1<<20), zstd.WithWindowSize(zstd.MaxWindowSize))
	in, _, err := (&job{req: Request{Disk: testDisk}}).open(bytes.NewReader(bomb))
	if err == nil {
		_, err = io.Copy(io.Discard, in)
	}
	if !errs.Is(err, errs.Exhausted) {
		t.Errorf("got %v, want exhausted", err)
	}
}

// TestTree_LostInputIsNotADamagedArchive: a connection that breaks is worth
// another try, an archive that ends early is not.
func TestTree_LostInputIsNotADamagedArchive(t *testing.T) {
	plain := gzipped(t, tarOf(t, fileHeader("a", 100_000)))
	for _, lost := range []error{io.ErrUnexpectedEOF, net.ErrClosed, errors.New("reset")} {
		in := io.MultiReader(bytes.NewReader(plain[:len(plain)/2]), failing{lost})
		_, _, err := treeOf(t, Request{Kind: api.ImageStream}, in)
		if !errs.Is(err, errs.Unavailable) || !errors.Is(err, lost) {
			t.Errorf("%v: got %v, want unavailable", lost, err)
		}
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// FuzzStream reads any bytes as an input: it ends in a tree, or in an error of
// a kind that blames the input.
func FuzzStream(f *testing.F) {
	for _, seed := range []string{"", "text", "\x1f\x8b\x08", "\x28\xb5\x2f\xfd\x04", "BZh91AY&SY", "PK\x03\x04", "\xfd7zXZ\x00"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, input []byte) {
		_, _, err := streamTree(t, input)
		if err != nil && !errs.Is(err, errs.Invalid) && !errs.Is(err, errs.Exhausted) {
			t.Fatalf("%v blames nobody", err)
		}
	})
}
