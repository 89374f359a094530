package dir_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/billethq/billet/internal/blob"
	"github.com/billethq/billet/internal/blob/blobtest"
	"github.com/billethq/billet/internal/blob/dir"
	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/testenv"
)

func open(t *testing.T, name string) *dir.Bucket {
	t.Helper()
	b, err := dir.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b
}

func TestBucket_Conforms(t *testing.T) {
	blobtest.Run(t, func(t *testing.T) func(t *testing.T) blob.Bucket {
		name := filepath.Join(t.TempDir(), "made", "on", "demand")
		return func(t *testing.T) blob.Bucket { return open(t, name) }
	})
}

// A file system that is not mounted leaves an empty directory, or none.
func TestOpen_RefusesWhatIsNoStore(t *testing.T) {
	for name, missing := range map[string]bool{"gone": true, "empty": false} {
		path := filepath.Join(t.TempDir(), "objects")
		if !missing {
			if err := os.Mkdir(path, 0o700); err != nil {
				t.Fatal(err)
			}
		}
		_, err := dir.Open(path)
		if !errors.Is(err, dir.ErrNone) || !errs.Is(err, errs.Unavailable) || !strings.Contains(err.Error(), path) || !strings.Contains(errs.HintOf(err), "store.dir") {
			t.Errorf("%s: error = %v (kind %q, hint %q), want ErrNone of kind unavailable with the path and a hint", name, err, errs.KindOf(err), errs.HintOf(err))
		}
		left, err := os.ReadDir(path)
		if missing != errors.Is(err, os.ErrNotExist) || len(left) > 0 {
			t.Errorf("%s: after it there is %v, %v", name, left, err)
		}
		open(t, path)
		b, err := dir.Open(path)
		if err != nil {
			t.Fatalf("%s: open what was made: %v", name, err)
		}
		_ = b.Close()
	}
}

func TestOpen_SweepsDeadWriters(t *testing.T) {
	name := t.TempDir()
	open(t, name)
	old, young := filepath.Join(name, "~tmp", "old"), filepath.Join(name, "~tmp", "young")
	for _, f := range []string{old, young} {
		if err := os.WriteFile(f, []byte("half"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	then := time.Now().Add(-2 * time.Hour)
	if err := os.Chtimes(old, then, then); err != nil {
		t.Fatal(err)
	}
	b := open(t, name)
	if _, err := os.Stat(old); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the dead writer's file is still there: %v", err)
	}
	if _, err := os.Stat(young); err != nil {
		t.Errorf("the file of a writer that may live is gone: %v", err)
	}
	if err := b.List(t.Context(), "", func(i blob.Info) error { t.Errorf("listed %s", i.Key); return nil }); err != nil {
		t.Error(err)
	}
}

func TestPut_LeavesNoTemporaryFile(t *testing.T) {
	name := t.TempDir()
	b := open(t, name)
	_ = b.Put(t.Context(), "a/b", []byte("x"))
	_ = b.PutIfAbsent(t.Context(), "a/c", []byte("x"))
	_ = b.PutIfAbsent(t.Context(), "a/c", []byte("x"))
	left, err := os.ReadDir(filepath.Join(name, "~tmp"))
	if err != nil || len(left) != 0 {
		t.Errorf("left = %v, %v; want none", left, err)
	}
}

func TestPut_RefusesAKeyThatIsADirectory(t *testing.T) {
	b := open(t, t.TempDir())
	if err := b.Put(t.Context(), "a/b", nil); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"a", "a/b/c", "a/b/c/d", strings.Repeat("s", 256)} {
		if err := b.Put(t.Context(), key, nil); !errs.Is(err, errs.Invalid) {
			t.Errorf("put %.20s: error = %v (kind %q), want kind invalid", key, err, errs.KindOf(err))
		}
	}
}

// A link inside the store, whoever made it, must not lead a write outside.
func TestBucket_StaysBelowItsRoot(t *testing.T) {
	outside, name := t.TempDir(), t.TempDir()
	b := open(t, name)
	if err := os.Symlink(outside, filepath.Join(name, "blk")); err != nil {
		t.Fatal(err)
	}
	if err := b.Put(t.Context(), "blk/x", []byte("x")); err == nil {
		t.Error("a write through a link that leads outside succeeded")
	}
	if left, _ := os.ReadDir(outside); len(left) != 0 {
		t.Errorf("outside has %v", left)
	}
}

func TestPut_FullDiskIsExhausted(t *testing.T) {
	name := testenv.TmpfsDir(t, "1m")
	b := open(t, name)
	if err := b.Put(t.Context(), "small", []byte("fits")); err != nil {
		t.Fatal(err)
	}
	err := b.Put(t.Context(), "large", make([]byte, 2<<20))
	if !errs.Is(err, errs.Exhausted) || errs.HintOf(err) == "" {
		t.Errorf("put on a full disk: error = %v (kind %q), want kind exhausted with a hint", err, errs.KindOf(err))
	}
	if _, err := b.Get(t.Context(), "large"); !errs.Is(err, errs.NotFound) {
		t.Errorf("get after it: error = %v, want not_found", err)
	}
	if err := b.Put(t.Context(), "after", make([]byte, 512<<10)); err != nil {
		t.Errorf("the refused object still takes room: %v", err)
	}
}
