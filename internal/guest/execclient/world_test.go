package execclient_test

import (
	"bytes"
	"context"

	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/billethq/billet/internal/guest/agentlink"
	"github.com/billethq/billet/internal/guest/execclient"
	"github.com/billethq/billet/internal/guest/guestpath"
	"github.com/billethq/billet/internal/testenv"
)

// patience bounds every wait of these tests; none takes it when all is well.
const patience = 30 * time.Second

// world is an agent that runs as a process of this host, and its link.
type world struct {
	t    *testing.T
	dir  string
	link *agentlink.Link
	cmd  *exec.Cmd
	logs *bytes.Buffer // of the agent; read it after the agent has ended
}

// newWorld starts an agent. At the end of the test it must end by SIGTERM, with
// code 0, and leave no child.
func newWorld(t *testing.T) *world {
	t.Helper()
	testenv.NeedRoot(t)
	w := &world{t: t, dir: t.TempDir(), logs: &bytes.Buffer{}}
	w.listen()
	w.cmd = exec.Command(testenv.NeedGuest(t), "serve", filepath.Join(w.dir, guestpath.AgentSocket))
	w.cmd.Stderr = w.logs
	w.cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	if err := w.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		w.stop()
		_ = w.link.Close()
		if t.Failed() {
			t.Logf("the agent's log:\n%s", w.logs)
		}
	})
	return w
}

func (w *world) listen() {
	w.t.Helper()
	link, err := agentlink.Listen(w.dir, slog.New(slog.DiscardHandler))
	if err != nil {
		w.t.Fatal(err)
	}
	w.link = link
}

// stop ends the agent and checks how it ended. A second call does nothing.
func (w *world) stop() {
	w.t.Helper()
	if w.cmd.ProcessState != nil {
		return
	}
	_ = w.cmd.Process.Signal(syscall.SIGTERM)
	force := time.AfterFunc(patience, func() { _ = w.cmd.Process.Kill() })
	defer force.Stop()
	if err := w.cmd.Wait(); err != nil {
		w.t.Errorf("the agent ended with %v, want code 0", err)
	}
}

func (w *world) dial(ctx context.Context) (net.Conn, error) { return w.link.Open(ctx) }

func (w *world) client() *execclient.Client { return newClient(w.t, w.dial) }

func newClient(t *testing.T, dial func(context.Context) (net.Conn, error)) *execclient.Client {
	t.Helper()
	c, err := execclient.New(execclient.Config{Dial: dial, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func patient(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// sh runs a shell script as root and returns its output and code.
func (w *world) sh(script string) (out string, code int) {
	w.t.Helper()
	var stdout, stderr bytes.Buffer
	code, err := w.client().Run(patient(w.t), execclient.Command{
		Args: []string{"/bin/sh", "-c", script}, User: "root", Cwd: "/", Stdout: &stdout, Stderr: &stderr,
	})
	if err != nil {
		w.t.Fatalf("run %q: %v", script, err)
	}
	if stderr.Len() > 0 {
		w.t.Logf("stderr of %q: %s", script, &stderr)
	}
	return stdout.String(), code
}

// waitFor reads r until it has seen want.
func waitFor(t *testing.T, r io.Reader, want string) string {
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
