// Package bench measures the figures that billet promises, each as a ratio
// against a baseline in the same run (see README.md).
package bench

import (
	"archive/tar"
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/clock"
	"github.com/billethq/billet/internal/guest/execclient"
	"github.com/billethq/billet/internal/road"
	"github.com/billethq/billet/internal/testenv"
)

// world is one `billet up` with an image "tiny" (a busybox and its names).
type world struct {
	b      *testing.B
	state  string
	cmd    *exec.Cmd
	client *api.Client
	tree   string // the image's content as a plain directory
	runsc  string
	log    string
}

func newWorld(b *testing.B) *world {
	b.Helper()
	testenv.NeedRoot(b)
	testenv.NeedFUSE(b)
	testenv.NeedLoop(b)
	billet, guest, runsc := testenv.NeedBillet(b), testenv.NeedGuest(b), testenv.NeedRunsc(b)
	state, err := os.MkdirTemp("/var/tmp", "billet-bench-")
	if err != nil {
		b.Fatal(err)
	}
	w := &world{b: b, state: state, tree: filepath.Join(state, "tree"), runsc: runsc, log: filepath.Join(state, "up.log")}
	b.Cleanup(func() { _ = os.RemoveAll(state) })
	b.Cleanup(removeGroups)
	w.plainTree()
	text := fmt.Sprintf(`state: %s
api: {listen: "%s"}
gateway: {listen: "%s", ssh: "off", http: "off"}
flush_every: 1s
tiers:
  - {name: tiny, vcpus: 1, memory: 512MiB, disk: 1GiB, image: tiny}
  - {name: server, vcpus: 1, memory: 512MiB, disk: 2GiB, image: server}
`, filepath.Join(state, "s"), freeAddr(b), freeAddr(b))
	config := filepath.Join(state, "billet.yaml")
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		b.Fatal(err)
	}
	w.start(billet, config, filepath.Dir(guest)+":"+filepath.Dir(runsc)+":"+os.Getenv("PATH"))
	w.image("tiny", 1<<30)
	return w
}

func freeAddr(b *testing.B) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func (w *world) start(billet, config, path string) {
	w.b.Helper()
	w.cmd = exec.Command(billet, "up", "--config", config)
	// The base image is not what is measured, and its build would run beside
	// the measurement: it gets a debootstrap that fails.
	bin := filepath.Join(w.state, "bin")
	if err := os.MkdirAll(bin, 0o755); err != nil {
		w.b.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(bin, "debootstrap"), []byte("#!/bin/sh\nexit 1\n"), 0o755); err != nil {
		w.b.Fatal(err)
	}
	w.cmd.Env = []string{"PATH=" + bin + ":" + path}
	log, err := os.Create(w.log)
	if err != nil {
		w.b.Fatal(err)
	}
	defer log.Close()
	w.cmd.Stderr = log
	out, err := w.cmd.StdoutPipe()
	if err != nil {
		w.b.Fatal(err)
	}
	if err := w.cmd.Start(); err != nil {
		w.b.Fatal(err)
	}
	w.b.Cleanup(func() {
		w.clear()
		_ = w.cmd.Process.Signal(syscall.SIGTERM)
		_ = w.cmd.Wait()
	})
	serving := make(chan bool, 1)
	go func() {
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			if strings.HasPrefix(lines.Text(), "serving") {
				serving <- true
			}
		}
		serving <- false
	}()
	if !<-serving {
		text, _ := os.ReadFile(w.log)
		w.b.Fatalf("billet up has ended: %s", text)
	}
	w.client, err = api.NewClient(api.ClientConfig{Endpoint: api.Endpoint{Network: "unix", Address: filepath.Join(w.state, "s", "billet.sock")}})
	if err != nil {
		w.b.Fatal(err)
	}
}

// clear removes every workspace: what billet started outlives it.
func (w *world) clear() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	testenv.Await(w.b, time.Minute, func() error {
		all, err := w.client.Workspaces(ctx)
		for _, ws := range all {
			_ = w.client.DeleteWorkspace(ctx, ws.Name, true)
		}
		if err == nil && len(all) > 0 {
			err = fmt.Errorf("%d workspaces are left", len(all))
		}
		return err
	})
}

var names = []string{"sh", "cat", "echo", "sync", "sleep", "dd", "ls", "true"}

