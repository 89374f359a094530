package execclient_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/billethq/billet/internal/guest/execclient"
	"github.com/billethq/billet/internal/guest/guesttest"
)

// background runs cmd with its output in a pipe.
func background(t *testing.T, c *execclient.Client, cmd execclient.Command) (out *io.PipeReader, result <-chan int) {
	t.Helper()
	out, in := io.Pipe()
	cmd.Stdout = in
	ended := make(chan int, 1)
	go func() {
		code, err := c.Run(guesttest.Context(t), cmd)
		if err != nil {
			t.Errorf("run %q: %v", cmd.Args, err)
		}
		_ = in.Close()
		ended <- code
	}()
	return out, ended
}

func TestRun_SignalsReachTheGroup(t *testing.T) {
	a := guesttest.New(t)
	for _, c := range []struct {
		sig  syscall.Signal
		code int
	}{
		{syscall.SIGINT, 40}, {syscall.SIGHUP, 41}, {syscall.SIGUSR1, 42}, {syscall.SIGTERM, 43}, {syscall.SIGWINCH, 44}, {syscall.SIGKILL, 137},
	} {
		signals := make(chan syscall.Signal, 1)
		// The child of the shell holds it up unless it gets the signal too.
		script := `trap 'exit 40' INT; trap 'exit 41' HUP; trap 'exit 42' USR1; trap 'exit 43' TERM; trap 'exit 44' WINCH
			(trap 'exit 0' INT HUP USR1 TERM WINCH; echo ready; while :; do sleep 0.01; done)`
		out, result := background(t, a.Client(), execclient.Command{Args: []string{"sh", "-c", script}, User: "root", Signals: signals})
		guesttest.WaitFor(t, out, "ready\n")
		signals <- c.sig
		if code := <-result; code != c.code {
			t.Errorf("%v: code %d, want %d", c.sig, code, c.code)
		}
	}
}

func TestRun_TerminalIsOneAndResizes(t *testing.T) {
	a := guesttest.New(t)
	input, typed := io.Pipe()
	resizes := make(chan execclient.Size)
	out, result := background(t, a.Client(), execclient.Command{
		Args: []string{"bash", "-c", `trap 'echo changed' WINCH; tty; test -t 0 && test -t 2 && stty size; echo "$TERM"; : </dev/tty && echo own
			while read -r line; do echo "got $line, $(stty size)."; done; echo end; exit 5`},
		Env: map[string]string{"TERM": "billet"}, User: "root",
		PTY: &execclient.Size{Cols: 101, Rows: 33}, Stdin: input, Resizes: resizes,
	})
	first := guesttest.WaitFor(t, out, "own\r\n")
	if !strings.HasPrefix(first, "/dev/pts/") || !strings.Contains(first, "33 101\r\nbillet\r\n") {
		t.Errorf("the terminal is %q", first)
	}
	resizes <- execclient.Size{Cols: 90, Rows: 20}
	var seen string // by bash: a signal ends the read of dash
	for !strings.Contains(seen, "got hi, 20 90.") || !strings.Contains(seen, "changed") {
		if _, err := io.WriteString(typed, "hi\r"); err != nil {
			t.Fatal(err)
		}
		seen += guesttest.WaitFor(t, out, ".\r\n")
	}
	_ = typed.Close() // becomes the terminal's end of input
	guesttest.WaitFor(t, out, "end\r\n")
	go func() { _, _ = io.Copy(io.Discard, out) }()
	if code := <-result; code != 5 {
		t.Errorf("code %d, want 5", code)
	}
}

func TestRun_InteractiveInputIsAnsweredAtOnce(t *testing.T) {
	a := guesttest.New(t)
	input, typed := io.Pipe()
	out, result := background(t, a.Client(), execclient.Command{Args: []string{"cat"}, User: "root", Stdin: input})
	for _, line := range []string{"one\n", "two\n", "three\n"} {
		if _, err := io.WriteString(typed, line); err != nil {
			t.Fatal(err)
		}
		guesttest.WaitFor(t, out, line)
	}
	_ = typed.Close()
	if code := <-result; code != 0 {
		t.Errorf("code %d, want 0", code)
	}
}

