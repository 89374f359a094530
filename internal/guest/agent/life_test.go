package agent_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/billethq/billet/internal/guest/execclient"
	"github.com/billethq/billet/internal/guest/guesttest"
	"github.com/billethq/billet/internal/testenv"
)

func dialer(a *guesttest.Agent) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, _, _ string) (net.Conn, error) { return a.Dial(ctx) }
}

// children lists the direct children of a process, with their state.
func children(t *testing.T, pid int) []string {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		t.Fatal(err)
	}
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks {
		if more, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/children", pid, task.Name())); err == nil && task.Name() != strconv.Itoa(pid) {
			b = append(b, more...)
		}
	}
	return strings.Fields(string(b))
}

func TestAgent_ReapsOrphansAndKeepsItsOwnCodes(t *testing.T) {
	testenv.LeakCheck(t)
	a := guesttest.New(t)
	// Many double forks while commands of the agent's own end with codes of
	// their own, which a careless reaper would steal.
	done := make(chan error, 4)
	for worker := range 4 {
		go func() {
			for i := range 15 {
				want := worker*15 + i + 1
				code, err := a.Client().Run(guesttest.Context(t), execclient.Command{
					Args: []string{"sh", "-c", `i=0; while [ $i -lt 10 ]; do (sh -c 'exit 77' >/dev/null 2>&1 &) ; i=$((i+1)); done; exit ` + strconv.Itoa(want)},
					User: "root",
				})
				if err != nil || code != want {
					done <- fmt.Errorf("code %d, %v; want %d", code, err, want)
					return
				}
			}
			done <- nil
		}()
	}
	for range 4 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	// The last orphans may end a moment later.
	testenv.Await(t, guesttest.Patience, func() error {
		if left := children(t, a.PID()); len(left) > 0 {
			return fmt.Errorf("not reaped: %v", left)
		}
		return nil
	})
}

// invariant 9: that a command's end is told although its child holds the output
// is a timer's doing; the child lives on.
func TestAgent_BackgroundChildNeitherHoldsTheEndNorDies(t *testing.T) {
	testenv.LeakCheck(t)
	a := guesttest.New(t)
	dir := t.TempDir()
	// The child keeps the output open, goes on writing after the end, and says
	// so in a file that a pipe closed under it would have kept it from making.
	out := a.Sh(`mkfifo ` + dir + `/go; (read x <` + dir + `/go; echo late; echo late; echo alive >` + dir + `/alive) & echo early`)
	if out != "early\n" {
		t.Errorf("output %q", out)
	}
	a.Sh(`echo >` + dir + `/go; while ! [ -s ` + dir + `/alive ]; do sleep 0.01; done`)
}

func TestAgent_TermEndsEverything(t *testing.T) {
	testenv.LeakCheck(t)
	a := guesttest.New(t)
	dir := t.TempDir()
	for _, script := range []string{
		`trap 'echo saved >` + dir + `/polite; exit 0' TERM; echo up; while :; do sleep 0.01; done`,
		`trap '' TERM; echo up; while :; do sleep 0.01; done`,
	} {
		out, in := io.Pipe()
		ended := make(chan error, 1)
		go func() {
			_, err := a.Client().Run(guesttest.Context(t), execclient.Command{Args: []string{"sh", "-c", script}, User: "root", Stdout: in})
			ended <- err
		}()
		guesttest.WaitFor(t, out, "up\n")
		t.Cleanup(func() { <-ended })
	}
	a.Stop() // fails the test unless the code is 0
	_ = a.Link().Close()
	if b, err := os.ReadFile(dir + "/polite"); err != nil || string(b) != "saved\n" {
		t.Errorf("the polite process left %q, %v", b, err)
	}
}

// invariant 6: an open session survives the restart of its node.
func TestAgent_NodeRestart(t *testing.T) {
	testenv.LeakCheck(t)
	a := guesttest.New(t)
	out, in := io.Pipe()
	input, typed := io.Pipe()
	result := make(chan error, 1)
	go func() {
		code, err := a.Client().Run(guesttest.Context(t), execclient.Command{Args: []string{"cat"}, User: "root", Stdin: input, Stdout: in})
		if code != 0 {
			err = fmt.Errorf("code %d: %w", code, err)
		}
		result <- err
	}()
	for i := range 3 {
		line := fmt.Sprintf("line %d\n", i)
		if _, err := io.WriteString(typed, line); err != nil {
			t.Fatal(err)
		}
		guesttest.WaitFor(t, out, line)
		_ = a.Link().Close()
		a.Listen()
	}
	_ = typed.Close()
	if err := <-result; err != nil {
		t.Errorf("after three restarts of the node: %v", err)
	}
}

