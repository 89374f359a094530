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
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/blob/dir"
	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/image/ext4"
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
	bucket, err := dir.Create(filepath.Join(base, "objects"))
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

// TestBuild_SameInputSameRoot: one root, whether the source is a directory
// that was filled in another order, an archive, or a moment older.
func TestBuild_SameInputSameRoot(t *testing.T) {
	b, _ := newBuilder(t)
	files := []string{"etc/passwd", "bin/sh", "bin/a", "z", "etc/b/c"}
	first := fillDir(t, files)
	slices.Reverse(files)
	second := fillDir(t, files)
	var results []Result
	for _, src := range []string{first, second, first} {
		in, err := OpenSource(src)
		if err != nil {
			t.Fatal(err)
		}
		res, err := build(t, b, in)
		if err != nil {
			t.Fatal(err)
		}
		if err := in.Close(); err != nil {
			t.Fatal(err)
		}
		results = append(results, res)
	}
	if results[0].Root != results[1].Root || results[0].Root.Check() != nil {
		t.Errorf("roots of two directories differ:\n%+v\n%+v", results[0], results[1])
	}
	if results[0] != results[2] {
		t.Errorf("results of one directory differ:\n%+v\n%+v", results[0], results[2])
	}
	if results[0].DiskBytes != testDisk || results[0].UsedBytes == 0 || results[0].UsedBytes > 16<<20 {
		t.Errorf("impossible figures: %+v", results[0])
	}
}

// fillDir makes a directory of these files, in this order; two of the same
// name are equal, hard links and times included.
func fillDir(t *testing.T, names []string) string {
	t.Helper()
	root := t.TempDir()
	paths := []string{root}
	for _, name := range names {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("content of "+name), 0o640); err != nil {
			t.Fatal(err)
		}
		paths = append(paths, path, filepath.Dir(path))
	}
	if err := os.Link(filepath.Join(root, "z"), filepath.Join(root, "link")); err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		if err := os.Chtimes(path, time.Time{}, time.Unix(1600000000, 123456789)); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestBuild_TellsItsStages(t *testing.T) {
	b, _ := newBuilder(t)
	var stages []string
	img := saveDocker(t, map[string]v1.Image{"a:b": makeImage(t, here(), tarOf(t, fileHeader("bin/sh", 9<<20)))})
	_, err := b.Build(context.Background(), Request{Kind: api.ImageStream, Disk: testDisk, Keys: testKeys()}, bytes.NewReader(img), func(p api.ImageProgress) {
		if len(stages) == 0 || stages[len(stages)-1] != p.Stage {
			stages = append(stages, p.Stage)
		}
		if p.Total > 0 && p.Done > p.Total {
			t.Errorf("%+v is more than all", p)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{StageFetching, StageUnpacking, StageFormatting, StageUploading}, stages); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestBuild_Refuses(t *testing.T) {
	b, _ := newBuilder(t)
	small := tarOf(t, fileHeader("a", 1))
	for _, c := range []struct {
		name string
		req  Request
		kind errs.Kind
	}{
		{"tiny disk", Request{Kind: api.ImageStream, Disk: 1 << 20, Keys: testKeys()}, errs.Invalid},
		{"odd disk", Request{Kind: api.ImageStream, Disk: testDisk + 1, Keys: testKeys()}, errs.Invalid},
		{"no key", Request{Kind: api.ImageStream, Disk: testDisk}, errs.Invalid},
		{"unknown kind", Request{Kind: "x", Disk: testDisk, Keys: testKeys()}, errs.Invalid},
		{"too large for the disk", Request{Kind: api.ImageStream, Disk: ext4.MinBytes, Keys: testKeys()}, errs.Exhausted},
	} {
		t.Run(c.name, func(t *testing.T) {
			input := small
			if c.kind == errs.Exhausted {
				input = tarOf(t, fileHeader("a", 100<<20))
			}
			_, err := b.Build(context.Background(), c.req, bytes.NewReader(input), nil)
			if errs.KindOf(err) != c.kind {
				t.Errorf("got %v, want %s", err, c.kind)
			}
		})
	}
}

func TestBuild_BoundsBuilds(t *testing.T) {
	b, _ := newBuilder(t)
	var open []*io.PipeWriter
	results := make(chan error, MaxBuilds)
	for range MaxBuilds {
		r, w := io.Pipe()
		open = append(open, w)
		go func() {
			_, err := build(t, b, r)
			_ = r.Close()
			results <- err
		}()
		if _, err := w.Write([]byte("t")); err != nil { // once it is read, the build is under way
			t.Fatal(err)
		}
	}
	if _, err := build(t, b, strings.NewReader("")); !errs.Is(err, errs.Exhausted) || errs.HintOf(err) == "" {
		t.Errorf("one more build: %v, want exhausted", err)
	}
	for _, w := range open {
		_ = w.Close()
	}
	for range MaxBuilds {
		if err := <-results; !errs.Is(err, errs.Invalid) {
			t.Errorf("a build of one letter: %v", err)
		}
	}
}

// TestBuild_EndsWithItsContext gives a build up in each stage.
func TestBuild_EndsWithItsContext(t *testing.T) {
	b, _ := newBuilder(t)
	input := tarOf(t, fileHeader("big", 60<<20))
	for _, stage := range []string{StageFetching, StageFormatting, StageUploading} {
		t.Run(stage, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(context.Background())
			defer cancel(nil)
			given := errs.New(errs.Unavailable, "given up")
			_, err := b.Build(ctx, Request{Kind: api.ImageStream, Disk: testDisk, Keys: testKeys()}, bytes.NewReader(input), func(p api.ImageProgress) {
				if p.Stage == stage {
					cancel(given)
				}
			})
			if !errors.Is(err, given) {
				t.Errorf("got %v, want the reason", err)
			}
		})
	}
}
