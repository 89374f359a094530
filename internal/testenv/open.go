package testenv

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// OpenDir is a temporary directory that every user can reach and only root can
// change.
func OpenDir(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	Reachable(t, dir)
	return dir
}

// Reachable lets every user reach a directory below the temporary one. That one
// is not the test's: it is looked at, and never changed.
func Reachable(t testing.TB, dir string) {
	t.Helper()
	top := filepath.Clean(os.TempDir())
	if !strings.HasPrefix(dir, top+"/") {
		t.Fatalf("testenv: %s is not below %s", dir, top)
	}
	for ; dir != top; dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for ; ; dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm()&0o001 == 0 {
			t.Fatalf("testenv: other users cannot reach %s: set TMPDIR to a directory that they can, such as /tmp", dir)
		}
		if dir == "/" {
			return
		}
	}
}
