//go:build failpoint

package faults

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/config"
	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/model"
	"github.com/billethq/billet/internal/road"
	"github.com/billethq/billet/internal/testenv"
	"github.com/billethq/billet/internal/testenv/leaks"
)

// world is one deployment with its roles apart. Each has its own state
// directory, so that a test can lose one of them: server and gateway are in
// dir/s, the node is in dir/n, the object store is dir/objects.
type world struct {
	t      *testing.T
	dir    string
	path   string // where roles look for programs
	fail   string
	client *api.Client

	server, gateway, node *role
	more                  []*role // further nodes

	scope leaks.Scope
	known []string // on the host before the deployment, within the scope
	watch *watch
	acked map[string]string // file in the guest → its hash, as the guest's fsync acknowledged
}

// options change a deployment before it starts.
type options struct {
	server func(*config.Config)
	node   func(*config.Config)
}

// worlds numbers the deployments of this process.
var worlds atomic.Int32

// address returns a loopback address of the deployment's own, so that ports
// need not be guessed: two test processes differ in the process id, two
// deployments of one in their number.
func address(port int) string {
	pid, n := os.Getpid(), worlds.Add(1)
	return fmt.Sprintf("127.%d.%d.%d:%d", 1+pid/250%250, 1+pid%250, 1+n%250, port)
}

// deploy starts server, gateway and node, and has the image "base" made.
func deploy(t *testing.T, o options) *world {
	t.Helper()
	testenv.NeedRoot(t)
	testenv.NeedFUSE(t)
	testenv.NeedLoop(t)
	w := &world{
		t: t, dir: t.TempDir(), acked: map[string]string{},
		path: filepath.Dir(testenv.NeedRunsc(t)) + ":" + filepath.Dir(testenv.NeedGuest(t)) + ":" + os.Getenv("PATH"),
	}
	// All temporary directories of one test lie in one directory of its own.
	w.scope = leaks.Scope{Env: w.mark(), Dir: filepath.Dir(w.dir)}
	for _, l := range leaks.Find(w.scope) {
		w.known = append(w.known, l.String())
	}
	w.fail = filepath.Join(w.dir, "fail")
	busybox := testenv.NeedBinary(t, "busybox")
	for _, d := range []string{w.fail, w.dir + "/objects"} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(w.end)
	cfg := w.config("s")
	if o.server != nil {
		o.server(&cfg)
	}
	w.server = &role{w: w, name: roleServer, id: roleServer, cfg: cfg, fail: w.fail}
	gcfg := cfg
	gcfg.Node.Server = "unix://" + cfg.Socket()
	w.gateway = &role{w: w, name: roleGateway, id: roleGateway, cfg: gcfg, fail: w.fail}
	w.node = w.newNode("n", o.node)
	w.watch = newWatch(w)

	endpoint := api.Endpoint{Network: "unix", Address: cfg.Socket()}
	var err error
	if w.client, err = api.NewClient(api.ClientConfig{Endpoint: endpoint}); err != nil {
		t.Fatal(err)
	}
	w.server.start()
	await(t, "the server answers", func() error { return errors.Join(w.server.running(), w.client.Health(t.Context())) })
	w.gateway.start()
	w.join(w.node)
	w.image(busybox)
	return w
}

// join gives a node its token, starts it, and waits until it counts.
func (w *world) join(r *role) {
	w.t.Helper()
	tok, err := w.client.CreateToken(w.t.Context(), api.CreateTokenRequest{Name: r.id, Role: model.RoleNode})
	if err != nil {
		w.t.Fatal(err)
	}
	file := r.cfg.NodeTokenFile()
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		w.t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(tok.Secret+"\n"), 0o600); err != nil {
		w.t.Fatal(err)
	}
	r.start()
	w.awaitNode(r)
}

func (w *world) config(name string) config.Config {
	cfg := config.Default()
	cfg.State = filepath.Join(w.dir, name)
	cfg.StoreDir = filepath.Join(w.dir, "objects")
	cfg.APIListen, cfg.GatewayListen, cfg.SSHListen, cfg.EntranceListen = address(7480), address(7481), address(7422), address(7482)
	cfg.Node.Name = name
	cfg.Tiers = []model.Tier{{
		Name: "small", Image: "base", Drivers: []model.DriverName{model.DriverGVisor},
		Shape: model.Shape{VCPUs: 1, Memory: 256 << 20, Disk: 16 << 30, Processes: 1024, OpenFiles: 4096},
	}}
	return cfg
}

// newNode adds a node with a state directory of its own.
func (w *world) newNode(name string, change func(*config.Config)) *role {
	cfg := w.config(name)
	cfg.Node.Server = "unix://" + w.server.cfg.Socket()
	if change != nil {
		change(&cfg)
	}
	return &role{w: w, name: roleNode, id: name, cfg: cfg, fail: w.fail}
}

// roles lists all, in the order in which they start.
func (w *world) roles() []*role {
	return append([]*role{w.server, w.gateway, w.node}, w.more...)
}

func (w *world) mark() string { return "BILLET_FAULTS_WORLD=" + w.dir }

// awaitNode waits until r answers to the server.
func (w *world) awaitNode(r *role) {
	w.t.Helper()
	await(w.t, "node "+r.id, func() error {
		if err := errors.Join(w.server.running(), w.gateway.running(), r.running()); err != nil {
			return err
		}
		nodes, err := w.client.Nodes(w.t.Context())
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(nodes, func(n api.Node) bool { return n.Name == r.cfg.Node.Name && !n.Silent }) {
			return errNotYet
		}
		return nil
	})
}

