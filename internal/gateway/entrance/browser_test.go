package entrance

import (
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/billethq/billet/internal/errs"
)

const page1 = "text/html,application/xhtml+xml"

// submit posts the login form.
func (w *world) submit(host, path string, form url.Values, header ...string) *http.Response {
	w.t.Helper()
	req, err := http.NewRequestWithContext(w.t.Context(), "POST", w.url+path, strings.NewReader(form.Encode()))
	if err != nil {
		w.t.Fatal(err)
	}
	req.Host = host
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Add(header[i], header[i+1])
	}
	res, _ := w.do(req)
	return res
}

func TestLogin_GivesAPassForThisOriginOnly(t *testing.T) {
	w := newWorld(t, hello)
	res, body := w.ask("GET", w.host(), "/a?b=c", "Accept", page1)
	if res.StatusCode != 401 || !strings.Contains(body, `action="/.billet/login"`) || !strings.Contains(body, `value="/a?b=c"`) {
		t.Errorf("the login page is %s %s", res.Status, body)
	}
	prefix := "/w/web/" + w.port
	for _, c := range []struct {
		name, host, path, token, next string
		header                        []string
		want                          int
		location, cookiePath          string
	}{
		{"well", w.host(), "/.billet/login", ann, "/a?b=c", nil, 303, "/a?b=c", "/"},
		{"by the path", "localhost", prefix + "/.billet/login", ann, prefix + "/a", nil, 303, prefix + "/a", prefix + "/"},
		{"to another host", w.host(), "/.billet/login", ann, "//evil.example/", nil, 303, "/", "/"},
		{"to another host by a backslash", w.host(), "/.billet/login", ann, "/\\evil.example/", nil, 303, "/", "/"},
		{"to an address", w.host(), "/.billet/login", ann, "https://evil.example/", nil, 303, "/", "/"},
		{"out of its prefix", "localhost", prefix + "/.billet/login", ann, "/w/other/80/", nil, 303, prefix + "/", prefix + "/"},
		{"a wrong token", w.host(), "/.billet/login", "blt_no", "/", nil, 401, "", ""},
		{"no token", w.host(), "/.billet/login", "hello", "/", nil, 401, "", ""},
		{"from another page", w.host(), "/.billet/login", ann, "/", []string{"Origin", "http://evil.example"}, 403, "", ""},
	} {
		res := w.submit(c.host, c.path, url.Values{"token": {c.token}, "next": {c.next}}, c.header...)
		if res.StatusCode != c.want || res.Header.Get("Location") != c.location {
			t.Errorf("%s: got %s to %q, want %d to %q", c.name, res.Status, res.Header.Get("Location"), c.want, c.location)
		}
		cookies := res.Cookies()
		if c.cookiePath == "" {
			if len(cookies) > 0 {
				t.Errorf("%s: got cookies %v", c.name, cookies)
			}
			continue
		}
		if len(cookies) != 1 || cookies[0].Path != c.cookiePath || cookies[0].Domain != "" || !cookies[0].HttpOnly || cookies[0].SameSite != http.SameSiteLaxMode || cookies[0].Value != annsMy {
			t.Errorf("%s: got cookies %v", c.name, cookies)
		}
	}
	if res, _ := w.ask("GET", w.host(), "/.billet/login"); res.StatusCode != 405 {
		t.Errorf("GET of the login: got %s", res.Status)
	}
	if len(w.got) > 0 {
		t.Errorf("the guest got %v", w.got)
	}
}

