package execclient_test

import (
	"bytes"
	"context"
	"net"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/guest/execclient"
	"github.com/billethq/billet/internal/guest/guesttest"
)

func TestRun_OutputAndExitCode(t *testing.T) {
	w := guesttest.New(t)
	for _, c := range []struct {
		script, out, err string
		code             int
	}{
		{"echo hi", "hi\n", "", 0},
		{"echo hi; echo ho >&2; exit 3", "hi\n", "ho\n", 3},
		{"kill -9 $$", "", "", 137},
		{"kill -TERM $$", "", "", 143},
		{"cat", "", "", 0}, // no input is an empty one
		{"printf 'no newline'", "no newline", "", 0},
		{`printf '\000\377\r\n'`, "\x00\xff\r\n", "", 0},
	} {
		var stdout, stderr bytes.Buffer
		code, err := w.Client().Run(guesttest.Context(t), execclient.Command{
			Args: []string{"/bin/sh", "-c", c.script}, User: "root", Stdout: &stdout, Stderr: &stderr,
		})
		if err != nil || code != c.code {
			t.Errorf("%q: code %d, %v; want %d", c.script, code, err, c.code)
		}
		if d := cmp.Diff([]string{c.out, c.err}, []string{stdout.String(), stderr.String()}); d != "" {
			t.Errorf("%q: output (-want +got):\n%s", c.script, d)
		}
	}
}

func TestRun_CannotExecute(t *testing.T) {
	w := guesttest.New(t)
	for _, c := range []struct {
		cmd  execclient.Command
		code int
		kind errs.Kind
		text string
	}{
		{execclient.Command{Args: []string{"no-such-program"}}, 127, errs.NotFound, "no-such-program"},
		{execclient.Command{Args: []string{"/no/such"}}, 127, errs.NotFound, "/no/such"},
		{execclient.Command{Args: []string{"/etc/passwd"}}, 126, errs.NotFound, "permission denied"},
		{execclient.Command{Args: []string{"true"}, User: "no-such-user"}, -1, errs.NotFound, "no-such-user"},
		{execclient.Command{Args: []string{"true"}, Cwd: "/no/such"}, -1, errs.Invalid, "/no/such"},
		{execclient.Command{Args: []string{"true"}, Env: map[string]string{"A=B": "c"}}, -1, errs.Invalid, "A=B"},
		{execclient.Command{}, -1, errs.Invalid, "no command"},
	} {
		if c.cmd.User == "" {
			c.cmd.User = "root"
		}
		code, err := w.Client().Run(guesttest.Context(t), c.cmd)
		if code != c.code || !errs.Is(err, c.kind) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%+v: code %d, kind %s, %v; want %d, %s, %q", c.cmd, code, errs.KindOf(err), err, c.code, c.kind, c.text)
		}
	}
}

func TestRun_TakesOneConnection(t *testing.T) {
	a := guesttest.New(t)
	dials := 0
	client := guesttest.Client(t, func(ctx context.Context) (net.Conn, error) {
		dials++
		return a.Dial(ctx)
	})
	if code, err := client.Run(guesttest.Context(t), execclient.Command{Args: []string{"true"}, User: "root"}); code != 0 || err != nil {
		t.Fatalf("code %d, %v", code, err)
	}
	if dials != 1 {
		t.Errorf("%d connections for a command without input; each is a round trip through the gateway", dials)
	}
}
