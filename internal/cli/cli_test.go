package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/clock"
	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/model"
)

func TestCodeOf_EveryKindHasItsOwnLineOfTheHelp(t *testing.T) {
	seen := map[int]errs.Kind{}
	for _, k := range errs.Kinds() {
		code := codeOf(k)
		if !strings.Contains(exitCodeHelp, fmt.Sprintf("\n  %3d  ", code)) {
			t.Errorf("%s: the help does not explain code %d", k, code)
		}
		if code == exitOK || code == exitUnwell || code >= exitExec {
			t.Errorf("%s has the code %d of something else", k, code)
		}
		if other, taken := seen[code]; taken && code != exitConflict && code != exitDenied {
			t.Errorf("%s and %s share code %d", k, other, code)
		}
		seen[code] = k
	}
}

func TestReport_PrintsAnErrorOnce(t *testing.T) {
	var out bytes.Buffer
	a := &app{Streams: Streams{Err: &out}, running: true}
	err := fmt.Errorf("start it: %w", errs.New(errs.Exhausted, "no room\x1b[2J").WithHint("stop one"))
	if code := a.report(err); code != exitExhausted {
		t.Errorf("code is %d", code)
	}
	if want := "error: start it: no room\uFFFD[2J\nhint: stop one\n"; out.String() != want {
		t.Errorf("got %q, want %q", &out, want)
	}
}

func TestWritten_AFullDiskIsNoSuccess(t *testing.T) {
	a := &app{Streams: Streams{Out: brokenWriter{}}}
	for name, err := range map[string]error{
		"line": a.line("x"), "table": a.table([]string{"A"}, nil), "fields": a.fields("a", "b"), "json": a.printJSON(1),
	} {
		if !errs.Is(err, errs.Unavailable) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, errors.New("no space left") }

func TestFormats(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second: "0s", 0: "0s", 59*time.Second + 999*time.Millisecond: "59s", 61 * time.Second: "1m1s", 3 * time.Hour: "3h0m", 50 * time.Hour: "2d2h",
	} {
		if got := duration(d); got != want {
			t.Errorf("duration(%v) = %q, want %q", d, got, want)
		}
	}
	for n, want := range map[int64]string{0: "0 B", 1023: "1023 B", 1024: "1 KiB", 1536: "1.5 KiB", 16 << 30: "16 GiB", 1 << 50: "1024 TiB"} {
		if got := bytesText(n); got != want {
			t.Errorf("bytesText(%d) = %q, want %q", n, got, want)
		}
	}
	if got := age(time.Now(), time.Time{}); got != "never" {
		t.Errorf("age of nothing is %q", got)
	}
}

func TestTable_AlignsByCharactersNotBytes(t *testing.T) {
	var out bytes.Buffer
	a := &app{Streams: Streams{Out: &out}}
	if err := a.table([]string{"NAME", "X"}, [][]string{{"äöüäöü", "1"}, {"a", "2"}}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff("NAME    X\näöüäöü  1\na       2\n", out.String()); diff != "" {
		t.Error(diff)
	}
}

func TestParsePlace(t *testing.T) {
	for s, want := range map[string]place{
		"demo:/a":  {"demo", "/a"},
		"demo:":    {"demo", "."},
		"demo:a:b": {"demo", "a:b"},
		"./a:b":    {"", "./a:b"},
		":x":       {"", ":x"},
		"plain":    {"", "plain"},
		"/a/b:c":   {"", "/a/b:c"},
	} {
		if got := parsePlace(s); got != want {
			t.Errorf("parsePlace(%q) = %+v, want %+v", s, got, want)
		}
	}
}

func TestVariables(t *testing.T) {
	t.Setenv("BILLET_TEST_HERE", "from here")
	got, err := variables([]string{"A=1", "B=", "C=x=y", "BILLET_TEST_HERE"})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"A": "1", "B": "", "C": "x=y", "BILLET_TEST_HERE": "from here"}, got); diff != "" {
		t.Error(diff)
	}
	for _, bad := range []string{"", "=x", "A B=1"} {
		if _, err := variables([]string{bad}); !errs.Is(err, errs.Invalid) {
			t.Errorf("%q: got %v", bad, err)
		}
	}
}

