//go:build failpoint

package faults

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/billethq/billet/internal/config"
)

// patience bounds every wait: only a broken build meets it.
const patience = 30 * time.Second

// pollEvery is the pause between two looks at what tells nobody.
const pollEvery = 10 * time.Millisecond

// await looks until look is content, and fails the test with its last
// complaint when it never is.
func await(t *testing.T, what string, look func() error) {
	t.Helper()
	awaitFor(t, patience, what, look)
}

func awaitFor(t *testing.T, most time.Duration, what string, look func() error) {
	t.Helper()
	deadline := time.NewTimer(most)
	defer deadline.Stop()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		err := look()
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("%s: %v", what, err)
		}
	}
}

// role is one process of a deployment, which may be started again and again.
type role struct {
	w    *world
	name string // one of the roles
	id   string // name of its files
	cfg  config.Config
	fail string // where its failpoints are armed

	cmd   *exec.Cmd
	hold  io.Closer // its standard input: it ends with it
	ended chan struct{}
}

func (r *role) log() string { return filepath.Join(r.w.dir, r.id+".log") }

// start starts the process; it does not wait until it serves.
func (r *role) start() {
	r.w.t.Helper()
	raw, err := json.Marshal(r.cfg)
	if err != nil {
		r.w.t.Fatal(err)
	}
	file := filepath.Join(r.w.dir, r.id+".json")
	if err := os.WriteFile(file, raw, 0o600); err != nil {
		r.w.t.Fatal(err)
	}
	out, err := os.OpenFile(r.log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		r.w.t.Fatal(err)
	}
	defer out.Close()
	self, err := os.Executable()
	if err != nil {
		r.w.t.Fatal(err)
	}
	cmd := exec.Command(self, r.name, file)
	cmd.Env = append(os.Environ(), "PATH="+r.w.path, "BILLET_FAILPOINTS="+r.fail, r.w.mark())
	cmd.Stdout, cmd.Stderr = out, out
	if r.hold, err = cmd.StdinPipe(); err != nil {
		r.w.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		r.w.t.Fatal(err)
	}
	r.cmd, r.ended = cmd, make(chan struct{})
	go func() {
		defer close(r.ended)
		_ = cmd.Wait() // ProcessState tells
	}()
}

// signal sends sig, and waits for the end when there is to be one.
func (r *role) signal(sig syscall.Signal) {
	_ = r.cmd.Process.Signal(sig) // it may have ended
}

// kill ends the process as kill -9 does.
func (r *role) kill() {
	r.signal(syscall.SIGKILL)
	<-r.ended
}

// stop ends the process as a supervisor does, and wants it to end well.
func (r *role) stop() {
	r.w.t.Helper()
	if r.cmd == nil {
		return
	}
	r.signal(syscall.SIGTERM)
	if code := r.wait(); code != 0 && r.cmd.ProcessState.Exited() {
		r.w.t.Errorf("%s ended with code %d after SIGTERM", r.id, code)
	}
	r.cmd = nil
}

// wait returns the exit code, -1 after a signal.
func (r *role) wait() int {
	r.w.t.Helper()
	late := time.NewTimer(patience)
	defer late.Stop()
	select {
	case <-r.ended:
	case <-late.C:
		r.kill()
		r.w.t.Errorf("%s did not end", r.id)
	}
	return r.cmd.ProcessState.ExitCode()
}

// said returns what the role has written.
func (r *role) said() string {
	text, err := os.ReadFile(r.log())
	if err != nil {
		r.w.t.Error(err)
	}
	return string(text)
}

// tail returns the end of a file, for a test that has failed.
func tail(file string) string {
	const most = 60
	text, _ := os.ReadFile(file)
	lines := strings.Split(strings.TrimRight(string(text), "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-most):], "\n")
}

// running reports an error while the process has ended.
func (r *role) running() error {
	select {
	case <-r.ended:
		return fmt.Errorf("%s has ended: %s", r.id, r.cmd.ProcessState)
	default:
		return nil
	}
}

var errNotYet = errors.New("not yet")
