package userfs_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/guest/userfs"
	"github.com/billethq/billet/internal/testenv"
)

func TestRemove_FollowsNoLinkAndStopsAtWhatIsForbidden(t *testing.T) {
	w := newWorld(t)
	kept := w.put("kept/file", "kept", 0o644)
	w.must(w.do(func(fs *userfs.FS) error {
		for _, name := range []string{"tree/a/b/c", "tree/d"} {
			if _, err := fs.Write(w.path(name), nil, strings.NewReader("x")); err != nil {
				return err
			}
		}
		return nil
	}))
	w.must(os.Symlink(filepath.Dir(kept), w.path("tree/link")))
	if err := w.do(func(fs *userfs.FS) error { return fs.Remove(w.path("tree")) }); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(w.path("tree")); !os.IsNotExist(err) {
		t.Errorf("the tree is still there: %v", err)
	}
	if got := w.read("kept/file"); got != "kept" {
		t.Errorf("behind the link: %q", got)
	}
	if err := w.do(func(fs *userfs.FS) error { return fs.Remove(w.path("tree")) }); err != nil {
		t.Errorf("what is not there: %v", err)
	}
	if err := w.do(func(fs *userfs.FS) error { return fs.Remove(kept) }); !errs.Is(err, errs.Denied) {
		t.Errorf("root's file in root's directory: %v, want denied", err)
	}
	if err := w.do(func(fs *userfs.FS) error { return fs.Remove("/") }); !errs.Is(err, errs.Invalid) {
		t.Errorf("the root: %v, want invalid", err)
	}
}

func TestRemove_BoundsDepth(t *testing.T) {
	w := newWorld(t)
	deep := w.path("deep" + strings.Repeat("/d", userfs.MaxDepth+2))
	w.must(w.do(func(fs *userfs.FS) error { _, err := fs.MakeDir(deep); return err }))
	if err := w.do(func(fs *userfs.FS) error { return fs.Remove(w.path("deep")) }); !errs.Is(err, errs.Exhausted) {
		t.Errorf("%v, want exhausted", err)
	}
	if _, err := os.Stat(deep); err != nil {
		t.Errorf("what was refused is damaged: %v", err)
	}
}

// A guest's /tmp is another file system than its disk.
func TestMove_BetweenFileSystems(t *testing.T) {
	w := newWorld(t)
	other := testenv.TmpfsDir(t, "16m")
	testenv.Reachable(t, other)
	w.must(os.Chmod(other, 0o777))
	src, old := filepath.Join(other, "src"), time.Unix(1_000_000_000, 0)
	w.must(w.do(func(fs *userfs.FS) error {
		if _, err := fs.Write(filepath.Join(src, "sub/file"), map[string]string{"k": "v"}, strings.NewReader("content")); err != nil {
			return err
		}
		_, err := fs.Write(filepath.Join(src, "empty"), nil, strings.NewReader(""))
		return err
	}))
	w.must(os.Symlink("sub/file", filepath.Join(src, "link")))
	w.must(os.Chmod(filepath.Join(src, "sub/file"), 0o751))
	w.must(os.Chtimes(filepath.Join(src, "sub/file"), old, old))
	var e userfs.Entry
	w.must(w.do(func(fs *userfs.FS) (err error) {
		e, err = fs.Move(src, w.path("made/dst"))
		return err
	}))
	if e.Kind != userfs.KindDir || e.Path != w.path("made/dst") || e.Name != "dst" {
		t.Errorf("entry %+v", e)
	}
	var got userfs.Entry
	w.must(w.do(func(fs *userfs.FS) (err error) {
		got, err = fs.Stat(w.path("made/dst/sub/file"))
		return err
	}))
	want := userfs.Entry{
		Name: "file", Path: w.path("made/dst/sub/file"), Kind: userfs.KindFile, Size: 7, Mode: 0o751,
		Permissions: "-rwxr-x--x", Owner: "user", Group: "user", Modified: old, Metadata: map[string]string{"k": "v"},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("the file (-want +got):\n%s", d)
	}
	if text, err := os.Readlink(w.path("made/dst/link")); text != "sub/file" {
		t.Errorf("the link: %q, %v", text, err)
	}
	if _, err := os.Lstat(src); !os.IsNotExist(err) {
		t.Errorf("the source is still there: %v", err)
	}
	// What cannot be copied leaves nothing at the destination.
	w.must(w.do(func(fs *userfs.FS) error { _, err := fs.MakeDir(src); return err }))
	secret := filepath.Join(src, "secret")
	w.must(os.WriteFile(secret, []byte("x"), 0o600))
	if err := w.do(func(fs *userfs.FS) error { _, err := fs.Move(src, w.path("half")); return err }); !errs.Is(err, errs.Denied) {
		t.Errorf("a tree with a forbidden file: %v, want denied", err)
	}
	left, err := os.ReadDir(w.dir)
	w.must(err)
	if len(left) != 1 {
		t.Errorf("left behind: %v", left)
	}
	if _, err := os.Stat(secret); err != nil {
		t.Errorf("the source is damaged: %v", err)
	}
}

func TestCompose_IsAllOrNothing(t *testing.T) {
	w := newWorld(t)
	compose := func(dest string, sources ...string) error {
		return w.do(func(fs *userfs.FS) error { _, err := fs.Compose(dest, sources); return err })
	}
	w.must(w.write(w.path("1"), "one "))
	w.must(w.write(w.path("2"), "two"))
	w.must(w.write(w.path("dest"), "old"))
	if err := compose(w.path("dest"), w.path("1"), w.path("missing")); !errs.Is(err, errs.NotFound) {
		t.Errorf("a missing source: %v", err)
	}
	if err := compose(w.path("dest"), w.path("1"), w.path("dest")); !errs.Is(err, errs.Invalid) {
		t.Errorf("the destination as a source: %v", err)
	}
	if w.read("dest") != "old" || w.read("1") != "one " {
		t.Errorf("a refused composition changed something: %q, %q", w.read("dest"), w.read("1"))
	}
	w.must(compose(w.path("dest"), w.path("1"), w.path("2")))
	if got := w.read("dest"); got != "one two" {
		t.Errorf("composed %q", got)
	}
	left, err := os.ReadDir(w.dir)
	w.must(err)
	if len(left) != 1 {
		t.Errorf("left behind: %v", left)
	}
}
