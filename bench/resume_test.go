package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/sync/errgroup"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/clock"
	"github.com/billethq/billet/internal/guest/execclient"
	"github.com/billethq/billet/internal/guest/portclient"
	"github.com/billethq/billet/internal/road"
	"github.com/billethq/billet/internal/testenv"
)

// serverMemory is what the server of these benchmarks holds, all of it random:
// no page is zero, and none compresses.
const serverMemory = 128 << 20

// serverScript is an HTTP server that can be told from another one: it answers
// with what it drew when it started. It says on its disk when it is up.
const serverScript = `
import http.server, os
held = [os.urandom(1 << 20) for _ in range(%d)]
name = os.urandom(8).hex().encode()
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", str(len(name)))
        self.end_headers()
        self.wfile.write(name)
    def log_message(self, *a): pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 8000), Handler)
open("/root/up", "w").write("up")
server.serve_forever()
`

// BenchmarkResume: from the connection to a hibernated workspace to the first
// byte that its server, which was running, answers; against bare `runsc
// restore` of the same server from local files. Target: ≤ 2, with the memory in
// the host's cache.
func BenchmarkResume(b *testing.B) { benchResume(b, func(*world) {}) }

// BenchmarkResumeCold is the same with nothing in the host's cache: disk and
// memory come from the object store.
func BenchmarkResumeCold(b *testing.B) {
	benchResume(b, func(w *world) {
		if err := os.RemoveAll(filepath.Join(w.state, "s", "node", "cache")); err != nil {
			w.b.Fatal(err)
		}
	})
}

func benchResume(b *testing.B, before func(*world)) {
	w := newWorld(b)
	name := w.serve("s")
	bare := w.bareImage()
	var ours, theirs []time.Duration
	for b.Loop() {
		w.hibernate("s")
		before(w)
		rest()
		began := clock.Start()
		got, phases := w.askServer("s")
		ours = append(ours, began.Elapsed())
		if got != name {
			b.Fatalf("the server answers %q, the one that was running %q", got, name)
		}
		b.Logf("%v: %s", ours[len(ours)-1].Round(time.Millisecond), phases)
		rest()
		theirs = append(theirs, bare.restore())
	}
	reportPairs(b, ours, theirs)
}

// BenchmarkHibernate: from the request to stop to the workspace being stopped,
// against a bare checkpoint and writing its pages once, compressed as blocks
// are. Target: ≤ 2.
func BenchmarkHibernate(b *testing.B) {
	w := newWorld(b)
	w.serve("s")
	bare := w.bareImage()
	var ours, theirs []time.Duration
	for b.Loop() {
		rest()
		began := clock.Start()
		w.hibernate("s")
		ours = append(ours, began.Elapsed())
		w.askServer("s")
		rest()
		theirs = append(theirs, bare.checkpoint())
	}
	reportPairs(b, ours, theirs)
}

func (w *world) hibernate(name string) {
	w.b.Helper()
	if _, err := w.client.StopWorkspace(w.b.Context(), name, api.StopWorkspaceRequest{}); err != nil {
		w.b.Fatal(err)
	}
	if ws := w.until(name, api.UntilStopped); ws.NextResume == nil || ws.NextResume.How != api.ResumeMemory {
		w.b.Fatalf("next resume: %+v", ws.NextResume)
	}
}

// serve makes a workspace with the server running, and returns its name.
func (w *world) serve(name string) string {
	w.b.Helper()
	w.pythonTree()
	w.image("server", 2<<30)
	w.create(name, api.CreateWorkspaceRequest{Tier: "server"})
	c, err := execclient.New(execclient.Config{Log: discard(), Dial: func(ctx context.Context) (net.Conn, error) {
		a, err := w.client.Attach(ctx, name)
		if err != nil {
			return nil, err
		}
		return road.Dial(ctx, a)
	}})
	if err != nil {
		w.b.Fatal(err)
	}
	cmd := execclient.Command{Args: []string{"/bin/sh", "-c", "python3 /srv/server.py >/dev/null 2>&1 & while [ ! -e /root/up ]; do sleep 0.1; done"}, User: "root"}
	if code, err := c.Run(w.b.Context(), cmd); err != nil || code != 0 {
		w.b.Fatalf("start the server: code %d, %v", code, err)
	}
	got, _ := w.askServer(name)
	return got
}

// askServer connects to a workspace and asks the server in it.
func (w *world) askServer(name string) (answer, phases string) {
	w.b.Helper()
	var said []string
	a, err := w.client.Connect(w.b.Context(), name, api.ConnectRequest{}, func(p api.ConnectPhase) {
		said = append(said, fmt.Sprintf("%s %d ms", p.Name, p.ElapsedMilli))
	})
	if err != nil {
		w.b.Fatal(err)
	}
	dial := func(ctx context.Context) (net.Conn, error) { return road.Dial(ctx, a) }
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return portclient.DialPort(ctx, dial, "tcp", "127.0.0.1:8000")
	}}}
	res, err := client.Get("http://server/")
	if err != nil {
		w.b.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		w.b.Fatal(err)
	}
	return string(body), strings.Join(said, ", ")
}

