package image

import (
	"archive/tar"
	"bytes"
	"context"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/image/tree"
)

func here() v1.Platform { return v1.Platform{OS: "linux", Architecture: runtime.GOARCH} }

// makeImage returns an image of these layers (tars) for a platform.
func makeImage(t *testing.T, p v1.Platform, layers ...[]byte) v1.Image {
	t.Helper()
	img, err := mutate.ConfigFile(empty.Image, &v1.ConfigFile{OS: p.OS, Architecture: p.Architecture})
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range layers {
		layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(l)), nil })
		if err != nil {
			t.Fatal(err)
		}
		if img, err = mutate.AppendLayers(img, layer); err != nil {
			t.Fatal(err)
		}
	}
	return img
}

// twoLayers is an image whose second layer hides and replaces.
func twoLayers(t *testing.T, p v1.Platform) v1.Image {
	return makeImage(t, p,
		tarOf(t, dirHeader("etc/"), fileHeader("etc/gone", 10), fileHeader("etc/kept", 20)),
		tarOf(t, fileHeader("etc/.wh.gone", 0), fileHeader("usr/new", 30)))
}

func dirHeader(name string) tar.Header {
	return tar.Header{Typeflag: tar.TypeDir, Name: name, Mode: 0o755}
}

func fileHeader(name string, size int64) tar.Header {
	return tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: size}
}

var wantTwoLayers = []string{"dev", "etc", "etc/kept", "proc", "run", "run/billet", "run/billet-guest", "sys", "tmp", "usr", "usr/new"}

// treeOf runs the part of a build that makes the tree.
func treeOf(t *testing.T, req Request, input io.Reader) (*tree.Tree, string, error) {
	t.Helper()
	work, err := openWork(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := work.close(); err != nil {
			t.Error(err)
		}
	})
	if req.Disk == 0 {
		req.Disk = testDisk
	}
	j := &job{cfg: Config{Platform: here()}, req: req, work: work, report: newReporter(nil), stall: maxStall}
	tr, source, err := j.tree(context.Background(), input)
	if err == nil {
		err = finish(tr)
	}
	return tr, source, err
}

func streamTree(t *testing.T, input []byte) (*tree.Tree, string, error) {
	t.Helper()
	return treeOf(t, Request{Kind: api.ImageStream, Source: "x.tar"}, bytes.NewReader(input))
}

func names(t *testing.T, tr *tree.Tree) string {
	t.Helper()
	var out []string
	_ = tr.Walk(func(path string, _ *tree.Node) error {
		if path != "" {
			out = append(out, path)
		}
		return nil
	})
	return strings.Join(out, " ")
}