func TestLink_IsTakenOutOfTheAddress(t *testing.T) {
	w := newWorld(t, hello)
	for _, c := range []struct {
		path     string
		want     int
		location string
	}{
		{"/a/b?x=1&billet_ticket=blk_good", 303, "/a/b?x=1"},
		{"/?billet_ticket=blk_good", 303, "/"},
		{"//evil.example/?billet_ticket=blk_good", 303, "/"},
		{"/?billet_ticket=blk_used", 401, ""},
	} {
		res, _ := w.ask("GET", w.host(), c.path, "Accept", page1)
		if res.StatusCode != c.want || res.Header.Get("Location") != c.location || (len(res.Cookies()) == 1) != (c.want == 303) {
			t.Errorf("%s: got %s to %q with %v, want %d to %q", c.path, res.Status, res.Header.Get("Location"), res.Cookies(), c.want, c.location)
		}
	}
	if len(w.got) > 0 {
		t.Errorf("the guest got %v", w.got)
	}
}

// A request waits for its workspace, and a page of fifty files wakes it once.
func TestHeld_UntilTheWorkspaceIsUp(t *testing.T) {
	w := newWorld(t, hello)
	w.hold = make(chan struct{})
	var asked sync.WaitGroup
	for range 50 {
		asked.Go(func() {
			if res, body := w.ask("GET", w.host(), "/", "Authorization", "Bearer "+ann); res.StatusCode != 200 || body != "hello" {
				t.Errorf("got %s %q", res.Status, body)
			}
		})
	}
	res, body := w.ask("GET", w.host(), "/", "Authorization", "Bearer "+ann, "Accept", page1)
	if res.StatusCode != 503 || res.Header.Get("Retry-After") != "1" || !strings.Contains(body, `http-equiv="refresh"`) || !strings.Contains(body, "restoring_memory") {
		t.Errorf("a browser meanwhile: got %s %v %s", res.Status, res.Header, body)
	}
	close(w.hold)
	asked.Wait()
	if w.entered != 1 {
		t.Errorf("control was asked %d times, want once", w.entered)
	}
}

func TestHeld_NoLongerThanTheDeadline(t *testing.T) {
	w := newWorld(t, hello, func(c *Config) { c.Deadline = 200 * time.Millisecond })
	w.hold = make(chan struct{})
	res, body := w.ask("GET", w.host(), "/", "Authorization", "Bearer "+ann)
	if res.StatusCode != 503 || res.Header.Get("Retry-After") == "" || !strings.Contains(body, "restoring_memory") {
		t.Errorf("got %s, Retry-After %q: %s", res.Status, res.Header.Get("Retry-After"), body)
	}
	w.public = time.Now().Add(time.Hour)
	if res, body := w.ask("GET", w.host(), "/"); res.StatusCode != 503 || strings.Contains(body, "memory") {
		t.Errorf("whoever showed nothing: got %s %s, want to be told no more than that it is not up", res.Status, body)
	}
}

// A workspace that went to sleep after control was asked is asked for again.
func TestRoad_ThatIsOverIsAskedForAgain(t *testing.T) {
	w := newWorld(t, hello)
	for i := range 3 {
		if res, body := w.ask("GET", w.host(), "/", "Authorization", "Bearer "+ann); res.StatusCode != 200 {
			t.Errorf("got %s %s", res.Status, body)
		}
		w.mu.Lock()
		w.epoch++
		if w.entered != i+1 {
			t.Errorf("control was asked %d times, want %d", w.entered, i+1)
		}
		w.mu.Unlock()
	}
}

func TestRefuse_FaultsAreNotTold(t *testing.T) {
	w := newWorld(t, hello)
	w.fail = errs.New(errs.Internal, "the secret is 42")
	if res, body := w.ask("GET", w.host(), "/", "Authorization", "Bearer "+ann); res.StatusCode != 500 || strings.Contains(body, "42") {
		t.Errorf("got %s %s", res.Status, body)
	}
}

func FuzzPathForm(f *testing.F) {
	f.Add("/w/web/80/x")
	f.Add("/w/../80//")
	f.Fuzz(func(t *testing.T, path string) {
		got, ok := pathForm(path)
		if ok && got.prefix+got.path != path {
			t.Errorf("%q is %q and %q", path, got.prefix, got.path)
		}
		if ok && strings.ContainsAny(got.name, "./%\\") {
			t.Errorf("%q names %q", path, got.name)
		}
	})
}
