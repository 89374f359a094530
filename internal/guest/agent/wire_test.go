package agent_test

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/billethq/billet/internal/guest/guesttest"
)

// caller speaks to the agent as the contract's clients do: JSON over HTTP/1.1,
// without any generated code.
type caller struct {
	t    *testing.T
	http http.Client
}

func newCaller(t *testing.T, a *guesttest.Agent) *caller {
	tr := &http.Transport{DialContext: dialer(a)}
	t.Cleanup(tr.CloseIdleConnections)
	return &caller{t: t, http: http.Client{Transport: tr}}
}

// do sends a request, with headers given as "Name: value".
func (c *caller) do(method, path, body string, headers ...string) *http.Response {
	c.t.Helper()
	req, err := http.NewRequestWithContext(guesttest.Context(c.t), method, "http://guest"+path, strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	for _, h := range headers {
		k, v, _ := strings.Cut(h, ": ")
		req.Header.Set(k, v)
	}
	res, err := c.http.Do(req)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _ = res.Body.Close() })
	return res
}

// unary calls a method and returns the status and the body.
func (c *caller) unary(method, body string, headers ...string) (int, string) {
	c.t.Helper()
	res := c.do("POST", "/process.Process/"+method, body, append(headers, "Content-Type: application/json")...)
	b, err := io.ReadAll(res.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	return res.StatusCode, string(b)
}

// stream is a server stream of enveloped JSON.
type stream struct {
	t    *testing.T
	body io.ReadCloser
	head http.Header
}

func envelope(body string) string {
	b := binary.BigEndian.AppendUint32([]byte{0}, uint32(len(body)))
	return string(b) + body
}

func (c *caller) stream(method, body string, headers ...string) *stream {
	c.t.Helper()
	res := c.do("POST", "/process.Process/"+method, envelope(body),
		append(headers, "Content-Type: application/connect+json", "Connect-Protocol-Version: 1")...)
	if res.StatusCode != 200 || res.Header.Get("Content-Type") != "application/connect+json" {
		c.t.Fatalf("%s: status %d, %s", method, res.StatusCode, res.Header.Get("Content-Type"))
	}
	return &stream{c.t, res.Body, res.Header}
}

// message is one envelope; last marks the end of the stream.
func (s *stream) message() (text string, last bool) {
	s.t.Helper()
	var head [5]byte
	if _, err := io.ReadFull(s.body, head[:]); err != nil {
		s.t.Fatalf("read an envelope: %v", err)
	}
	b := make([]byte, binary.BigEndian.Uint32(head[1:]))
	if _, err := io.ReadFull(s.body, b); err != nil {
		s.t.Fatal(err)
	}
	var compact bytes.Buffer // the encoder varies its blanks on purpose
	if err := json.Compact(&compact, b); err != nil {
		s.t.Fatalf("%q: %v", b, err)
	}
	return compact.String(), head[0]&2 != 0
}

// rest returns all further messages.
func (s *stream) rest() (all []string) {
	s.t.Helper()
	for {
		m, last := s.message()
		all = append(all, m)
		if last {
			return all
		}
	}
}

// pid reads the start event.
func (s *stream) pid() uint32 {
	s.t.Helper()
	m, _ := s.message()
	var e struct {
		Event struct{ Start struct{ PID uint32 } }
	}
	if err := json.Unmarshal([]byte(m), &e); err != nil || e.Event.Start.PID == 0 {
		s.t.Fatalf("start event %s: %v", m, err)
	}
	return e.Event.Start.PID
}

func b64(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }

// asRoot selects the user as the contract does.
var asRoot = "Authorization: Basic " + b64("root:")

func TestWire_StartIsTheContracts(t *testing.T) {
	c := newCaller(t, guesttest.New(t))
	for _, k := range []struct {
		request string
		want    []string
	}{
		{
			`{"process":{"cmd":"/bin/bash","args":["-l","-c","echo hi"]},"stdin":false}`,
			[]string{
				`{"event":{"data":{"stdout":"` + b64("hi\n") + `"}}}`,
				`{"event":{"end":{"exited":true,"status":"exit status 0"}}}`, `{}`,
			},
		},
		{
			`{"process":{"cmd":"sh","args":["-c","echo no >&2; exit 3"],"envs":{"A":"b"},"cwd":"/"},"unknown":"ignored"}`,
			[]string{
				`{"event":{"data":{"stderr":"` + b64("no\n") + `"}}}`,
				`{"event":{"end":{"exitCode":3,"exited":true,"status":"exit status 3","error":"exit status 3"}}}`, `{}`,
			},
		},
		{
			`{"process":{"cmd":"sh","args":["-c","kill -9 $$"]}}`,
			[]string{`{"event":{"end":{"exitCode":-1,"status":"signal: killed","error":"signal: killed","signal":9}}}`, `{}`},
		},
		{
			`{"process":{"cmd":"sh","args":["-c","stty size"]},"pty":{"size":{"cols":90,"rows":30}}}`,
			[]string{
				`{"event":{"data":{"pty":"` + b64("30 90\r\n") + `"}}}`,
				`{"event":{"end":{"exited":true,"status":"exit status 0"}}}`, `{}`,
			},
		},
	} {
		s := c.stream("Start", k.request, asRoot)
		s.pid()
		if d := cmp.Diff(k.want, s.rest()); d != "" {
			t.Errorf("%s (-want +got):\n%s", k.request, d)
		}
	}
}

func TestWire_Errors(t *testing.T) {
	c := newCaller(t, guesttest.New(t))
	for _, k := range []struct{ request, code string }{
		{`{"process":{"cmd":"no-such-program"}}`, "invalid_argument"},
		{`{"process":{"cmd":"true","cwd":"/no/such"}}`, "invalid_argument"},
		{`{}`, "invalid_argument"},
	} {
		if got := c.stream("Start", k.request, asRoot).rest(); len(got) != 1 || !strings.Contains(got[0], `"code":"`+k.code+`"`) {
			t.Errorf("Start %s: %q, want %s", k.request, got, k.code)
		}
	}
	if got := c.stream("Start", `{"process":{"cmd":"true"}}`, "Authorization: Basic "+b64("nobody-here:")).rest(); !strings.Contains(got[0], "unauthenticated") {
		t.Errorf("an unknown user: %q", got)
	}
	if got := c.stream("Connect", `{"process":{"pid":4194305}}`).rest(); !strings.Contains(got[0], "not_found") {
		t.Errorf("Connect to nothing: %q", got)
	}
	for _, k := range []struct {
		method, request string
		status          int
		code            string
	}{
		{"SendSignal", `{"process":{"pid":4194305},"signal":"SIGNAL_SIGKILL"}`, 404, "not_found"},
		{"SendSignal", `{"process":{}}`, 400, "invalid_argument"},
		{"SendInput", `{"process":{"tag":"none"},"input":{"stdin":""}}`, 404, "not_found"},
		{"CloseStdin", `{"process":{"tag":"none"}}`, 404, "not_found"},
		{"Update", `{"process":{"tag":"none"}}`, 404, "not_found"},
		{"List", `{"` + strings.Repeat("x", 5<<20) + `":1}`, 429, "resource_exhausted"},
		{"List", `no JSON`, 400, "invalid_argument"},
	} {
		if status, body := c.unary(k.method, k.request); status != k.status || !strings.Contains(body, k.code) {
			t.Errorf("%s %.60s: %d %s, want %d %s", k.method, k.request, status, body, k.status, k.code)
		}
	}
}

func TestWire_BackgroundProcess(t *testing.T) {
	a := guesttest.New(t)
	c := newCaller(t, a)
	s := c.stream("Start", `{"process":{"cmd":"sh","args":["-c","read a; echo $a; read b; echo $b; cat"],"cwd":"/"},"tag":"t1","stdin":true}`, asRoot)
	pid := s.pid()
	_ = s.body.Close() // the process outlives its stream
	if _, list := c.unary("List", "{}"); !strings.Contains(list, fmt.Sprintf(`"pid":%d`, pid)) || !strings.Contains(strings.ReplaceAll(list, " ", ""), `"tag":"t1"`) {
		t.Errorf("List: %s", list)
	}
	byTag := c.stream("Connect", `{"process":{"tag":"t1"}}`)
	byPID := c.stream("Connect", fmt.Sprintf(`{"process":{"pid":%d}}`, pid))
	for _, s := range []*stream{byTag, byPID} {
		if got := s.pid(); got != pid {
			t.Errorf("Connect: pid %d, want %d", got, pid)
		}
	}
	both := func(want string) {
		t.Helper()
		for name, s := range map[string]*stream{"tag": byTag, "pid": byPID} {
			if got, _ := s.message(); got != `{"event":{"data":{"stdout":"`+b64(want)+`"}}}` {
				t.Errorf("by %s: %s, want %q", name, got, want)
			}
		}
	}
	if status, body := c.unary("SendInput", `{"process":{"tag":"t1"},"input":{"stdin":"`+b64("one\n")+`"}}`); status != 200 || body != "{}" {
		t.Errorf("SendInput: %d %s", status, body)
	}
	both("one\n")
	in := c.do("POST", "/process.Process/StreamInput",
		envelope(fmt.Sprintf(`{"start":{"process":{"pid":%d}}}`, pid))+
			envelope(`{"keepalive":{}}`)+
			envelope(`{"data":{"input":{"stdin":"`+b64("two\n")+`"}}}`),
		"Content-Type: application/connect+json")
	if got := (&stream{t, in.Body, in.Header}).rest(); cmp.Diff([]string{"{}", "{}"}, got) != "" {
		t.Errorf("StreamInput: %q", got)
	}
	both("two\n")
	if status, body := c.unary("CloseStdin", `{"process":{"tag":"t1"}}`); status != 200 || body != "{}" {
		t.Errorf("CloseStdin: %d %s", status, body)
	}
	want := []string{
		`{"event":{"end":{"exited":true,"status":"exit status 0"}}}`, `{}`,
	}
	for name, s := range map[string]*stream{"tag": byTag, "pid": byPID} {
		if d := cmp.Diff(want, s.rest()); d != "" {
			t.Errorf("events by %s (-want +got):\n%s", name, d)
		}
	}
	if got := c.stream("Connect", `{"process":{"tag":"t1"}}`).rest(); !strings.Contains(got[0], "not_found") {
		t.Errorf("Connect after the end was seen: %q", got)
	}
	if _, list := c.unary("List", "{}"); list != "{}" {
		t.Errorf("List afterwards: %s", list)
	}
}

func TestWire_SignalsByNameAndNumber(t *testing.T) {
	c := newCaller(t, guesttest.New(t))
	for _, k := range []struct{ signal, want string }{
		{`"SIGNAL_SIGTERM"`, `"signal":15`}, {`"SIGNAL_SIGKILL"`, `"signal":9`}, {`9`, `"signal":9`}, {`10`, `"signal":10`},
	} {
		s := c.stream("Start", `{"process":{"cmd":"sleep","args":["1000"]},"tag":"s","stdin":false}`, asRoot)
		s.pid()
		if status, body := c.unary("SendSignal", `{"process":{"tag":"s"},"signal":`+k.signal+`}`); status != 200 {
			t.Errorf("SendSignal %s: %d %s", k.signal, status, body)
		}
		if got := s.rest(); !strings.Contains(got[0], k.want) {
			t.Errorf("after %s: %q", k.signal, got)
		}
	}
	s := c.stream("Start", `{"process":{"cmd":"sleep","args":["1000"]},"tag":"u"}`, asRoot)
	s.pid()
	if status, body := c.unary("SendSignal", `{"process":{"tag":"u"},"signal":4}`); status != 501 {
		t.Errorf("SendSignal 4: %d %s, want unimplemented", status, body)
	}
}

func TestWire_TimeLimitAndKeepalive(t *testing.T) {
	c := newCaller(t, guesttest.New(t))
	s := c.stream("Start", `{"process":{"cmd":"sleep","args":["1000"]},"tag":"k"}`, asRoot, "Keepalive-Ping-Interval: 1")
	s.pid()
	if m, _ := s.message(); m != `{"event":{"keepalive":{}}}` {
		t.Errorf("on a silent stream: %s", m)
	}
	s = c.stream("Start", `{"process":{"cmd":"sleep","args":["1000"]},"tag":"limited"}`, asRoot, "Connect-Timeout-Ms: 100")
	s.pid()
	if got := s.rest(); !strings.Contains(got[len(got)-1], "deadline_exceeded") {
		t.Errorf("at the time limit: %q", got)
	}
	// The limit ends the process too; its end may already be there, or comes.
	after := c.stream("Connect", `{"process":{"tag":"limited"}}`).rest()
	if !strings.Contains(strings.Join(after, ""), `"signal":9`) {
		t.Errorf("after the time limit: %q", after)
	}
}

func TestWire_ReaderResumes(t *testing.T) {
	c := newCaller(t, guesttest.New(t))
	start := `{"process":{"cmd":"sh","args":["-c","printf 0123456789; read x; printf more"]},"tag":"r","stdin":true}`
	s := c.stream("Start", start, asRoot, "Billet-Reader: me")
	if got := s.head.Get("Billet-Offset"); got != "0" {
		t.Errorf("a Start's first byte is at %q", got)
	}
	s.pid()
	s.message()
	_ = s.body.Close()
	if got := c.stream("Start", start, asRoot, "Billet-Reader: me").rest(); !strings.Contains(got[0], "already_exists") {
		t.Errorf("the same Start again: %q", got)
	}
	for _, k := range []struct{ from, code string }{{"11", "invalid_argument"}, {"-1", "invalid_argument"}, {"x", "invalid_argument"}} {
		if got := c.stream("Connect", `{"process":{"tag":"r"}}`, "Billet-Resume-From: "+k.from).rest(); !strings.Contains(got[0], k.code) {
			t.Errorf("resume from %s: %q, want %s", k.from, got, k.code)
		}
	}
	s = c.stream("Connect", `{"process":{"tag":"r"}}`, "Billet-Reader: me", "Billet-Resume-From: 4")
	s.pid()
	if m, _ := s.message(); m != `{"event":{"data":{"stdout":"`+b64("456789")+`"}}}` {
		t.Errorf("resumed from 4: %s", m)
	}
	// The same input twice is one line.
	for range 2 {
		if status, body := c.unary("SendInput", `{"process":{"tag":"r"},"input":{"stdin":"`+b64("x\n")+`"}}`, "Billet-Input-Offset: 0"); status != 200 && status != 404 {
			t.Errorf("SendInput: %d %s", status, body)
		}
	}
	if got := s.rest(); len(got) != 3 || got[0] != `{"event":{"data":{"stdout":"`+b64("more")+`"}}}` {
		t.Errorf("after the input: %q", got)
	}
	// The end stays until it is acknowledged.
	if got := c.stream("Connect", `{"process":{"tag":"r"}}`, "Billet-Reader: me", "Billet-Resume-From: 10").rest(); len(got) != 4 || !strings.Contains(got[2], "exited") {
		t.Errorf("the end again: %q", got)
	}
	if res := c.do("POST", "/billet/ack", `{"tag":"r","reader":"me","offset":14,"end":true}`); res.StatusCode != 204 {
		t.Errorf("ack: %d", res.StatusCode)
	}
	if got := c.stream("Connect", `{"process":{"tag":"r"}}`, "Billet-Reader: me", "Billet-Resume-From: 10").rest(); !strings.Contains(got[0], "not_found") {
		t.Errorf("the end after its acknowledgement: %q", got)
	}
}

func TestWire_HealthAndVersion(t *testing.T) {
	c := newCaller(t, guesttest.New(t))
	if res := c.do("GET", "/health", ""); res.StatusCode != 204 {
		t.Errorf("health: %d", res.StatusCode)
	}
	b, _ := io.ReadAll(c.do("GET", "/billet/version", "").Body)
	if !strings.Contains(string(b), `"protocol":1`) {
		t.Errorf("version: %s", b)
	}
}
