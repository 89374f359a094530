package execclient_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/billethq/billet/internal/guest/execclient"
	"github.com/billethq/billet/internal/guest/guesttest"
	"github.com/billethq/billet/internal/testenv"
)

// closedAfter is a pipe whose reader goes away after the first line.
type closedAfter struct{ got strings.Builder }

func (c *closedAfter) Write(p []byte) (int, error) {
	if strings.Contains(c.got.String(), "\n") {
		return 0, &pipeError{syscall.EPIPE}
	}
	return c.got.Write(p)
}

// pipeError wraps an error as the os package does.
type pipeError struct{ err error }

func (n *pipeError) Error() string { return "write |1: " + n.err.Error() }
func (n *pipeError) Unwrap() error { return n.err }

// full is a file whose disk has no room.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

// Output that cannot be written ends the command too, and the error is told.
// What the command says about it still arrives.
func TestRun_UnwritableOutputEndsTheCommandAndIsTold(t *testing.T) {
	a := guesttest.New(t)
	var said strings.Builder
	script := `trap 'echo "$$ told" >&2; exit 1' PIPE; while :; do echo x; sleep 0.01; done`
	code, err := a.Client().Run(guesttest.Context(t), execclient.Command{
		Args: []string{"sh", "-c", script}, User: "root", Stdout: full{}, Stderr: &said,
	})
	if code != -1 || !errors.Is(err, syscall.ENOSPC) || strings.Contains(err.Error(), "may still run") {
		t.Errorf("code %d, %v, want -1 and the writer's error", code, err)
	}
	pid, told, _ := strings.Cut(said.String(), " ")
	if told != "told\n" {
		t.Errorf("stderr is %q, want what the command said when it was told", &said)
	}
	if left := a.Sh("kill -0 " + pid + " 2>/dev/null && echo there || true"); left != "" {
		t.Errorf("process %s is left", pid)
	}
}

// A command whose output nobody takes ends, as one here would, and leaves no
// process behind; so does one that ignores the signal.
func TestRun_ClosedOutputEndsTheCommand(t *testing.T) {
	a := guesttest.New(t)
	told := t.TempDir() + "/told"
	for name, script := range map[string]string{
		"yes":     `echo $$; exec yes`,
		"told":    `trap "touch ` + told + `; exit 0" PIPE; echo $$; while :; do echo x; sleep 0.01; done`,
		"ignores": `trap '' PIPE; echo $$; while :; do echo x; sleep 0.01; done`,
	} {
		out := &closedAfter{}
		code, err := a.Client().Run(guesttest.Context(t), execclient.Command{Args: []string{"sh", "-c", script}, User: "root", Stdout: out})
		if code != 141 || err != nil {
			t.Errorf("%s: code %d, %v, want 141 and no error", name, code, err)
		}
		pid := strings.TrimSpace(strings.SplitN(out.got.String(), "\n", 2)[0])
		testenv.Await(t, guesttest.Patience, func() error {
			if left := a.Sh(fmt.Sprintf("kill -0 %s 2>/dev/null && echo there || true", pid)); left != "" {
				return fmt.Errorf("process %s is left", pid)
			}
			return nil
		})
	}
	if _, err := os.Stat(told); err != nil {
		t.Errorf("a command that waits for SIGPIPE has not had it: %v", err)
	}
}