// plainTree lays the image's content out as a directory.
func (w *world) plainTree() {
	w.b.Helper()
	for _, d := range []string{"bin", "etc", "root", "tmp", "proc", "sys", "dev", "run"} {
		if err := os.MkdirAll(filepath.Join(w.tree, d), 0o755); err != nil {
			w.b.Fatal(err)
		}
	}
	body, err := os.ReadFile(testenv.NeedBinary(w.b, "busybox"))
	if err != nil {
		w.b.Fatal(err)
	}
	write := func(name string, b []byte, mode os.FileMode) {
		if err := os.WriteFile(filepath.Join(w.tree, name), b, mode); err != nil {
			w.b.Fatal(err)
		}
	}
	write("bin/busybox", body, 0o755)
	write("etc/passwd", []byte("root:x:0:0:root:/root:/bin/sh\n"), 0o644)
	write("etc/group", []byte("root:x:0:\n"), 0o644)
	for _, n := range names {
		if err := os.Symlink("busybox", filepath.Join(w.tree, "bin", n)); err != nil {
			w.b.Fatal(err)
		}
	}
}

// image imports the tree over the road, as a client does.
func (w *world) image(name string, disk int64) {
	w.b.Helper()
	var buf bytes.Buffer
	tw := tar.NewWriter(&buf)
	if err := tw.AddFS(os.DirFS(w.tree)); err != nil {
		w.b.Fatal(err)
	}
	if err := tw.Close(); err != nil {
		w.b.Fatal(err)
	}
	a, err := w.client.AttachImages(w.b.Context(), api.AttachImagesRequest{Name: name, Kind: api.ImageStream})
	if err != nil {
		w.b.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return road.Dial(ctx, a) }}}
	q := url.Values{"name": {name}, "kind": {string(api.ImageStream)}, "disk": {fmt.Sprint(disk)}}
	res, err := client.Post("http://node"+api.ImagesPath+"?"+q.Encode(), "application/octet-stream", &buf)
	if err != nil {
		w.b.Fatal(err)
	}
	defer res.Body.Close()
	for dec := json.NewDecoder(res.Body); ; {
		var line api.ImageLine
		if err := dec.Decode(&line); err != nil {
			w.b.Fatalf("image import: %v", err)
		}
		if line.Problem != nil {
			w.b.Fatalf("image import: %v", line.Problem.Err())
		}
		if line.Image != nil {
			return
		}
	}
}

// until waits on the progress stream for a state.
func (w *world) until(name string, until api.Until) api.Workspace {
	w.b.Helper()
	var ws api.Workspace
	err := w.client.Progress(w.b.Context(), name, until, func(p api.Progress) error { ws = p.Workspace; return nil })
	if err != nil {
		text, _ := os.ReadFile(w.log)
		w.b.Fatalf("wait for %s: %v\n%s", name, err, text)
	}
	return ws
}

// exec runs a command in a guest and returns its output.
func (w *world) exec(name string, args ...string) string {
	w.b.Helper()
	return w.execWith(name, nil, args...)
}

func (w *world) execWith(name string, stdin io.Reader, args ...string) string {
	w.b.Helper()
	var out strings.Builder
	w.execTo(&out, name, stdin, args...)
	return out.String()
}

func (w *world) execTo(out io.Writer, name string, stdin io.Reader, args ...string) {
	w.b.Helper()
	c, err := execclient.New(execclient.Config{Log: slog.New(slog.DiscardHandler), Dial: func(ctx context.Context) (net.Conn, error) {
		a, err := w.client.Attach(ctx, name)
		if err != nil {
			return nil, err
		}
		return road.Dial(ctx, a)
	}})
	if err != nil {
		w.b.Fatal(err)
	}
	var errOut strings.Builder
	code, err := c.Run(w.b.Context(), execclient.Command{Args: args, User: "root", Stdin: stdin, Stdout: out, Stderr: &errOut})
	if err != nil || code != 0 {
		w.b.Fatalf("exec %q: code %d, %v, %s", args, code, err, errOut.String())
	}
}

func (w *world) create(name string, req api.CreateWorkspaceRequest) {
	w.b.Helper()
	req.Name = name
	if _, err := w.client.CreateWorkspace(w.b.Context(), "", req); err != nil {
		w.b.Fatal(err)
	}
	w.until(name, api.UntilRunning)
}

func (w *world) stop(name string) {
	w.b.Helper()
	if _, err := w.client.StopWorkspace(w.b.Context(), name, api.StopWorkspaceRequest{Cold: true}); err != nil {
		w.b.Fatal(err)
	}
	w.until(name, api.UntilStopped)
}