func writeLayout(t *testing.T, idx v1.ImageIndex, imgs ...v1.Image) string {
	t.Helper()
	dir := t.TempDir()
	path, err := layout.Write(dir, idx)
	if err != nil {
		t.Fatal(err)
	}
	for _, img := range imgs {
		if err := path.AppendImage(img); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// index is an index of images that say their platform.
func index(images map[string]v1.Image) v1.ImageIndex {
	var idx v1.ImageIndex = empty.Index
	for platform, img := range images {
		p, _ := v1.ParsePlatform(platform)
		idx = mutate.AppendManifests(idx, mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{Platform: p}})
	}
	return idx
}

func saveDocker(t *testing.T, images map[string]v1.Image) []byte {
	t.Helper()
	refs := map[name.Reference]v1.Image{}
	for tag, img := range images {
		ref, err := name.NewTag(tag)
		if err != nil {
			t.Fatal(err)
		}
		refs[ref] = img
	}
	var buf bytes.Buffer
	if err := tarball.MultiRefWrite(refs, &buf); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func packDir(t *testing.T, dir string) []byte {
	t.Helper()
	src, err := OpenSource(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	b, err := io.ReadAll(src)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestTree_ContainerImages(t *testing.T) {
	img := twoLayers(t, here())
	other := v1.Platform{OS: "linux", Architecture: "other"}
	nested := mutate.AppendManifests(empty.Index, mutate.IndexAddendum{Add: index(map[string]v1.Image{here().String(): img, "linux/other": twoLayers(t, other)})})
	for _, c := range []struct {
		name, source string
		input        []byte
	}{
		{"OCI layout", "OCI layout", packDir(t, writeLayout(t, empty.Index, img))},
		{"OCI layout of an index", "OCI layout", packDir(t, writeLayout(t, index(map[string]v1.Image{here().String(): img, "linux/other": twoLayers(t, other), "unknown/unknown": empty.Image})))},
		{"OCI layout of a nested index", "OCI layout", packDir(t, writeLayout(t, nested))},
		{"docker archive", "docker archive", saveDocker(t, map[string]v1.Image{"a:b": img})},
	} {
		t.Run(c.name, func(t *testing.T) {
			tr, source, err := streamTree(t, c.input)
			if err != nil {
				t.Fatal(err)
			}
			if got, want := names(t, tr), strings.Join(wantTwoLayers, " "); got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
			if want := "x.tar (" + c.source + ")"; source != want {
				t.Errorf("source %q, want %q", source, want)
			}
		})
	}
}

func TestTree_RefusesContainerImages(t *testing.T) {
	good := twoLayers(t, here())
	other := twoLayers(t, v1.Platform{OS: "linux", Architecture: "other"})
	artifact := mutate.ConfigMediaType(good, "application/vnd.example.chart+json")
	encrypted, err := mutate.Append(good, mutate.Addendum{Layer: static("x"), MediaType: "application/vnd.oci.image.layer.v1.tar+gzip+encrypted"})
	if err != nil {
		t.Fatal(err)
	}
	flip := func(dir, find string) []byte {
		hit := 0
		err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			b, err := os.ReadFile(path)
			if err == nil && bytes.Contains(b, []byte(find)) && strings.Contains(path, "blobs") {
				hit++
				err = os.WriteFile(path, bytes.Replace(b, []byte(find), bytes.ToUpper([]byte(find)), 1), 0o644)
			}
			return err
		})
		if err != nil || hit == 0 {
			t.Fatalf("flipped nothing in %s: %v", dir, err)
		}
		return packDir(t, dir)
	}
	for _, c := range []struct {
		name, says string
		input      []byte
	}{
		{"other platform", "is for linux/other", packDir(t, writeLayout(t, empty.Index, other))},
		{"index of another platform", "is for linux/other", packDir(t, writeLayout(t, index(map[string]v1.Image{"linux/other": other})))},
		{"docker archive of another platform", "is for linux/other", saveDocker(t, map[string]v1.Image{"a:b": other})},
		{"two images in a layout", "2 images", packDir(t, writeLayout(t, empty.Index, good, makeImage(t, here(), tarOf(t, fileHeader("z", 1)))))},
		{"two images in a docker archive", "2 images", saveDocker(t, map[string]v1.Image{"a:b": good, "c:d": other})},
		{"no image in a layout", "names no image", packDir(t, writeLayout(t, empty.Index))},
		{"no layer", "no layer", packDir(t, writeLayout(t, empty.Index, makeImage(t, here())))},
		{"empty layer", "no file", packDir(t, writeLayout(t, empty.Index, makeImage(t, here(), tarOf(t))))},
		{"artifact", "vnd.example.chart", packDir(t, writeLayout(t, empty.Index, artifact))},
		{"encrypted layer", "encrypted", packDir(t, writeLayout(t, empty.Index, encrypted))},
		{"damaged manifest", "is damaged", flip(writeLayout(t, empty.Index, good), "mediaType")},
		{"damaged configuration", "is damaged", flip(writeLayout(t, empty.Index, good), "architecture")},
		{"escaping layer", `"../x" leaves the root`, packDir(t, writeLayout(t, empty.Index, makeImage(t, here(), tarOf(t, fileHeader("../x", 1)))))},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, _, err := streamTree(t, c.input)
			if !errs.Is(err, errs.Invalid) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v, want invalid: %q", err, c.says)
			}
		})
	}
}

// static is a layer of no tar at all.
func static(body string) v1.Layer {
	l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(body)), nil }, tarball.WithMediaType(types.OCIUncompressedLayer))
	if err != nil {
		panic(err)
	}
	return l
}

