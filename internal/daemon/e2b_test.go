package daemon

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/node"
	"github.com/billethq/billet/internal/testenv"
)

// clientsTime bounds the clients' run: several times what it takes.
const clientsTime = 5 * time.Minute

// TestE2B_RealClients drives a deployment with the published clients of the E2B
// API. They are installed into build/e2b, once, by what test/e2b pins.
func TestE2B_RealClients(t *testing.T) {
	testenv.NeedRoot(t)
	testenv.NeedFUSE(t)
	testenv.NeedLoop(t)
	js := testenv.NeedBinary(t, "node")
	clients := e2bClients(t)
	testenv.LeakCheck(t)
	cfg := home(t)
	cfg.Tiers[0].Shape.Memory = 256 << 20
	d := up(t, cfg)
	defer d.down()
	defer d.removeAll()
	shell := testenv.NeedBinary(t, "bash")
	if _, err := d.node.node.BuildImage(t.Context(), node.ImageRequest{Name: "base", Kind: api.ImageStream, Source: "bash"},
		bytes.NewReader(bashTar(t, testenv.NeedBinary(t, "busybox"), shell)), func(api.ImageProgress) {}); err != nil {
		t.Fatalf("image: %v", err)
	}
	k, err := d.client.CreateToken(t.Context(), api.CreateTokenRequest{Name: "bot", E2B: true})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), clientsTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, js, filepath.Join(clients, "driver.mjs"))
	url := "http://" + cfg.APIListen
	cmd.Env = append(os.Environ(), "E2B_API_KEY="+k.Secret, "E2B_API_URL="+url, "E2B_SANDBOX_URL="+url, "HOME="+t.TempDir())
	cmd.Stdout, cmd.Stderr = t.Output(), t.Output()
	if err := cmd.Run(); err != nil {
		t.Errorf("the clients: %v", err)
	}
}

// removeAll leaves no workspace behind, and none of those that were killed.
func (d *deployment) removeAll() {
	d.t.Helper()
	ctx := context.WithoutCancel(d.t.Context())
	for _, list := range []func(context.Context) ([]api.Workspace, error){d.client.Workspaces, d.client.KilledWorkspaces} {
		all, err := list(ctx)
		if err != nil {
			d.t.Error(err)
		}
		for _, ws := range all {
			if err := d.client.DeleteWorkspace(ctx, string(ws.ID), true); err != nil {
				d.t.Error(err)
			}
		}
	}
	testenv.Await(d.t, time.Minute, func() error {
		nodes, err := d.client.Nodes(ctx)
		if err == nil && nodes[0].Instances > 0 {
			return fmt.Errorf("%d instances are still there", nodes[0].Instances)
		}
		return err
	})
}

// e2bClients installs the clients unless what is there is what is pinned.
func e2bClients(t *testing.T) string {
	t.Helper()
	npm := testenv.NeedBinary(t, "npm")
	from, err := filepath.Abs("../../test/e2b")
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(from, "../../build/e2b")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	put := func(name string) (changed bool) {
		want, err := os.ReadFile(filepath.Join(from, name))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(filepath.Join(dir, name)); err == nil && bytes.Equal(got, want) {
			return false
		}
		if err := os.WriteFile(filepath.Join(dir, name), want, 0o644); err != nil {
			t.Fatal(err)
		}
		return true
	}
	put("driver.mjs")
	changed := put("package.json")
	changed = put("package-lock.json") || changed
	if _, err := os.Stat(filepath.Join(dir, "node_modules")); err == nil && !changed {
		return dir
	}
	cmd := exec.CommandContext(t.Context(), npm, "ci", "--no-audit", "--no-fund", "--ignore-scripts")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Skipf("the clients cannot be installed: %v: %s", err, out)
	}
	return dir
}

// bashTar is a guest as the clients expect one: bash, and an account "user".
func bashTar(t *testing.T, busybox, bash string) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	add := func(h tar.Header, b []byte) {
		h.Size = int64(len(b))
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(b); err != nil {
			t.Fatal(err)
		}
	}
	file := func(path, name string) {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		add(tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o755}, b)
	}
	for _, d := range []string{"bin/", "etc/", "root/", "home/", "lib/", "lib64/", "lib/x86_64-linux-gnu/"} {
		add(tar.Header{Name: d, Typeflag: tar.TypeDir, Mode: 0o755}, nil)
	}
	add(tar.Header{Name: "tmp/", Typeflag: tar.TypeDir, Mode: 0o1777}, nil)
	add(tar.Header{Name: "home/user/", Typeflag: tar.TypeDir, Mode: 0o755, Uid: 1000, Gid: 1000}, nil)
	file(busybox, "bin/busybox")
	for _, n := range []string{"sh", "cat", "echo", "sync", "sleep", "ls", "id", "stty", "mkdir", "rm", "true", "pwd", "nc"} {
		add(tar.Header{Name: "bin/" + n, Typeflag: tar.TypeSymlink, Linkname: "busybox"}, nil)
	}
	file(bash, "bin/bash")
	out, err := exec.CommandContext(t.Context(), "ldd", bash).Output()
	if err != nil {
		t.Fatalf("ldd: %v", err)
	}
	for field := range strings.FieldsSeq(string(out)) {
		if strings.HasPrefix(field, "/") {
			file(field, strings.TrimPrefix(field, "/"))
		}
	}
	text := func(name, s string) { add(tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644}, []byte(s)) }
	text("etc/passwd", "root:x:0:0:root:/root:/bin/bash\nuser:x:1000:1000:user:/home/user:/bin/bash\n")
	text("etc/group", "root:x:0:\nuser:x:1000:\n")
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}
