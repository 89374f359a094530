package api_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/errs"
)

func TestCheckLoopback_RefusesWhatOthersCanReach(t *testing.T) {
	for _, addr := range []string{"127.0.0.1:7480", "127.8.9.1:0", "[::1]:7480", "localhost:80", "[::ffff:127.0.0.1]:1"} {
		if err := api.CheckLoopback(addr); err != nil {
			t.Errorf("%s: %v", addr, err)
		}
	}
	for addr, kind := range map[string]errs.Kind{
		"0.0.0.0:7480": errs.Unsupported, ":7480": errs.Unsupported, "[::]:7480": errs.Unsupported, "10.0.0.1:80": errs.Unsupported,
		"example.org:80": errs.Unsupported, "localhost.example.org:80": errs.Unsupported, "127.0.0.1": errs.Invalid, "": errs.Invalid,
		"127.0.0.1:http": errs.Invalid, "127.0.0.1:65536": errs.Invalid, "127.0.0.1:-1": errs.Invalid, "127.0.0.1:080": errs.Invalid,
		"[fe80::1%lo]:80": errs.Unsupported, "0x7f.1:80": errs.Unsupported,
	} {
		if err := api.CheckLoopback(addr); !errs.Is(err, kind) || errs.HintOf(err) == "" {
			t.Errorf("%s: got %v (hint: %s), want %s", addr, err, errs.HintOf(err), kind)
		}
	}
}

func TestParseEndpoint(t *testing.T) {
	for s, want := range map[string]api.Endpoint{
		"unix:///run/billet.sock": {Network: "unix", Address: "/run/billet.sock"},
		"http://127.0.0.1:7480":   {Network: "tcp", Address: "127.0.0.1:7480"},
		"http://[::1]:7480/":      {Network: "tcp", Address: "[::1]:7480"},
	} {
		got, err := api.ParseEndpoint(s)
		if err != nil || got != want {
			t.Errorf("%s: got %+v, %v", s, got, err)
		}
		if back, err := api.ParseEndpoint(got.String()); err != nil || back != want {
			t.Errorf("%s: comes back as %+v, %v", got, back, err)
		}
	}
	for _, s := range []string{
		"", "127.0.0.1:7480", "unix://relative", "unix:relative", "unix://host/path", "https://127.0.0.1:1", "http://10.0.0.1:1",
		"http://127.0.0.1", "http://a:b@127.0.0.1:1", "http://127.0.0.1:1/v1", "http://127.0.0.1:1?x=1", "ftp://127.0.0.1:1", "http://%zz",
	} {
		if got, err := api.ParseEndpoint(s); err == nil || errs.HintOf(err) == "" {
			t.Errorf("%q: got %+v, %v (hint: %s)", s, got, err, errs.HintOf(err))
		}
	}
}

func FuzzParseEndpoint(f *testing.F) {
	f.Add("unix:///run/billet.sock")
	f.Add("http://[::1]:7480")
	f.Fuzz(func(t *testing.T, s string) {
		e, err := api.ParseEndpoint(s)
		if err == nil && e.Network == "tcp" && api.CheckLoopback(e.Address) != nil {
			t.Fatalf("%q leaves the machine: %+v", s, e)
		}
	})
}

