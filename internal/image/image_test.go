package image

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/blob/dir"
	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/model"
	"github.com/billethq/billet/internal/testenv"
)

// testDisk keeps images small; it is sparse all the same.
const testDisk = 256 << 20

func testKeys() []model.DomainKey {
	return []model.DomainKey{{Domain: model.DeploymentDomain, Key: bytes.Repeat([]byte{7}, 32)}}
}

// newBuilder returns a builder over a store of its own, and its work directory.
func newBuilder(t *testing.T) (*Builder, string) {
	t.Helper()
	testenv.NeedFUSE(t)
	testenv.NeedBinary(t, "mke2fs")
	base := t.TempDir()
	bucket, err := dir.Open(filepath.Join(base, "objects"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = bucket.Close() })
	work := filepath.Join(base, "work")
	b, err := New(Config{Bucket: bucket, Dir: work, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { assertClean(t, work) })
	return b, work
}

// assertClean fails when a build left anything.
func assertClean(t *testing.T, work string) {
	t.Helper()
	entries, err := os.ReadDir(work)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() != lockName {
			t.Errorf("left in the work directory: %s", e.Name())
		}
	}
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(mounts, []byte(work)) {
		t.Errorf("left mounted below %s:\n%s", work, mounts)
	}
}

func build(t *testing.T, b *Builder, input io.Reader) (Result, error) {
	t.Helper()
	return b.Build(context.Background(), Request{Kind: api.ImageStream, Source: "test", Disk: testDisk, Keys: testKeys()}, input, nil)
}

// sampleTree fills a directory with one of everything, in the given order.
func sampleTree(t *testing.T, names []string) string {
	t.Helper()
	root := t.TempDir()
	for _, name := range names {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("content of "+name), 0o640); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func tarOf(t *testing.T, headers ...tar.Header) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, h := range headers {
		body := make([]byte, h.Size)
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(body); err != nil && !errors.Is(err, tar.ErrWriteTooLong) {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func TestBuild_SameInputSameRoot(t *testing.T) {
	b, _ := newBuilder(t)
	root := sampleTree(t, []string{"etc/passwd", "bin/sh"})
	var roots []model.Root
	for range 2 {
		src, err := OpenSource(root)
		if err != nil {
			t.Fatal(err)
		}
		res, err := build(t, b, src)
		if err != nil {
			t.Fatal(err)
		}
		if err := src.Close(); err != nil {
			t.Fatal(err)
		}
		roots = append(roots, res.Root)
		t.Logf("%+v", res)
	}
	if roots[0] != roots[1] || roots[0].Check() != nil {
		t.Errorf("roots %v differ", roots)
	}
}

func TestBuild_RefusesNoImage(t *testing.T) {
	b, _ := newBuilder(t)
	for name, input := range map[string][]byte{
		"empty": nil, "text": []byte("hello"), "empty tar": tarOf(t),
		"escape": tarOf(t, tar.Header{Name: "../x", Typeflag: tar.TypeReg}),
	} {
		t.Run(name, func(t *testing.T) {
			_, err := build(t, b, bytes.NewReader(input))
			if !errs.Is(err, errs.Invalid) || errs.HintOf(err) == "" {
				t.Errorf("got %v, hint %q", err, errs.HintOf(err))
			}
		})
	}
}