func TestTeller_TellsWhatIsNew(t *testing.T) {
	var out bytes.Buffer
	a := &app{Streams: Streams{Err: &out}}
	teller := &teller{app: a, speaks: true, watch: clock.Start()}
	phase := func(names ...string) (p []model.Phase) {
		for _, n := range names {
			p = append(p, model.Phase{Name: n})
		}
		return p
	}
	for _, ws := range []api.Workspace{
		{State: api.WorkspaceStarting, Detail: "no node has room"},
		{State: api.WorkspaceStarting, Detail: "no node has room"},
		{State: api.WorkspaceStarting, Phases: phase("accepted")},
		{State: api.WorkspaceStarting, Phases: phase("accepted", "volume")},
		{State: api.WorkspaceStarting, Phases: phase("accepted")}, // another instance
		{State: api.WorkspaceRunning, Phases: phase("accepted", "volume")},
	} {
		teller.tell(ws)
	}
	var got []string
	for line := range strings.Lines(out.String()) {
		_, text, _ := strings.Cut(strings.TrimSpace(line), "  ")
		got = append(got, text)
	}
	want := []string{"starting", "waits: no node has room", "accepted", "volume", "accepted", "volume", "running"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestMeter_DrawsOneLine(t *testing.T) {
	var out bytes.Buffer
	m := (&app{Streams: Streams{Err: &out}}).meter()
	m.add(10)
	m.end()
	if out.Len() > 0 {
		t.Errorf("no terminal, and yet: %q", &out)
	}
	m.live = true
	m.set("uploading", 512, 1024)
	m.add(512)
	m.end()
	m.end()
	if got := out.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "[============            ] 512 B of 1 KiB") || !strings.Contains(got, "[========================] 1 KiB of 1 KiB") {
		t.Errorf("got %q", got)
	}
	if n, err := io.Copy(io.Discard, m.reader(strings.NewReader("abc"))); n != 3 || err != nil || m.done != 1027 {
		t.Errorf("copied %d, %v; counted %d", n, err, m.done)
	}
}

// TestWay_AsksOnlyWhenItMust holds that a run which lost its road can get
// another without the server, as long as its ticket is good.
func TestWay_AsksOnlyWhenItMust(t *testing.T) {
	asked := 0
	good := api.Attachment{Gateway: "http://" + gone(t), Ticket: "t", Instance: "one", Expires: time.Now().Add(time.Hour)}
	next := good
	w := &way{last: good, ask: func(context.Context) (api.Attachment, error) { asked++; return next, nil }}
	for range 3 { // it asks once in a while whether the guest is still there
		if _, err := w.dial(t.Context()); !errs.Is(err, errs.Unavailable) || asked != 1 {
			t.Errorf("with a good ticket: %v, asked %d times", err, asked)
		}
	}
	w.last.Expires = time.Now().Add(-time.Second)
	if _, err := w.dial(t.Context()); !errs.Is(err, errs.Unavailable) || asked != 2 {
		t.Errorf("with an expired one: %v, asked %d times", err, asked)
	}
	w.last.Expires = time.Now().Add(-time.Second)
	next.Instance = "two"
	if _, err := w.dial(t.Context()); !errs.Is(err, errs.Stale) {
		t.Errorf("with another instance: %v", err)
	}
	w.ask = func(context.Context) (api.Attachment, error) {
		return api.Attachment{}, errs.New(errs.Conflict, "it is stopped")
	}
	if _, err := w.dial(t.Context()); !errs.Is(err, errs.Conflict) {
		t.Errorf("with a refusal: %v", err)
	}
}

// gone is an address at which nobody listens.
func gone(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func TestReadImage_EndsWithTheLastLine(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		kind errs.Kind
	}{
		"an image":   {`{"progress":{"stage":"fetching"}}` + "\n" + `{"image":{"name":"x"}}` + "\n", ""},
		"a problem":  {`{"problem":{"kind":"exhausted","detail":"full"}}` + "\n", errs.Exhausted},
		"cut off":    {`{"progress":{"stage":"fetching"}}` + "\n", errs.Unavailable},
		"nothing":    {"", errs.Unavailable},
		"not a line": {"<html>\n", errs.Internal},
		"too long":   {strings.Repeat("x", maxImageLine+1), errs.Unavailable},
	} {
		a := &app{Streams: Streams{Err: io.Discard}}
		img, err := a.readImage(t.Context(), strings.NewReader(c.text), 0)
		if errs.KindOf(err) != c.kind || (err == nil) != (img.Name == "x") {
			t.Errorf("%s: got %+v, %v", name, img, err)
		}
	}
}
