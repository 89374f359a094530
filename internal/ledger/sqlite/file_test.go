package sqlite_test

import (
	"bytes"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/ledger"
	"github.com/billethq/billet/internal/ledger/sqlite"
	"github.com/billethq/billet/internal/model"
)

// pageSize is SQLite's default.
const pageSize = 4096

func TestOpen_MakesAPrivateFile(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a?b#c%41 é")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "l?e#d%41.db")
	open(t, path)
	names := map[string]fs.FileMode{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}
		names[e.Name()] = info.Mode()
	}
	for _, suffix := range []string{"", "-wal", "-shm"} {
		if mode, ok := names["l?e#d%41.db"+suffix]; !ok || mode != 0o600 {
			t.Errorf("file %q has mode %v (present %t), want 0600", suffix, mode, ok)
		}
	}
	if len(names) != 3 {
		t.Errorf("files left in the directory: %v", names)
	}
}

// fill makes a ledger of many pages and closes it.
func fill(t *testing.T, path string) {
	t.Helper()
	l := open(t, path)
	m := ledger.Meta{Now: time.Unix(1, 0)}
	for i := range 300 {
		w := model.Workspace{ID: model.WorkspaceID(fmt.Sprint("id", i)), Name: fmt.Sprint("name", i), Base: "base", Desired: model.DesiredStopped}
		if _, _, err := l.CreateWorkspace(t.Context(), m, w, ledger.Idempotency{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// refused checks that Open refuses what is at path, says what to do, and leaves
// every file that was there as it was.
func refused(t *testing.T, path string, kind errs.Kind, words string) {
	t.Helper()
	before := contents(t, path)
	l, err := sqlite.Open(path, slog.New(slog.DiscardHandler))
	if err == nil {
		_ = l.Close()
		t.Fatal("opened")
	}
	if errs.KindOf(err) != kind {
		t.Errorf("got %v (kind %q), want kind %q", err, errs.KindOf(err), kind)
	}
	if hint := errs.HintOf(err); !strings.Contains(hint, words) {
		t.Errorf("error %v has hint %q, want %q in it", err, hint, words)
	}
	after := contents(t, path)
	for name, was := range before {
		if !bytes.Equal(was, after[name]) {
			t.Errorf("%s was changed", name)
		}
	}
}

func contents(t *testing.T, path string) map[string][]byte {
	t.Helper()
	out := map[string][]byte{}
	for _, name := range []string{path, path + "-wal"} {
		if b, err := os.ReadFile(name); err == nil {
			out[name] = b
		}
	}
	return out
}

func TestOpen_RefusesDamage(t *testing.T) {
	whole := filepath.Join(t.TempDir(), "whole.db")
	fill(t, whole)
	good, err := os.ReadFile(whole)
	if err != nil {
		t.Fatal(err)
	}
	garbage := make([]byte, len(good))
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	noise := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8), byte(seed >> 16)})
	_, _ = noise.Read(garbage)
	other := bytes.Clone(good)
	copy(other[68:], "abcd")
	cases := map[string][]byte{
		"empty":               {},
		"short":               good[:50],
		"garbage":             garbage,
		"text":                []byte(strings.Repeat("this is no ledger\n", 100)),
		"another application": other,
		"header only":         good[:100],
		"one page":            good[:pageSize],
		"half":                good[:len(good)/pageSize/2*pageSize],
		"half a page less":    good[:len(good)-pageSize/2],
	}
	for at := 0; at < len(good); at += pageSize {
		flipped := bytes.Clone(good)
		from := at
		if at == 0 {
			from = 100 // the header is a case of its own
		}
		copy(flipped[from:at+pageSize], garbage[from:])
		cases[fmt.Sprintf("page %d", at/pageSize+1)] = flipped
	}
	for name, content := range cases {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "ledger.db")
			if err := os.WriteFile(path, content, 0o600); err != nil {
				t.Fatal(err)
			}
			refused(t, path, errs.Internal, "aside")
		})
	}
	open(t, whole) // and what is not damaged opens
}

// TestOpen_DamageKeepsTheLog has a damaged file whose log is not yet in it: the
// log holds the newest commits and must be there when the file is put back.
func TestOpen_DamageKeepsTheLog(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "ledger.db")
	fill(t, path)
	l := open(t, path)
	w := model.Workspace{ID: "newest", Name: "newest", Base: "base", Desired: model.DesiredStopped}
	if _, _, err := l.CreateWorkspace(t.Context(), ledger.Meta{Now: time.Unix(1, 0)}, w, ledger.Idempotency{}); err != nil {
		t.Fatal(err)
	}
	copied := filepath.Join(dir, "copy.db")
	for from, b := range contents(t, path) {
		if err := os.WriteFile(copied+strings.TrimPrefix(from, path), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	good, err := os.ReadFile(copied)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(copied + "-wal"); err != nil || info.Size() == 0 {
		t.Fatalf("no log to lose: %v, %v", info, err)
	}
	if err := os.WriteFile(copied, good[:len(good)/2/pageSize*pageSize], 0o600); err != nil {
		t.Fatal(err)
	}
	refused(t, copied, errs.Internal, "aside")
	if err := os.WriteFile(copied, good, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := open(t, copied).Workspace(t.Context(), "", "newest"); err != nil {
		t.Errorf("after the file was put back: %v", err)
	}
}

func TestOpen_RefusesWhatIsNotThere(t *testing.T) {
	dir := t.TempDir()
	refused(t, filepath.Join(dir, "none", "ledger.db"), errs.NotFound, "directory")
	orphan := filepath.Join(dir, "ledger.db")
	if err := os.WriteFile(orphan+"-wal", []byte("log"), 0o600); err != nil {
		t.Fatal(err)
	}
	refused(t, orphan, errs.Internal, "put the ledger back")
	refused(t, dir, errs.Internal, "aside") // a directory is no ledger
}
