//go:build failpoint

package faults

import (
	"bytes"
	"context"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/model"
)

// damages are what a store does to an object.
func damages() map[string]func(body []byte) []byte {
	return map[string]func([]byte) []byte{
		"missing":   func([]byte) []byte { return nil },
		"truncated": func(b []byte) []byte { return b[:len(b)/2] },
		"flipped": func(b []byte) []byte {
			b = bytes.Clone(b)
			b[len(b)/2] ^= 1
			return b
		},
	}
}

// object is one file of the object store.
type object struct {
	path string
	body []byte
}

func (o object) damage(t *testing.T, how func([]byte) []byte) {
	t.Helper()
	if err := os.Remove(o.path); err != nil {
		t.Fatal(err)
	}
	if b := how(o.body); b != nil {
		o.put(t, b)
	}
}

func (o object) restore(t *testing.T) { o.put(t, o.body) }

func (o object) put(t *testing.T, body []byte) {
	t.Helper()
	if err := os.WriteFile(o.path, body, 0o600); err != nil {
		t.Fatal(err)
	}
}

// objects reads the store, by key.
func (w *world) objects() map[string]object {
	w.t.Helper()
	out := map[string]object{}
	root := w.node.cfg.Objects()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		body, err := os.ReadFile(path)
		key, _ := filepath.Rel(root, path)
		out[key] = object{path, body}
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return out
}

// added returns the largest object of a kind that is not in before.
func (w *world) added(kind string, before map[string]object) (key string, largest object) {
	w.t.Helper()
	for k, o := range w.objects() {
		if _, old := before[k]; !old && strings.HasPrefix(k, kind+"/") && len(o.body) > len(largest.body) {
			key, largest = k, o
		}
	}
	if key == "" {
		w.t.Fatalf("no new object of kind %s", kind)
	}
	return key, largest
}

// dropCache makes the host's cache empty, as another host's would be.
func (w *world) dropCache() {
	w.t.Helper()
	cache := filepath.Join(w.node.cfg.NodeDir(), "cache")
	// Moved away first: another guest's volume may be putting blocks into it.
	away := filepath.Join(w.t.TempDir(), "cache")
	if err := os.Rename(cache, away); err != nil {
		w.t.Fatal(err)
	}
	if err := os.RemoveAll(away); err != nil {
		w.t.Fatal(err)
	}
}

// TestCorrupt_Block: a guest that reads a damaged block gets an input/output
// error there, never other bytes; the fault names block and object; nobody
// else is concerned, and an object that is put back heals.
// invariant 8
func TestCorrupt_Block(t *testing.T) {
	t.Parallel()
	w := deploy(t, options{})
	w.watch.allow(2)
	w.create("two")
	w.stop("two")
	w.create("one")
	w.write("one", "a")
	before := w.objects()
	hash := w.sh("one", "dd if=/dev/urandom of=/root/big bs=1M count=4 conv=fsync 2>/dev/null && sha256sum /root/big")
	w.stop("one")
	key, block := w.added("blk", before)
	w.startAgain("two")
	for name, how := range damages() {
		block.damage(t, how)
		w.dropCache()
		w.startAgain("one")
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		s, err := w.run(ctx, "one", "sha256sum /root/big", nil, nil)
		cancel()
		if err != nil || s.code == 0 || s.out.Len() > 0 || !strings.Contains(s.err.String(), "error") {
			t.Errorf("%s: read gave code %d, %v, output %q, %q; want an input/output error", name, s.code, err, s.out.String(), s.err.String())
		}
		await(t, name+": the fault is told", func() error {
			ws, err := w.client.Workspace(t.Context(), "one")
			if err == nil && (!strings.Contains(ws.Detail, "block ") || !strings.Contains(ws.Detail, key)) {
				err = errNotYet
			}
			return err
		})
		w.holds("one") // what lies elsewhere can be read
		w.sh("two", "touch /root/works && sync")
		block.restore(t)
		if got := w.sh("one", "sha256sum /root/big"); got != hash {
			t.Errorf("%s: after the object was put back: got %s, want %s", name, got, hash)
		}
		w.stop("one")
	}
	w.close()
}

// TestCorrupt_Mount: a file system whose own blocks are damaged is not mounted,
// and the reason is the store's, not the file system's.
// invariant 8
func TestCorrupt_Mount(t *testing.T) {
	t.Parallel()
	w := deploy(t, options{})
	before := w.objects()
	w.create("one")
	w.write("one", "a")
	w.stop("one")
	damaged := map[string]object{} // superblock, journal and file: whatever was written
	for key, o := range w.objects() {
		if _, old := before[key]; !old && strings.HasPrefix(key, "blk/") {
			damaged[key] = o
			o.damage(t, damages()["flipped"])
		}
	}
	w.dropCache()
	if _, err := w.client.StartWorkspace(t.Context(), "one", api.StartWorkspaceRequest{}); err != nil {
		t.Fatal(err)
	}
	ws := w.untilFailed("one", model.CauseVolumeCorrupt)
	if !slices.ContainsFunc(slices.Collect(maps.Keys(damaged)), func(key string) bool { return strings.Contains(ws.Detail, key) }) || !strings.Contains(ws.Detail, "block ") {
		t.Errorf("detail %q names no damaged block", ws.Detail)
	}
	for _, o := range damaged {
		o.restore(t)
	}
	w.startAgain("one")
	w.holds("one")
	w.close()
}

// TestCorrupt_Root: a workspace whose root or leaf is damaged is not mounted at
// all, and says why.
// invariant 8
func TestCorrupt_Root(t *testing.T) {
	t.Parallel()
	w := deploy(t, options{})
	before := w.objects()
	w.create("one")
	w.write("one", "a")
	ws := w.stop("one")
	for _, kind := range []string{"leaf", "root"} {
		key, o := w.added(kind, before)
		for name, how := range damages() {
			o.damage(t, how)
			w.dropCache()
			if _, err := w.client.StartWorkspace(t.Context(), "one", api.StartWorkspaceRequest{}); err != nil {
				t.Fatal(err)
			}
			got := w.untilFailed("one", model.CauseVolumeCorrupt)
			if !strings.Contains(got.Detail, key) {
				t.Errorf("%s %s: detail %q does not name %s", name, kind, got.Detail, key)
			}
			if got.Head != ws.Head {
				t.Errorf("%s %s: the head is %s, want %s as before", name, kind, got.Head, ws.Head)
			}
			o.restore(t)
			w.startAgain("one")
			w.holds("one")
			ws = w.stop("one")
		}
	}
	w.close()
}
