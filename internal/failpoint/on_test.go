//go:build failpoint

package failpoint

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

func TestReach_WaitsWhileArmed(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("BILLET_FAILPOINTS", dir)
	armed := filepath.Join(dir, string(FlushSealed))
	if err := os.WriteFile(armed, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	Reach(FlushRoot) // not armed

	passed := make(chan struct{})
	go func() { Reach(FlushSealed); close(passed) }()
	pid := awaitHit(t, armed+".hit")
	if pid != strconv.Itoa(os.Getpid()) {
		t.Errorf("the hit says process %q, want %d", pid, os.Getpid())
	}
	select {
	case <-passed:
		t.Error("it went on while the step was armed")
	default:
	}
	if err := os.Remove(armed); err != nil {
		t.Fatal(err)
	}
	<-passed
}

// awaitHit returns the process id in a hit, which appears with its content.
func awaitHit(t *testing.T, file string) string {
	t.Helper()
	deadline := time.After(time.Minute)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-deadline:
			t.Fatal("no hit")
		case <-tick.C:
			if text, err := os.ReadFile(file); err == nil {
				return string(text)
			}
		}
	}
}

func TestReach_WithoutTheVariable(t *testing.T) {
	t.Setenv("BILLET_FAILPOINTS", "")
	for _, s := range Steps() {
		Reach(s)
	}
}
