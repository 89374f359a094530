package users

import (
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// A file is read once when its last change is long ago, and each time when it
// may be changed again without a trace.
func TestKept_ReadsASettledFileOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "passwd")
	if err := os.WriteFile(path, []byte("root:x:0:0::/:/bin/sh\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	reads := 0
	parse := func(r io.Reader) ([]User, error) {
		reads++
		return ParsePasswd(r)
	}
	var k kept[User]
	read := func(now time.Time) {
		t.Helper()
		if all, err := k.read(path, now, parse); err != nil || len(all) != 1 {
			t.Fatalf("%d accounts, %v; want one", len(all), err)
		}
	}
	now := time.Now()
	read(now)
	read(now)
	if reads != 2 {
		t.Errorf("a file that has just changed was read %d times, want each of 2", reads)
	}
	read(now.Add(time.Minute))
	read(now.Add(time.Minute))
	if reads != 3 {
		t.Errorf("a settled file was read %d times more, want once", reads-2)
	}
}
