//go:build !failpoint

package failpoint

import (
	"os"
	"path/filepath"
	"testing"
)

func TestReach_OrdinaryBuildsNeverStop(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("BILLET_FAILPOINTS", dir)
	armed := filepath.Join(dir, string(FlushSealed))
	if err := os.WriteFile(armed, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	Reach(FlushSealed)
	if _, err := os.Stat(armed + ".hit"); err == nil {
		t.Error("an ordinary build obeyed a failpoint")
	}
}
