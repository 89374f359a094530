// Package guesttest runs a guest agent as a process of the test's own host.
package guesttest

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/billethq/billet/internal/guest/agentlink"
	"github.com/billethq/billet/internal/guest/execclient"
	"github.com/billethq/billet/internal/guest/guestpath"
	"github.com/billethq/billet/internal/testenv"
)

// Patience bounds every wait of these tests; none takes it when all is well.
const Patience = time.Minute

// Agent is an agent and the node's link to it.
type Agent struct {
	t    *testing.T
	dir  string
	cmd  *exec.Cmd
	logs bytes.Buffer // read it after the agent has ended

	mu   sync.Mutex // clients dial while a test restarts the node
	link *agentlink.Link
}

// New starts an agent. At the end of the test it must end by SIGTERM, with
// code 0.
func New(t *testing.T) *Agent {
	t.Helper()
	testenv.NeedRoot(t)
	a := &Agent{t: t, dir: t.TempDir()}
	a.Listen()
	a.start()
	t.Cleanup(func() {
		a.Stop()
		_ = a.Link().Close()
		if t.Failed() {
			t.Logf("the agent's log:\n%s", &a.logs)
		}
	})
	return a
}

func (a *Agent) start() {
	a.t.Helper()
	a.cmd = exec.Command(testenv.NeedGuest(a.t), "serve", filepath.Join(a.dir, guestpath.AgentSocket))
	a.cmd.Stderr = &a.logs
	a.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // when the test's time is up
	if err := a.cmd.Start(); err != nil {
		a.t.Fatal(err)
	}
}

// Restart kills the agent and starts another, as when a guest is started again.
// What the first ran goes on, since it is no PID 1 here.
func (a *Agent) Restart() {
	a.t.Helper()
	_ = a.cmd.Process.Kill()
	_ = a.cmd.Wait()
	a.start()
}

// Listen makes a new link, as a node that starts.
func (a *Agent) Listen() {
	a.t.Helper()
	link, err := agentlink.Listen(a.dir, Discard())
	if err != nil {
		a.t.Fatal(err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.link = link
}

// Link is the newest link.
func (a *Agent) Link() *agentlink.Link {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.link
}

// Stop ends the agent and checks how it ended. A second call does nothing.
func (a *Agent) Stop() {
	a.t.Helper()
	if a.cmd.ProcessState != nil {
		return
	}
	_ = a.cmd.Process.Signal(syscall.SIGTERM)
	force := time.AfterFunc(Patience, func() { _ = a.cmd.Process.Kill() })
	defer force.Stop()
	if err := a.cmd.Wait(); err != nil {
		a.t.Errorf("the agent ended with %v, want code 0", err)
	}
}

// PID is the agent's process.
func (a *Agent) PID() int { return a.cmd.Process.Pid }

// Dial opens a stream to the agent.
func (a *Agent) Dial(ctx context.Context) (net.Conn, error) { return a.Link().Open(ctx) }

// Client is a client of the agent.
func (a *Agent) Client() *execclient.Client { return Client(a.t, a.Dial) }

// Client is a client that dials with dial.
func Client(t *testing.T, dial func(context.Context) (net.Conn, error)) *execclient.Client {
	t.Helper()
	c, err := execclient.New(execclient.Config{Dial: dial, Log: Discard()})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Sh runs a shell script as root and returns its output. It must end with 0.
func (a *Agent) Sh(script string) string {
	a.t.Helper()
	var stdout, stderr bytes.Buffer
	code, err := a.Client().Run(Context(a.t), execclient.Command{
		Args: []string{"/bin/sh", "-c", script}, User: "root", Cwd: "/", Stdout: &stdout, Stderr: &stderr,
	})
	if err != nil || code != 0 {
		a.t.Fatalf("run %q: code %d, %v\n%s", script, code, err, &stderr)
	}
	return stdout.String()
}

// Context ends with the test, or with its patience.
func Context(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	t.Cleanup(cancel)
	return ctx
}

// Discard is a logger that says nothing.
func Discard() *slog.Logger { return slog.New(slog.DiscardHandler) }

// WaitFor reads r until it has seen want, and returns what it read.
func WaitFor(t *testing.T, r io.Reader, want string) string {
	t.Helper()
	var got strings.Builder
	buf := make([]byte, 4096)
	for !strings.Contains(got.String(), want) {
		n, err := r.Read(buf)
		got.Write(buf[:n])
		if err != nil {
			t.Fatalf("waiting for %q: %v after %q", want, err, got.String())
		}
	}
	return got.String()
}