// close deletes every workspace and wants nothing of them to be left.
func (w *world) close() {
	w.t.Helper()
	all, err := w.client.Workspaces(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	for _, ws := range all {
		if err := w.client.DeleteWorkspace(w.t.Context(), ws.Name, true); err != nil {
			w.t.Fatalf("delete %s: %v", ws.Name, err)
		}
	}
	await(w.t, "all is gone", func() error {
		all, err := w.client.Workspaces(w.t.Context())
		if err == nil && len(all) > 0 {
			err = fmt.Errorf("workspace %s is %s", all[0].Name, all[0].State)
		}
		for _, n := range w.roles()[2:] {
			if left, _ := filepath.Glob(filepath.Join(n.cfg.NodeDir(), "instances", "*")); err == nil && len(left) > 0 {
				err = fmt.Errorf("left on node %s: %v", n.id, left)
			}
		}
		return err
	})
}

// end stops the roles and, invariant 15, wants nothing on the host that this
// deployment made. After a failure it says what happened and tidies up.
func (w *world) end() {
	for _, r := range slices.Backward(w.roles()) {
		if r != nil {
			r.stop()
		}
	}
	if w.watch != nil {
		w.watch.end()
	}
	if w.t.Failed() {
		logs, _ := filepath.Glob(w.dir + "/*.log")
		more, _ := filepath.Glob(w.dir + "/*/node/instances/*/volume/volume.log")
		for _, file := range append(logs, more...) {
			w.t.Logf("%s:\n%s", strings.TrimPrefix(file, w.dir+"/"), tail(file))
		}
		w.removeLeft()
		return
	}
	w.leftNothing()
}

// dial opens a road to a workspace's agent.
func (w *world) dial(name string) func(ctx context.Context) (net.Conn, error) {
	return func(ctx context.Context) (net.Conn, error) {
		a, err := w.client.Attach(ctx, name)
		if err != nil {
			return nil, err
		}
		return road.Dial(ctx, a)
	}
}

// until waits for a state of a workspace.
func (w *world) until(name string, want api.WorkspaceState) api.Workspace {
	w.t.Helper()
	var got api.Workspace
	await(w.t, fmt.Sprintf("workspace %s is %s", name, want), func() (err error) {
		got, err = w.client.Workspace(w.t.Context(), name)
		if err == nil && got.State != want {
			err = fmt.Errorf("it is %s: failure %q, detail %q, flush error %q", got.State, got.Failure, got.Detail, got.FlushError)
		}
		return err
	})
	return got
}

// untilFailed waits for the end of a workspace's instance by itself.
func (w *world) untilFailed(name string, want model.Cause) api.Workspace {
	w.t.Helper()
	ws := w.until(name, api.WorkspaceFailed)
	if ws.Failure != want {
		w.t.Errorf("workspace %s has failed: got cause %q (%s), want %q", name, ws.Failure, ws.Detail, want)
	}
	return ws
}

func (w *world) create(name string) api.Workspace {
	w.t.Helper()
	if _, err := w.client.CreateWorkspace(w.t.Context(), "", api.CreateWorkspaceRequest{Name: name}); err != nil {
		w.t.Fatal(err)
	}
	return w.until(name, api.WorkspaceRunning)
}

// startAgain asks for a stopped workspace to run. A server that has just been
// started refuses for as long as it has not heard its nodes.
func (w *world) startAgain(name string) api.Workspace {
	w.t.Helper()
	await(w.t, "start "+name, func() error {
		_, err := w.client.StartWorkspace(w.t.Context(), name, api.StartWorkspaceRequest{})
		if err != nil && !errs.Is(err, errs.Unavailable) {
			w.t.Fatal(err)
		}
		return err
	})
	return w.until(name, api.WorkspaceRunning)
}

// stop wants the workspace stopped, with nothing unsaved.
func (w *world) stop(name string) api.Workspace {
	w.t.Helper()
	if _, err := w.client.StopWorkspace(w.t.Context(), name, api.StopWorkspaceRequest{Cold: true}); err != nil {
		w.t.Fatal(err)
	}
	ws := w.until(name, api.WorkspaceStopped)
	if ws.UnsavedBytes != 0 {
		w.t.Errorf("workspace %s is stopped with %d unsaved bytes", name, ws.UnsavedBytes)
	}
	return ws
}

// instanceDir is where the node keeps the instance of a workspace.
func (w *world) instanceDir(n *role, name string) string {
	w.t.Helper()
	ws, err := w.client.Workspace(w.t.Context(), name)
	if err != nil || ws.Instance == nil {
		w.t.Fatalf("workspace %s has no instance: %+v, %v", name, ws, err)
	}
	return filepath.Join(n.cfg.NodeDir(), "instances", string(ws.Instance.ID))
}

// kill9 ends a process; one that has ended already is no error.
func kill9(pid int) { _ = unix.Kill(pid, unix.SIGKILL) }

// killPID ends a process that is not ours to reap, and waits until it is gone.
func (w *world) killPID(pid int) {
	w.t.Helper()
	if !alive(pid) {
		w.t.Fatalf("process %d has ended before it was killed", pid)
	}
	kill9(pid)
	await(w.t, fmt.Sprintf("process %d is gone", pid), func() error {
		if alive(pid) {
			return errNotYet
		}
		return nil
	})
}