func TestRun_ProcessThatReadsNothing(t *testing.T) {
	a := guesttest.New(t)
	// More than any buffer on the way holds, so that input is under way when
	// the process ends.
	code, err := a.Client().Run(guesttest.Context(t), execclient.Command{
		Args: []string{"sh", "-c", "exit 9"}, User: "root", Stdin: bytes.NewReader(make([]byte, 8<<20)),
	})
	if code != 9 || err != nil {
		t.Errorf("code %d, %v; want 9", code, err)
	}
}

type brokenReader struct{}

var errBroken = errors.New("the source broke")

func (brokenReader) Read([]byte) (int, error) { return 0, errBroken }

func TestRun_BrokenInputIsTold(t *testing.T) {
	a := guesttest.New(t)
	code, err := a.Client().Run(guesttest.Context(t), execclient.Command{Args: []string{"cat"}, User: "root", Stdin: brokenReader{}})
	if code != 0 || !errors.Is(err, errBroken) {
		t.Errorf("code %d, %v; want 0 and the source's error", code, err)
	}
}

func TestCopy_BothWays(t *testing.T) {
	a := guesttest.New(t)
	dir := t.TempDir()
	src := filepath.Join(dir, "src")
	data := random(4, 3<<20)
	if err := errors.Join(os.MkdirAll(filepath.Join(src, "sub"), 0o755),
		os.WriteFile(filepath.Join(src, "sub", "big"), data, 0o640),
		os.Symlink("sub/big", filepath.Join(src, "link"))); err != nil {
		t.Fatal(err)
	}
	agent, err := os.Readlink("/proc/" + itoa(a.PID()) + "/exe")
	if err != nil {
		t.Fatal(err)
	}
	ctx := guesttest.Context(t)
	var counted int64
	in := execclient.Copy{From: []string{src}, To: filepath.Join(dir, "guest"), User: "root", Agent: agent, Count: func(n int64) { counted = n }}
	if err := a.Client().CopyIn(ctx, in); err != nil {
		t.Fatal(err)
	}
	if counted < int64(len(data)) {
		t.Errorf("counted %d bytes of a copy of more than %d", counted, len(data))
	}
	out := execclient.Copy{From: []string{filepath.Join(dir, "guest") + "/."}, To: filepath.Join(dir, "back"), User: "root", Agent: agent}
	if err := a.Client().CopyOut(ctx, out); err != nil {
		t.Fatal(err)
	}
	back, err := os.ReadFile(filepath.Join(dir, "back", "link"))
	if err != nil || !bytes.Equal(back, data) {
		t.Errorf("%d bytes came back, %v; want %d", len(back), err, len(data))
	}

	in.To = filepath.Join(dir, "no", "such", "place")
	if err := a.Client().CopyIn(ctx, in); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("copy to nowhere: %v, want the guest's complaint", err)
	}
	out.From = []string{filepath.Join(dir, "missing")}
	if err := a.Client().CopyOut(ctx, out); err == nil || !strings.Contains(err.Error(), "missing") {
		t.Errorf("copy of nothing: %v, want the guest's complaint", err)
	}
	out.From, out.To = []string{src}, filepath.Join(dir, "no", "such", "place")
	if err := a.Client().CopyOut(ctx, out); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("copy to nowhere here: %v, want our complaint", err)
	}
	in.From, in.To = []string{filepath.Join(dir, "missing"), src}, dir+"/guest"
	var skipped int
	in.Warn = func(error) { skipped++ }
	if err := a.Client().CopyIn(ctx, in); err == nil || skipped != 1 || !strings.Contains(err.Error(), "not copied") {
		t.Errorf("copy with a missing source: %v, %d left out; want 1 and an error", err, skipped)
	}
}

func itoa(n int) string { return strconv.Itoa(n) }