func (w *world) startAgain(name string) {
	w.b.Helper()
	if _, err := w.client.StartWorkspace(w.b.Context(), name, api.StartWorkspaceRequest{}); err != nil {
		w.b.Fatal(err)
	}
	w.until(name, api.UntilRunning)
}

func (w *world) remove(name string) {
	w.b.Helper()
	if err := w.client.DeleteWorkspace(w.b.Context(), name, true); err != nil {
		w.b.Fatal(err)
	}
}

// firstOutput is the time until an exec in a guest has printed something.
func (w *world) firstOutput(name string, began *clock.Stopwatch) time.Duration {
	w.b.Helper()
	first := make(firstByte, 1)
	w.execTo(first, name, nil, "/bin/echo", "hi")
	at := <-first
	return began.Elapsed() - time.Since(at)
}

// firstByte tells when the first write came.
type firstByte chan time.Time

func (f firstByte) Write(p []byte) (int, error) {
	select {
	case f <- time.Now():
	default:
	}
	return len(p), nil
}

// bareRun is the baseline: `runsc run` of echo on the plain directory under
// the same limits, from the call to its output.
func (w *world) bareRun() time.Duration {
	w.b.Helper()
	dir := w.b.TempDir()
	spec := map[string]any{
		"ociVersion": "1.0.0",
		"process":    map[string]any{"args": []string{"/bin/echo", "hi"}, "cwd": "/", "env": []string{"PATH=/bin"}},
		"root":       map[string]any{"path": w.tree},
		"linux": map[string]any{"cgroupsPath": "/" + bareGroup + "/bare", "resources": map[string]any{
			"memory": map[string]any{"limit": 512 << 20}, "pids": map[string]any{"limit": 4096},
			"cpu": map[string]any{"period": 100000, "quota": 100000}}, "namespaces": []map[string]string{
			{"type": "pid"}, {"type": "network"}, {"type": "ipc"}, {"type": "uts"}, {"type": "mount"}}},
	}
	body, err := json.Marshal(spec)
	if err != nil {
		w.b.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "config.json"), body, 0o600); err != nil {
		w.b.Fatal(err)
	}
	cmd := exec.Command(w.runsc, "--root="+filepath.Join(dir, "r"), "--platform=systrap", "--network=none", "--overlay2=none",
		"--gofer-network-namespace=new", "--sidecar-usage-policy=LEGACY_DEPRECATED_SLOW_EMBEDDED_FALLBACK",
		"run", "--bundle="+dir, "bare")
	out, err := cmd.StdoutPipe()
	if err != nil {
		w.b.Fatal(err)
	}
	var errOut strings.Builder
	cmd.Stderr = &errOut
	began := time.Now()
	if err := cmd.Start(); err != nil {
		w.b.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	took := time.Since(began)
	if err != nil || line != "hi\n" {
		w.b.Fatalf("bare runsc: got %q, %v, %s", line, err, errOut.String())
	}
	_, _ = io.Copy(io.Discard, out)
	_ = cmd.Wait()
	return took
}

// removeGroups removes the parents of the cgroups that bare runs made.
func removeGroups() {
	groups, _ := filepath.Glob("/sys/fs/cgroup/*/" + bareGroup)
	for _, g := range append(groups, "/sys/fs/cgroup/"+bareGroup) {
		_ = os.Remove(g) // gone already, or another version's
	}
}

// bareGroup is the cgroup of the baseline's sandboxes.
const bareGroup = "billet-bench"

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }

// quantile returns the q-th of xs.
func quantile(xs []float64, q float64) float64 {
	s := slices.Clone(xs)
	slices.Sort(s)
	return s[min(len(s)-1, int(q*float64(len(s))))]
}

// reportPairs prints the median ratio and its p95, and both medians in ms.
func reportPairs(b *testing.B, ours, theirs []time.Duration) {
	b.Helper()
	ratio := make([]float64, len(ours))
	a, c := make([]float64, len(ours)), make([]float64, len(ours))
	for i := range ours {
		ratio[i] = ours[i].Seconds() / theirs[i].Seconds()
		a[i], c[i] = ours[i].Seconds()*1000, theirs[i].Seconds()*1000
	}
	b.ReportMetric(quantile(ratio, 0.5), "ratio-p50")
	b.ReportMetric(quantile(ratio, 0.95), "ratio-p95")
	b.ReportMetric(quantile(a, 0.5), "ours-ms")
	b.ReportMetric(quantile(c, 0.5), "baseline-ms")
	b.ReportMetric(0, "ns/op")
}
