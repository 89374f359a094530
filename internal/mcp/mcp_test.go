package mcp

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/api/apitest"
	"github.com/billethq/billet/internal/clock"
	"github.com/billethq/billet/internal/guest/execclient"
	"github.com/billethq/billet/internal/guest/guesttest"
	"github.com/billethq/billet/internal/httpapi"
)

var quiet = slog.New(slog.DiscardHandler)

// deployment is the real API over a fake service.
func deployment(t *testing.T) (*apitest.Fake, func(api.Secret) (*api.Client, error)) {
	t.Helper()
	fake := apitest.New()
	h, err := httpapi.New(httpapi.Config{Service: fake, Clock: clock.Real{}, Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(h)
	t.Cleanup(func() { h.Drain(); srv.Close() })
	return fake, func(token api.Secret) (*api.Client, error) {
		ep, err := api.ParseEndpoint(srv.URL)
		if err != nil {
			return nil, err
		}
		return api.NewClient(api.ClientConfig{Endpoint: ep, Token: token})
	}
}

// session joins a protocol client to a server.
func session(t *testing.T, server *sdk.Server) *sdk.ClientSession {
	t.Helper()
	ours, theirs := sdk.NewInMemoryTransports()
	running, err := server.Connect(t.Context(), theirs, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = running.Close() })
	s, err := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(), ours, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// call runs a tool and decodes what it returns; failure is what an agent reads
// of an error.
func call[T any](t *testing.T, s *sdk.ClientSession, tool string, args map[string]any) (out T, failure string) {
	t.Helper()
	res, err := s.CallTool(t.Context(), &sdk.CallToolParams{Name: tool, Arguments: args})
	if err != nil {
		t.Fatalf("%s: %v", tool, err)
	}
	if res.IsError {
		return out, res.Content[0].(*sdk.TextContent).Text
	}
	raw, err := json.Marshal(res.StructuredContent)
	if err == nil {
		err = json.Unmarshal(raw, &out)
	}
	if err != nil {
		t.Fatalf("%s: %v", tool, err)
	}
	return out, ""
}

func TestTools_Workspaces(t *testing.T) {
	_, connect := deployment(t)
	client, err := connect(apitest.UserToken)
	if err != nil {
		t.Fatal(err)
	}
	s := session(t, New(client, "test", quiet))
	tools, err := s.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, tool := range tools.Tools {
		names = append(names, tool.Name)
	}
	if got := strings.Join(names, " "); got != "create exec fork hibernate list read write" {
		t.Errorf("tools are %s", got)
	}
	if ws, failure := call[Workspace](t, s, "create", map[string]any{"name": "one"}); ws.Name != "one" || ws.State != "running" {
		t.Errorf("create: %+v, %q", ws, failure)
	}
	if ws, failure := call[Workspace](t, s, "fork", map[string]any{"workspace": "one", "name": "two"}); ws.Name != "two" {
		t.Errorf("fork: %+v, %q", ws, failure)
	}
	if ws, failure := call[Workspace](t, s, "hibernate", map[string]any{"workspace": "one"}); ws.State != "stopped" {
		t.Errorf("hibernate: %+v, %q", ws, failure)
	}
	if all, failure := call[list](t, s, "list", nil); len(all.Workspaces) != 2 {
		t.Errorf("list: %+v, %q", all, failure)
	}
	if _, failure := call[Workspace](t, s, "hibernate", map[string]any{"workspace": "none"}); !strings.Contains(failure, "none") || !strings.Contains(failure, "billet ws ls") {
		t.Errorf("hibernate of nothing: %q, want the name and what to do", failure)
	}
}

// TestTools_Guest works on a real agent.
func TestTools_Guest(t *testing.T) {
	a := guesttest.New(t)
	s := &server{log: quiet, enter: func(context.Context, string) (*execclient.Client, error) { return a.Client(), nil }}
	c := session(t, s.protocol("test"))
	dir := t.TempDir()
	run := func(args map[string]any) (execResult, string) {
		args["workspace"], args["user"] = "one", "root"
		return call[execResult](t, c, "exec", args)
	}
	out, failure := run(map[string]any{"command": "cat; pwd; echo no >&2; exit 3", "stdin": "in\n", "cwd": dir})
	if out.ExitCode != 3 || out.Stdout != "in\n"+dir+"\n" || out.Stderr != "no\n" || out.Truncated || out.TimedOut {
		t.Errorf("exec: %+v, %q", out, failure)
	}
	out, failure = run(map[string]any{"command": "yes | head -c 100000; echo end"})
	if !out.Truncated || len(out.Stdout) != maxOutput || !strings.HasSuffix(out.Stdout, "end\n") {
		t.Errorf("much output: %d bytes, truncated %v, %q", len(out.Stdout), out.Truncated, failure)
	}
	began := time.Now()
	out, failure = run(map[string]any{"command": "trap '' TERM; while :; do sleep 0.05; done", "timeout_seconds": 1})
	if !out.TimedOut || out.ExitCode != 137 || time.Since(began) > 20*time.Second {
		t.Errorf("one that does not end: %+v, %q after %v", out, failure, time.Since(began))
	}
	if _, failure := run(map[string]any{"command": "true", "timeout_seconds": 4000}); failure == "" {
		t.Error("a timeout beyond the limit was taken")
	}

	path := filepath.Join(dir, "a dir", "it's")
	binary := base64.StdEncoding.EncodeToString([]byte{0, 1, 255})
	for _, f := range []map[string]any{{"content": "text\n"}, {"content": binary, "encoding": "base64"}, {"content": ""}} {
		f["workspace"], f["path"], f["user"] = "one", path, "root"
		if _, failure := call[writeResult](t, c, "write", f); failure != "" {
			t.Fatalf("write: %s", failure)
		}
		got, failure := call[readResult](t, c, "read", map[string]any{"workspace": "one", "path": path, "user": "root"})
		if got.Content != f["content"] {
			t.Errorf("read: %+v, %q, want %q", got, failure, f["content"])
		}
	}
	if left, err := os.ReadDir(filepath.Dir(path)); err != nil || len(left) != 1 {
		t.Errorf("beside the file: %v, %v", left, err)
	}
	for _, bad := range []map[string]any{{"path": ""}, {"path": filepath.Join(dir, "missing")}, {"path": dir}} {
		bad["workspace"], bad["user"] = "one", "root"
		if _, failure := call[readResult](t, c, "read", bad); failure == "" {
			t.Errorf("read of %q worked", bad["path"])
		}
	}
}

// TestHandler_ActsByTheToken: over HTTP each request has the authority of its
// token, and none without one.
func TestHandler_ActsByTheToken(t *testing.T) {
	fake, connect := deployment(t)
	srv := httptest.NewServer(Handler(connect, "test", quiet))
	defer srv.Close()
	res, err := http.Post(srv.URL+Path, "application/json", strings.NewReader("{}"))
	if err != nil || res.StatusCode != http.StatusUnauthorized {
		t.Fatalf("without a token: %v, %v", res.StatusCode, err)
	}
	_ = res.Body.Close()
	dial := func(token string) *sdk.ClientSession {
		transport := &sdk.StreamableClientTransport{Endpoint: srv.URL + Path, HTTPClient: &http.Client{Transport: bearer(token)}}
		s, err := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(), transport, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		return s
	}
	if ws, failure := call[Workspace](t, dial(apitest.UserToken), "create", map[string]any{"name": "one"}); ws.Name != "one" {
		t.Errorf("as a user: %+v, %q", ws, failure)
	}
	if _, failure := call[list](t, dial(apitest.NodeToken), "list", nil); failure == "" {
		t.Error("a node's token lists workspaces")
	}
	if got := fake.Requests(); len(got) == 0 {
		t.Error("nothing reached the service")
	}
}

type bearer string

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(b))
	return http.DefaultTransport.RoundTrip(r)
}