// TestTree_ChecksLayers swaps the blobs of two layers that are both sound.
func TestTree_ChecksLayers(t *testing.T) {
	img := twoLayers(t, here())
	layers, err := img.Layers()
	if err != nil {
		t.Fatal(err)
	}
	dir := writeLayout(t, empty.Index, img)
	var paths [2]string
	for i, l := range layers {
		d, err := l.Digest()
		if err != nil {
			t.Fatal(err)
		}
		paths[i] = filepath.Join(dir, "blobs", d.Algorithm, d.Hex)
	}
	if err := os.Rename(paths[1], paths[0]); err != nil {
		t.Fatal(err)
	}
	_, _, err = streamTree(t, packDir(t, dir))
	if !errs.Is(err, errs.Invalid) || !strings.Contains(err.Error(), "layer 1 of 2") || !strings.Contains(err.Error(), "damaged") {
		t.Errorf("swapped layer: %v", err)
	}
	if err := os.Remove(paths[0]); err != nil {
		t.Fatal(err)
	}
	_, _, err = streamTree(t, packDir(t, dir))
	if !errs.Is(err, errs.Invalid) || !strings.Contains(err.Error(), "lacks") {
		t.Errorf("missing layer: %v", err)
	}
}

func TestTree_Reference(t *testing.T) {
	srv := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(srv.Close)
	host := strings.TrimPrefix(srv.URL, "http://")
	push := func(s string, img v1.Image, idx v1.ImageIndex) {
		t.Helper()
		ref, err := name.ParseReference(host + s)
		if err == nil && img != nil {
			err = remote.Write(ref, img)
		} else if err == nil {
			err = remote.WriteIndex(ref, idx)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	other := twoLayers(t, v1.Platform{OS: "linux", Architecture: "other"})
	push("/one:v1", twoLayers(t, here()), nil)
	push("/many:v1", nil, index(map[string]v1.Image{here().String(): twoLayers(t, here()), "linux/other": other}))
	push("/other:v1", other, nil)
	push("/others:v1", nil, index(map[string]v1.Image{"linux/other": other}))
	for _, c := range []struct {
		ref  string
		kind errs.Kind // "": it works
	}{
		{host + "/one:v1", ""},
		{host + "/many:v1", ""},
		{host + "/other:v1", errs.Invalid},
		{host + "/others:v1", errs.Invalid},
		{host + "/none:v1", errs.NotFound},
		{"127.0.0.1:1/none:v1", errs.Unavailable},
		{"UPPER//", errs.Invalid},
	} {
		t.Run(c.ref, func(t *testing.T) {
			tr, source, err := treeOf(t, Request{Kind: api.ImageOCI, Source: c.ref}, nil)
			if c.kind != "" {
				if errs.KindOf(err) != c.kind || errs.HintOf(err) == "" {
					t.Errorf("got %v (%s, hint %q), want %s and a hint", err, errs.KindOf(err), errs.HintOf(err), c.kind)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got, want := names(t, tr), strings.Join(wantTwoLayers, " "); got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
			if !strings.Contains(source, "@sha256:") {
				t.Errorf("source %q names no digest", source)
			}
		})
	}
}

// TestTree_SilentRegistry serves an image's description and half of a layer.
func TestTree_SilentRegistry(t *testing.T) {
	inner := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	release := make(chan struct{})
	var cut atomic.Bool
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if cut.Load() && r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/blobs/") {
			rec := httptest.NewRecorder()
			inner.ServeHTTP(rec, r)
			if body := rec.Body.Bytes(); body[0] != '{' {
				w.Header().Set("Content-Length", strconv.Itoa(len(body)))
				_, _ = w.Write(body[:len(body)/2])
				_ = http.NewResponseController(w).Flush()
				<-release
				return
			}
			_, _ = w.Write(rec.Body.Bytes())
			return
		}
		inner.ServeHTTP(w, r)
	}))
	t.Cleanup(srv.Close)
	t.Cleanup(func() { close(release) })
	ref, err := name.ParseReference(strings.TrimPrefix(srv.URL, "http://") + "/a:b")
	if err == nil {
		err = remote.Write(ref, makeImage(t, here(), tarOfFile(t, "noise", string(noise(100_000)))))
	}
	if err != nil {
		t.Fatal(err)
	}
	cut.Store(true)
	work, err := openWork(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = work.close() })
	j := &job{cfg: Config{Platform: here()}, req: Request{Kind: api.ImageOCI, Source: ref.String(), Disk: testDisk}, work: work, report: newReporter(nil), stall: 100 * time.Millisecond}
	_, _, err = j.tree(context.Background(), nil)
	if !errs.Is(err, errs.Unavailable) || !strings.Contains(err.Error(), "sent nothing") {
		t.Errorf("got %v, want unavailable", err)
	}
}