// pythonTree adds this host's Python and the server to the image's content.
func (w *world) pythonTree() {
	w.b.Helper()
	python, err := filepath.EvalSymlinks(testenv.NeedBinary(w.b, "/usr/bin/python3"))
	if err != nil {
		w.b.Fatal(err)
	}
	libraries, err := exec.Command("sh", "-c", `ldd "$1" | grep -o '/[^ ]*'`, "sh", python).Output()
	if err != nil {
		w.b.Fatal(err)
	}
	script := `set -e
		for f in $2; do mkdir -p "$1$(dirname "$f")"; cp -L "$f" "$1$f"; done
		mkdir -p "$1/usr/bin" "$1/usr/lib" "$1/srv"
		cp "$3" "$1/bin/python3"
		cp -r "/usr/lib/$(basename "$3")" "$1/usr/lib/"
		rm -rf "$1/usr/lib/$(basename "$3")"/config-* "$1/usr/lib/$(basename "$3")"/test`
	if out, err := exec.Command("sh", "-c", script, "sh", w.tree, string(libraries), python).CombinedOutput(); err != nil {
		w.b.Fatalf("%v: %s", err, out)
	}
	text := fmt.Sprintf(serverScript, serverMemory>>20)
	if err := os.WriteFile(filepath.Join(w.tree, "srv/server.py"), []byte(text), 0o644); err != nil {
		w.b.Fatal(err)
	}
}

// bareImage is a checkpoint of the same server under bare runsc.
type bareImage struct {
	w    *world
	dir  string // bundle
	runs int
}

func (w *world) bareImage() *bareImage {
	w.b.Helper()
	m := &bareImage{w: w, dir: w.b.TempDir()}
	spec := map[string]any{
		"ociVersion": "1.0.0",
		"process": map[string]any{"args": []string{"/bin/python3", "/srv/server.py"}, "cwd": "/", "env": []string{"PATH=/bin"},
			"capabilities": map[string]any{}},
		"root": map[string]any{"path": w.tree},
		"linux": map[string]any{"cgroupsPath": "/" + bareGroup + "/resume", "resources": map[string]any{
			"memory": map[string]any{"limit": 512 << 20}, "pids": map[string]any{"limit": 4096},
			"cpu": map[string]any{"period": 100000, "quota": 100000}}, "namespaces": []map[string]string{
			{"type": "pid"}, {"type": "network"}, {"type": "ipc"}, {"type": "uts"}, {"type": "mount"}}},
	}
	body, err := json.Marshal(spec)
	if err != nil {
		w.b.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(m.dir, "config.json"), body, 0o600); err != nil {
		w.b.Fatal(err)
	}
	w.b.Cleanup(func() { m.delete() })
	m.runsc("run", "--detach", "--bundle="+m.dir)
	up := filepath.Join(w.tree, "root/up")
	testenv.Await(w.b, time.Minute, func() error { _, err := os.Stat(up); return err })
	m.checkpoint()
	m.delete()
	return m
}

func (m *bareImage) image() string { return filepath.Join(m.dir, "image") }

// runsc runs one command; the container has a name of its own each time.
func (m *bareImage) runsc(verb string, flags ...string) time.Duration {
	m.w.b.Helper()
	if verb == "run" || verb == "restore" {
		m.runs++
	}
	args := []string{"--root=" + filepath.Join(m.dir, "r"), "--platform=systrap", "--network=none", "--overlay2=none",
		"--gofer-network-namespace=new", "--sidecar-usage-policy=LEGACY_DEPRECATED_SLOW_EMBEDDED_FALLBACK", verb}
	cmd := exec.Command(m.w.runsc, append(append(args, flags...), fmt.Sprintf("c%d", m.runs))...)
	log, err := os.Create(filepath.Join(m.dir, "log"))
	if err != nil {
		m.w.b.Fatal(err)
	}
	defer log.Close()
	cmd.Stderr = log // a file: the sandbox keeps it
	began := clock.Start()
	if err := cmd.Run(); err != nil {
		text, _ := os.ReadFile(log.Name())
		m.w.b.Fatalf("bare runsc %s: %v: %s", verb, err, text)
	}
	return began.Elapsed()
}

func (m *bareImage) restore() time.Duration {
	m.w.b.Helper()
	defer m.delete()
	return m.runsc("restore", "--detach", "--bundle="+m.dir, "--image-path="+m.image())
}

func (m *bareImage) delete() { m.runsc("delete", "--force") }

// checkpoint takes the memory of the running container, or of one that it
// restores for that, and writes the pages compressed.
func (m *bareImage) checkpoint() time.Duration {
	m.w.b.Helper()
	if _, err := os.Stat(m.image()); err == nil {
		m.runsc("restore", "--detach", "--bundle="+m.dir, "--image-path="+m.image())
		defer m.delete()
	}
	next := m.image() + ".new"
	if err := os.RemoveAll(next); err != nil {
		m.w.b.Fatal(err)
	}
	began := clock.Start()
	m.runsc("checkpoint", "--leave-running", "--compression=none", "--exclude-committed-zero-pages", "--image-path="+next)
	m.compress(filepath.Join(next, "pages.img"))
	took := began.Elapsed()
	if err := os.RemoveAll(m.image()); err != nil {
		m.w.b.Fatal(err)
	}
	if err := os.Rename(next, m.image()); err != nil {
		m.w.b.Fatal(err)
	}
	return took
}

// compress writes a file once more, in blocks of 1 MiB, by as many workers as
// there are processors here.
func (m *bareImage) compress(path string) {
	m.w.b.Helper()
	in, err := os.Open(path)
	if err != nil {
		m.w.b.Fatal(err)
	}
	defer in.Close()
	out, err := os.Create(filepath.Join(m.dir, "compressed"))
	if err != nil {
		m.w.b.Fatal(err)
	}
	defer out.Close()
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest))
	if err != nil {
		m.w.b.Fatal(err)
	}
	var group errgroup.Group
	group.SetLimit(2)
	for r := bufio.NewReaderSize(in, 1<<20); ; {
		block := make([]byte, 1<<20)
		n, err := io.ReadFull(r, block)
		if n > 0 {
			group.Go(func() error {
				_, err := out.Write(enc.EncodeAll(block[:n], nil))
				return err
			})
		}
		if err != nil {
			break
		}
	}
	if err := group.Wait(); err != nil {
		m.w.b.Fatal(err)
	}
}
