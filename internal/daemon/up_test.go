package daemon

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/config"
	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/guest/execclient"
	"github.com/billethq/billet/internal/node"
	"github.com/billethq/billet/internal/road"
	"github.com/billethq/billet/internal/testenv"
)

// TestMain makes the test binary its own volume process, as billet is.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == "volume" {
		os.Exit(VolumeMain(os.Stdin, os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

// home is a state directory with the programs that daemons look for.
func home(t *testing.T) config.Config {
	t.Helper()
	t.Setenv("PATH", filepath.Dir(testenv.NeedGuest(t))+":"+filepath.Dir(testenv.NeedRunsc(t))+":"+os.Getenv("PATH"))
	cfg := config.Default()
	cfg.State = t.TempDir()
	cfg.APIListen, cfg.GatewayListen, cfg.SSHListen, cfg.EntranceListen = freeAddr(t), freeAddr(t), freeAddr(t), freeAddr(t)
	cfg.Tiers = cfg.Tiers[:1]
	return cfg
}

func freeAddr(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// deployment is what `billet up` runs, in this process.
type deployment struct {
	t      *testing.T
	cfg    config.Config
	client *api.Client
	cancel context.CancelFunc
	done   chan error
	node   *nodeParts
}

// up composes the roles as Up does, but for the base image, which the tests
// make from a busybox.
func up(t *testing.T, cfg config.Config) *deployment {
	t.Helper()
	out := io.Discard
	if testing.Verbose() {
		out = t.Output()
	}
	opts := Options{Config: cfg, Version: "test", Out: out, Log: slog.New(slog.NewTextHandler(out, nil))}
	ctx, cancel := context.WithCancel(context.Background())
	d := &deployment{t: t, cfg: cfg, cancel: cancel, done: make(chan error, 1)}
	ready := make(chan *nodeParts, 1)
	go func() {
		d.done <- compose(ctx, opts, func(_ context.Context, _ *controlPlane, n *nodeParts) { ready <- n })
	}()
	select {
	case d.node = <-ready:
	case err := <-d.done:
		t.Fatalf("up: %v", err)
	case <-time.After(60 * time.Second):
		t.Fatal("up is not ready")
	}
	c, err := api.NewClient(api.ClientConfig{Endpoint: api.Endpoint{Network: "unix", Address: cfg.Socket()}})
	if err != nil {
		t.Fatal(err)
	}
	d.client = c
	return d
}

func (d *deployment) down() {
	d.t.Helper()
	d.cancel()
	if err := <-d.done; err != nil {
		d.t.Errorf("up ended with %v", err)
	}
}

func (d *deployment) image(name string) {
	d.t.Helper()
	busybox := testenv.NeedBinary(d.t, "busybox")
	_, err := d.node.node.BuildImage(d.t.Context(), node.ImageRequest{Name: name, Kind: api.ImageStream, Source: "busybox"},
		bytes.NewReader(busyboxTar(d.t, busybox)), func(api.ImageProgress) {})
	if err != nil {
		d.t.Fatalf("image: %v", err)
	}
}

// until waits for a state of a workspace.
func (d *deployment) until(name string, want api.WorkspaceState) api.Workspace {
	d.t.Helper()
	var w api.Workspace
	testenv.Await(d.t, 60*time.Second, func() (err error) {
		w, err = d.client.Workspace(d.t.Context(), name)
		if err == nil && w.State != want {
			return fmt.Errorf("workspace %s is %s (%s %s), want %s", name, w.State, w.Failure, w.Detail, want)
		}
		return err
	})
	return w
}

func (d *deployment) exec(name string, args ...string) string {
	d.t.Helper()
	c, err := execclient.New(execclient.Config{Log: slog.New(slog.DiscardHandler), Dial: func(ctx context.Context) (net.Conn, error) {
		a, err := d.client.Attach(ctx, name)
		if err != nil {
			return nil, err
		}
		return road.Dial(ctx, a)
	}})
	if err != nil {
		d.t.Fatal(err)
	}
	var out, errOut strings.Builder
	code, err := c.Run(d.t.Context(), execclient.Command{Args: args, User: "root", Stdout: &out, Stderr: &errOut})
	if err != nil || code != 0 {
		d.t.Fatalf("exec %q: code %d, %v, stderr %s", args, code, err, errOut.String())
	}
	return out.String()
}

func TestUp_WorkspaceLivesThroughStopAndStart(t *testing.T) {
	testenv.NeedRoot(t)
	testenv.NeedFUSE(t)
	testenv.NeedLoop(t)
	testenv.LeakCheck(t)
	cfg := home(t)
	d := up(t, cfg)
	d.image("base")
	if _, err := d.client.CreateWorkspace(t.Context(), "", api.CreateWorkspaceRequest{Name: "one"}); err != nil {
		t.Fatal(err)
	}
	d.until("one", api.WorkspaceRunning)
	d.exec("one", "/bin/sh", "-c", "echo kept > /root/file; sync")
	d.down()

	// The sandbox has run on without billet, and the next start adopts it.
	d = up(t, cfg)
	d.until("one", api.WorkspaceRunning)
	if got := d.exec("one", "/bin/cat", "/root/file"); got != "kept\n" {
		t.Errorf("after adoption: got %q, want kept", got)
	}
	if _, err := d.client.StopWorkspace(t.Context(), "one", api.StopWorkspaceRequest{}); err != nil {
		t.Fatal(err)
	}
	stopped := d.until("one", api.WorkspaceStopped)
	if stopped.HeadSeq == 0 || stopped.UnsavedBytes != 0 {
		t.Errorf("after the stop: got seq %d and %d unsaved bytes, want a snapshot and none", stopped.HeadSeq, stopped.UnsavedBytes)
	}
	if _, err := d.client.Attach(t.Context(), "one"); !errs.Is(err, errs.Conflict) || errs.HintOf(err) == "" {
		t.Errorf("attach to a stopped workspace: got %v, want a conflict with a hint", err)
	}
	d.down()

	// A lost host: everything local of the node is gone.
	if err := os.RemoveAll(cfg.NodeDir()); err != nil {
		t.Fatal(err)
	}
	d = up(t, cfg)
	if _, err := d.client.StartWorkspace(t.Context(), "one", api.StartWorkspaceRequest{}); err != nil {
		t.Fatal(err)
	}
	w := d.until("one", api.WorkspaceRunning)
	if got := d.exec("one", "/bin/cat", "/root/file"); got != "kept\n" {
		t.Errorf("from the object store: got %q, want kept", got)
	}
	if w.Epoch != 2 {
		t.Errorf("epoch of the second instance: got %d, want 2", w.Epoch)
	}
	if err := d.client.DeleteWorkspace(t.Context(), "one", true); err != nil {
		t.Fatal(err)
	}
	d.gone("one")
	// The node hears last that nobody asks for what is left any more.
	testenv.Await(t, 30*time.Second, func() error {
		if left, _ := filepath.Glob(filepath.Join(cfg.NodeDir(), "instances", "*")); len(left) > 0 {
			return fmt.Errorf("left on the node: %v", left)
		}
		return nil
	})
	d.down()
}

func (d *deployment) gone(name string) {
	d.t.Helper()
	testenv.Await(d.t, 30*time.Second, func() error {
		if _, err := d.client.Workspace(d.t.Context(), name); !errs.Is(err, errs.NotFound) {
			return fmt.Errorf("workspace %s is still there: %v", name, err)
		}
		return nil
	})
}

func TestUp_SecondOnOneStateDirectoryIsRefused(t *testing.T) {
	dir := t.TempDir()
	release, err := lockDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	if _, err := lockDir(dir); !errs.Is(err, errs.Conflict) || errs.HintOf(err) == "" {
		t.Errorf("got %v, want a conflict with a hint", err)
	}
}

// A port that is taken is found before anything is made.
func TestUp_TakenPortLeavesNoLedger(t *testing.T) {
	cfg := config.Default()
	cfg.State = t.TempDir()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	cfg.APIListen, cfg.GatewayListen, cfg.SSHListen, cfg.EntranceListen = l.Addr().String(), freeAddr(t), freeAddr(t), freeAddr(t)
	err = Up(t.Context(), Options{Config: cfg, Out: io.Discard, Log: slog.New(slog.DiscardHandler)})
	if !errs.Is(err, errs.Conflict) || errs.HintOf(err) == "" {
		t.Errorf("got %v, want a conflict with a hint", err)
	}
	if _, err := os.Stat(filepath.Join(cfg.ServerDir(), "ledger.db")); err == nil {
		t.Error("a ledger was made")
	}
}
