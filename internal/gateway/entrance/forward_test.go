package entrance

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// invariant 10: what opens a workspace never reaches what runs in it.
func TestForward_GuestSeesTheRequestAndNothingOfBillets(t *testing.T) {
	w := newWorld(t, hello)
	w.public = time.Now().Add(time.Hour)
	for name, c := range map[string]struct {
		host, path string
		header     []string
		want       http.Header
		wantPath   string
	}{
		"host form": {w.host(), "/a%2Fb//c?x=1&y=%20", []string{"Authorization", "Bearer " + ann, "Cookie", "a=1; billet_session=" + annsMy + "; b=\"2\"", "Cookie", "billet_session=x"},
			http.Header{"Cookie": {"a=1; b=\"2\""}, "X-Forwarded-Host": {w.host()}, "X-Forwarded-Proto": {"http"}, "X-Forwarded-For": {"127.0.0.1"}}, "/a%2Fb//c?x=1&y=%20"},
		"path form": {"127.0.0.1", "/w/web/" + w.port + "/a/../b?x", []string{"Authorization", "Bearer " + ann},
			http.Header{"X-Forwarded-Host": {"127.0.0.1"}, "X-Forwarded-Proto": {"http"}, "X-Forwarded-For": {"127.0.0.1"}, "X-Forwarded-Prefix": {"/w/web/" + w.port}}, "/a/../b?x"},
		"the guest's own authorization, and lies": {w.host(), "/", []string{"Authorization", "Basic YTpi", "X-Forwarded-For", "1.2.3.4", "X-Forwarded-Prefix", "/etc", "Forwarded", "for=1.2.3.4", "X-Real-Ip", "1.2.3.4", "Billet-Reader", "x", "Connection", "X-Secret", "X-Secret", "hop"},
			http.Header{"Authorization": {"Basic YTpi"}, "X-Forwarded-Host": {w.host()}, "X-Forwarded-Proto": {"http"}, "X-Forwarded-For": {"127.0.0.1"}}, "/"},
	} {
		res, body := w.ask("GET", c.host, c.path, c.header...)
		if res.StatusCode != 200 || body != "hello" {
			t.Errorf("%s: got %s %q", name, res.Status, body)
			continue
		}
		got := w.last()
		for _, plain := range []string{"Accept-Encoding", "User-Agent", "Connection"} {
			got.Header.Del(plain)
		}
		if diff := cmp.Diff(c.want, got.Header); diff != "" {
			t.Errorf("%s: headers -want +got:\n%s", name, diff)
		}
		if got.RequestURI != c.wantPath || got.Host != c.host {
			t.Errorf("%s: got %s of %s, want %s of %s", name, got.RequestURI, got.Host, c.wantPath, c.host)
		}
	}
}

func TestForward_GuestSpeaksForItsPortOnly(t *testing.T) {
	w := newWorld(t, func(out http.ResponseWriter, r *http.Request) {
		h := out.Header()
		h.Add("Set-Cookie", "a=1; Domain=billet.localhost; Path=/; HttpOnly")
		h.Add("Set-Cookie", "b=2")
		h.Add("Set-Cookie", "billet_session=stolen; Path=/")
		h.Set("Clear-Site-Data", `"cookies"`)
		h.Set("Alt-Svc", `h2="evil:443"`)
		h.Set("Service-Worker-Allowed", "/")
		h.Set("Location", "/login")
		out.WriteHeader(http.StatusFound)
	})
	prefix := "/w/web/" + w.port
	for _, c := range []struct {
		host, path string
		cookies    []string
		location   string
	}{
		{w.host(), "/", []string{"a=1; Path=/; HttpOnly", "b=2"}, "/login"},
		{"localhost", prefix + "/", []string{"a=1; HttpOnly; Path=" + prefix + "/", "b=2; Path=" + prefix + "/"}, prefix + "/login"},
	} {
		res, _ := w.ask("GET", c.host, c.path, "Authorization", "Bearer "+ann)
		if diff := cmp.Diff(c.cookies, res.Header["Set-Cookie"]); diff != "" {
			t.Errorf("%s: cookies -want +got:\n%s", c.host, diff)
		}
		if res.Header.Get("Location") != c.location || res.Header.Get("Clear-Site-Data")+res.Header.Get("Alt-Svc") != "" {
			t.Errorf("%s: got %v", c.host, res.Header)
		}
		if c.host == "localhost" && res.Header.Get("Service-Worker-Allowed") != "" {
			t.Error("a worker may serve other workspaces' paths")
		}
	}
}

// What a server writes comes at once, and a body has no bound.
func TestForward_StreamsBothWays(t *testing.T) {
	next := make(chan struct{})
	w := newWorld(t, func(out http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(out).EnableFullDuplex()
		if _, err := io.Copy(io.Discard, io.LimitReader(r.Body, 3)); err != nil {
			return
		}
		for i := range 3 {
			fmt.Fprintf(out, "part %d\n", i)
			_ = http.NewResponseController(out).Flush()
			<-next
		}
	})
	body, sent := io.Pipe()
	req, err := http.NewRequestWithContext(t.Context(), "POST", w.url+"/", body)
	if err != nil {
		t.Fatal(err)
	}
	req.Host = w.host()
	req.Header.Set("Authorization", "Bearer "+ann)
	go func() { _, _ = io.WriteString(sent, "abc"); _ = sent.Close() }()
	res, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	lines := bufio.NewReader(res.Body)
	for i := range 3 {
		line, err := lines.ReadString('\n')
		if want := fmt.Sprintf("part %d\n", i); line != want || err != nil {
			t.Fatalf("got %q, %v, want %q", line, err, want)
		}
		next <- struct{}{}
	}
}

// The first bytes come with the request, as of a client that does not wait.
func TestForward_UpgradeCarriesRawBytes(t *testing.T) {
	w := newWorld(t, func(out http.ResponseWriter, r *http.Request) {
		conn, rw, err := http.NewResponseController(out).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "+r.Header.Get("Upgrade")+"\r\n\r\n")
		_, _ = io.CopyN(conn, rw, 5)
	})
	conn := w.raw("GET /ws HTTP/1.1\r\nHost: " + w.host() + "\r\nAuthorization: Bearer " + ann + "\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nhello")
	res, err := http.ReadResponse(conn, nil)
	if err != nil || res.StatusCode != 101 {
		t.Fatalf("got %v, %v, want 101", res, err)
	}
	got := make([]byte, 5)
	if _, err := io.ReadFull(conn, got); err != nil || string(got) != "hello" {
		t.Errorf("got %q, %v", got, err)
	}
}

// raw sends bytes that no client would and returns what comes back.
func (w *world) raw(text string) *bufio.Reader {
	w.t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(w.url, "http://"))
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
	if _, err := io.WriteString(conn, text); err != nil {
		w.t.Fatal(err)
	}
	return bufio.NewReader(conn)
}
