package agent_test

import (
	"io"
	"strings"
	"testing"

	"github.com/billethq/billet/internal/guest/guesttest"
)

// Each service is behind the agent; what is the host's alone is not.
func TestAgent_ServesTheContractsRoutes(t *testing.T) {
	c := newCaller(t, guesttest.New(t))
	for _, k := range []struct {
		method, path, body, kind string
		status                   int
		want                     string
	}{
		{"POST", "/filesystem.Filesystem/Stat", `{"path":"/"}`, "application/json", 200, "FILE_TYPE_DIRECTORY"},
		{"GET", "/files?path=/proc/version", "", "", 200, "Linux"},
		{"POST", "/files/compose", `{}`, "application/json", 400, "destination"},
		{"GET", "/metrics", "", "", 200, "cpu_count"},
		{"GET", "/envs", "", "", 200, "{}"},
		{"GET", "/health", "", "", 204, ""},
		{"POST", "/init", `{}`, "application/json", 404, ""},
		{"POST", "/freeze", `{}`, "application/json", 404, ""},
	} {
		res := c.do(k.method, k.path, k.body, asRoot, "Content-Type: "+k.kind)
		b, err := io.ReadAll(res.Body)
		if err != nil || res.StatusCode != k.status || !strings.Contains(string(b), k.want) {
			t.Errorf("%s %s: %d %.200s, %v; want %d with %q", k.method, k.path, res.StatusCode, b, err, k.status, k.want)
		}
	}
}