func TestAgent_RedialsAtOnceOnSIGUSR1(t *testing.T) {
	a := guesttest.New(t)
	<-a.Link().Attached()
	_ = a.Link().Close()
	a.Listen()
	if err := syscall.Kill(a.PID(), syscall.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	select {
	case <-a.Link().Attached():
	case <-guesttest.Context(t).Done():
		t.Error("not attached again")
	}
}

// A guest that was paused may not know that its node has hung up: told to, it
// leaves the session it is in, and what ran goes on in the next.
func TestAgent_LeavesItsSessionOnSIGUSR1(t *testing.T) {
	testenv.LeakCheck(t)
	a := guesttest.New(t)
	out, in := io.Pipe()
	input, typed := io.Pipe()
	result := make(chan error, 1)
	go func() {
		_, err := a.Client().Run(guesttest.Context(t), execclient.Command{Args: []string{"cat"}, User: "root", Stdin: input, Stdout: in})
		result <- err
	}()
	for i := range 3 {
		line := fmt.Sprintf("line %d\n", i)
		if _, err := io.WriteString(typed, line); err != nil {
			t.Fatal(err)
		}
		guesttest.WaitFor(t, out, line)
		stream, err := a.Dial(guesttest.Context(t))
		if err != nil {
			t.Fatal(err)
		}
		if err := syscall.Kill(a.PID(), syscall.SIGUSR1); err != nil {
			t.Fatal(err)
		}
		if _, err := stream.Read(make([]byte, 1)); err == nil {
			t.Error("a stream of the old session gave a byte")
		}
		_ = stream.Close()
	}
	_ = typed.Close()
	if err := <-result; err != nil {
		t.Errorf("after three signals: %v", err)
	}
}

func TestAgent_RunsAsTheUserItIsAskedFor(t *testing.T) {
	a := guesttest.New(t)
	run := func(cmd execclient.Command) string {
		t.Helper()
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		if code, err := a.Client().Run(guesttest.Context(t), cmd); code != 0 || err != nil {
			t.Fatalf("code %d, %v: %s", code, err, &out)
		}
		return out.String()
	}
	script := `id -u; id -g; echo $HOME $USER $LOGNAME $SHELL; echo $PATH; pwd; echo "$EXTRA"`
	want := "0\n0\n/root root root /bin/bash\n/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\n/root\n\n"
	if got := run(execclient.Command{Args: []string{"sh", "-c", script}, User: "root"}); got != want {
		t.Errorf("as root: %q, want %q", got, want)
	}
	// daemon is uid 1 in every Debian; its home is a directory.
	want = "1\n1\n/usr/sbin daemon daemon /usr/sbin/nologin\n/bin:/usr/bin\n/tmp\nyes\n"
	got := run(execclient.Command{
		Args: []string{"sh", "-c", script}, User: "daemon", Cwd: "/tmp",
		Env: map[string]string{"PATH": "/bin:/usr/bin", "EXTRA": "yes"},
	})
	if got != want {
		t.Errorf("as daemon: %q, want %q", got, want)
	}
	// A terminal is its user's own.
	got = run(execclient.Command{Args: []string{"sh", "-c", `stat -c %U "$(tty)"; : >"$(tty)" && echo opened`}, User: "daemon", PTY: &execclient.Size{Cols: 80, Rows: 24}})
	if got != "daemon\r\nopened\r\n" {
		t.Errorf("daemon's terminal: %q", got)
	}
	if got := run(execclient.Command{Args: []string{"sh", "-c", "id -G; grep -c . /proc/self/environ"}, User: "daemon"}); !strings.HasPrefix(got, "1\n") {
		t.Errorf("daemon's groups: %q, want 1 alone, not the agent's own", got)
	}
}