func TestDial_SaysWhatToDo(t *testing.T) {
	dir := t.TempDir()
	gone := filepath.Join(dir, "gone.sock")
	l, err := net.Listen("unix", gone)
	if err != nil {
		t.Fatal(err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	_ = l.Close() // a socket that nobody serves
	for _, path := range []string{gone, filepath.Join(dir, "never.sock")} {
		_, err := api.Endpoint{Network: "unix", Address: path}.Dial(t.Context())
		if !errs.Is(err, errs.Unavailable) || errs.HintOf(err) != "start it with: billet up" {
			t.Errorf("%s: got %v (hint: %s)", path, err, errs.HintOf(err))
		}
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("the caller left"))
	if _, err := (api.Endpoint{Network: "unix", Address: gone}).Dial(ctx); err == nil || err.Error() != "the caller left" {
		t.Errorf("got %v", err)
	}
}

// serve answers every request of a client with h.
func serve(t *testing.T, h http.HandlerFunc) *api.Client {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	e, err := api.ParseEndpoint(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	c, err := api.NewClient(api.ClientConfig{Endpoint: e, Token: "t0ken"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func TestClient_KnowsWhoAnswers(t *testing.T) {
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		kind   errs.Kind
		want   string
	}{
		"a server of another version": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set(api.VersionHeader, "9")
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, "{}")
		}, errs.Invalid, `speaks API version "9", this client version "1"`},
		"something else": {func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>") }, errs.Unavailable, "no billet server"},
		"something else that is not well": {func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "<html>", http.StatusBadGateway) },
			errs.Unavailable, "no billet server: it answered 502 Bad Gateway"},
		"a page instead of JSON": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set(api.VersionHeader, api.Version)
			fmt.Fprint(w, "<html>")
		}, errs.Unavailable, "did not answer JSON"},
		"half an answer": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set(api.VersionHeader, api.Version)
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Content-Length", "100")
			fmt.Fprint(w, "{")
		}, errs.Unavailable, "the server went away"},
		"a redirection": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://127.0.0.1:1/", http.StatusFound)
		},
			errs.Unavailable, "no billet server: it answered 302"},
		"a problem of a kind to come": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", api.ProblemType)
			w.WriteHeader(http.StatusTeapot)
			fmt.Fprint(w, `{"kind":"teapot","detail":"short and stout","hint":"tip me over"}`)
		}, errs.Internal, "short and stout"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := serve(t, c.answer).Info(t.Context())
			if !errs.Is(err, c.kind) || !strings.Contains(err.Error(), c.want) || errs.HintOf(err) == "" {
				t.Errorf("got %v (%s, hint: %s), want %s %q", err, errs.KindOf(err), errs.HintOf(err), c.kind, c.want)
			}
		})
	}
}

func TestClient_SendsWhatItMust(t *testing.T) {
	t.Setenv("HTTP_PROXY", "http://127.0.0.1:1")
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(api.VersionHeader, api.Version)
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"version":%q}`, strings.Join([]string{
			r.Header.Get(api.VersionHeader), r.Header.Get("Authorization"), r.Header.Get("Content-Type"), r.URL.EscapedPath(),
		}, " "))
	})
	info, err := c.Info(t.Context())
	if want := "1 Bearer t0ken  /v1/info"; err != nil || info.Version != want {
		t.Errorf("got %q, %v, want %q", info.Version, err, want)
	}
}

func TestClient_EscapesReferences(t *testing.T) {
	var got string
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		got = r.URL.EscapedPath()
		w.Header().Set(api.VersionHeader, api.Version)
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, "{}")
	})
	if _, err := c.Workspace(t.Context(), "../tokens?x#y"); err != nil {
		t.Fatal(err)
	}
	if want := "/v1/workspaces/..%2Ftokens%3Fx%23y"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestNewClient_StaysOnTheMachine(t *testing.T) {
	for _, e := range []api.Endpoint{{Network: "tcp", Address: "10.0.0.1:80"}, {}} {
		if _, err := api.NewClient(api.ClientConfig{Endpoint: e}); err == nil {
			t.Errorf("%+v was accepted", e)
		}
	}
}

func TestSecret_IsNeverPrinted(t *testing.T) {
	s := api.Secret("t0ken")
	var log strings.Builder
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "a", s, "b", struct{ T api.Secret }{s})
	text := fmt.Sprintf("%v %s %q %#v %+v ", s, s, s, s, struct{ T api.Secret }{s}) + log.String()
	// JSON is the wire: only slog's own rendering of the value itself is hidden.
	text = strings.Replace(text, `{"T":"t0ken"}`, "", 1)
	if strings.Contains(text, "t0ken") {
		t.Errorf("got %s", text)
	}
}
