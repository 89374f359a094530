package agent

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/billethq/billet/internal/guest/process"
	"github.com/billethq/billet/internal/guest/reaper"
	"github.com/billethq/billet/internal/guest/resume"
)

func newAgent(t *testing.T, etc string) *Agent {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	r := reaper.New()
	p, err := process.New(process.Config{Reaper: r, Log: log, Etc: etc})
	if err != nil {
		t.Fatal(err)
	}
	res, err := resume.New(resume.Config{Reaper: r, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	a, err := New(Config{Socket: filepath.Join(t.TempDir(), "none"), Process: p, Resume: res, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// What warms the agent goes as far as a command would, starts nothing, and ends
// also when the agent has ended before it.
func TestWarm_GoesTheWayOfACommand(t *testing.T) {
	dir := t.TempDir()
	passwd := filepath.Join(dir, "passwd") // a pipe: whoever looks an account up reads it
	if err := unix.Mkfifo(passwd, 0o600); err != nil {
		t.Fatal(err)
	}
	a := newAgent(t, dir)
	warmed, asked := make(chan struct{}), make(chan error, 1)
	go func() { defer close(warmed); a.warm() }()
	go func() {
		f, err := os.OpenFile(passwd, os.O_WRONLY, 0) // waits for a reader
		asked <- err
		if err == nil {
			_, _ = f.WriteString("root:x:0:0::/:/bin/sh\n")
			_ = f.Close()
		}
	}()
	select {
	case err := <-asked:
		if err != nil {
			t.Fatal(err)
		}
	case <-warmed:
		if len(asked) == 0 { // else it has, and is through
			t.Fatal("no account has been looked up")
		}
	}
	<-warmed

	_ = a.server.Close()
	a.warm()
}
