//go:build failpoint

package faults

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/config"
	"github.com/billethq/billet/internal/failpoint"
)

// twoNodes is a deployment with a workspace on the node n, and a node b with
// more room, which is where the workspace goes next.
func twoNodes(t *testing.T) (w *world, b *role) {
	t.Helper()
	return twoNodesThrough(t, nil)
}

// twoNodesThrough has a relay between n and the server.
func twoNodesThrough(t *testing.T, r *relay) (w *world, b *role) {
	t.Helper()
	w = deploy(t, options{
		server: func(cfg *config.Config) {
			cfg.FlushEvery = 200 * time.Millisecond
			if r != nil {
				r.socket = cfg.Socket()
			}
		},
		node: func(cfg *config.Config) {
			cfg.Node.Capacity.Memory = 1 << 30
			if r != nil {
				cfg.Node.Server = r.URL
			}
		},
	})
	w.create("one")
	w.write("one", "a")
	w.untilSaved("one")
	b = w.newNode("b", func(cfg *config.Config) { cfg.Node.Capacity.Memory = 8 << 30 })
	b.fail = filepath.Join(w.dir, "fail-b")
	if err := os.MkdirAll(b.fail, 0o700); err != nil {
		t.Fatal(err)
	}
	w.more = append(w.more, b)
	w.join(b)
	return w, b
}

// untilSaved waits until everything that was written before the call is
// durable. It sees two flushes end, because the first may have begun earlier.
func (w *world) untilSaved(name string) (ws api.Workspace) {
	w.t.Helper()
	for range 2 {
		began := time.Now()
		await(w.t, name+" is saved", func() (err error) {
			ws, err = w.client.Workspace(w.t.Context(), name)
			if err == nil && ws.DurableAt.Before(began) {
				err = fmt.Errorf("it is durable as of %s, flush error %q", ws.DurableAt, ws.FlushError)
			}
			return err
		})
	}
	return ws
}

// takeOver starts the workspace on the other node, although the first has not
// been proved gone.
func (w *world) takeOver(name string, to *role) {
	w.t.Helper()
	w.watch.allow(2) // a person has asked for it
	if _, err := w.client.StartWorkspace(w.t.Context(), name, api.StartWorkspaceRequest{FromSnapshot: true, Force: true}); err != nil {
		w.t.Fatal(err)
	}
	if ws := w.until(name, api.WorkspaceRunning); ws.Instance == nil || ws.Instance.Node != to.cfg.Node.Name {
		w.t.Fatalf("workspace %s runs as %+v, want it on node %s", name, ws.Instance, to.id)
	}
}

// fenced wants the instance to be gone from a node: no guest, no record, and
// its overlay kept aside.
// invariant 3
func (w *world) fenced(n *role, instance string) {
	w.t.Helper()
	await(w.t, "the overtaken instance is gone", func() error {
		for _, s := range sandboxes(w.scope.Dir) {
			if s.instance == instance {
				return fmt.Errorf("its guest runs as process %d", s.pid)
			}
		}
		if _, err := os.Stat(filepath.Join(n.cfg.NodeDir(), "instances", instance)); err == nil {
			return fmt.Errorf("its directory is there")
		}
		return nil
	})
	if kept, _ := filepath.Glob(filepath.Join(n.cfg.NodeDir(), "aside", instance, "overlay", "*")); len(kept) == 0 {
		w.t.Error("its overlay was not kept aside")
	}
}

// TestMoved_StaleFlush: a node stands right before the commit of a flush, and
// is then stopped in its tracks while its workspace starts elsewhere. When it
// goes on it commits nothing, and the head stays the other's.
// invariant 3
func TestMoved_StaleFlush(t *testing.T) {
	t.Parallel()
	w, b := twoNodes(t)
	stale := filepath.Base(w.instanceDir(w.node, "one"))
	w.arm(failpoint.FlushUncommitted)
	w.sh("one", "echo late > /root/late && sync")
	w.hit(failpoint.FlushUncommitted)
	w.node.signal(syscall.SIGSTOP)

	w.takeOver("one", b)
	w.holds("one")
	w.write("one", "b")
	before := w.untilSaved("one")

	w.disarm(failpoint.FlushUncommitted)
	w.node.signal(syscall.SIGCONT)
	w.fenced(w.node, stale)
	// Its commit was refused, or it heard first that it is fenced and gave the
	// flush up: the test below has only the refusal.
	w.committedUnder("one", before)
	w.holds("one")
	w.close()
}

// committedUnder wants the head to be that of before, or a later one of its
// epoch: nothing of an older epoch came after it.
func (w *world) committedUnder(name string, before api.Workspace) {
	w.t.Helper()
	snaps, err := w.client.Snapshots(w.t.Context(), name)
	if err != nil {
		w.t.Fatal(err)
	}
	ws := w.untilSaved(name)
	i := slices.IndexFunc(snaps, func(s api.Snapshot) bool { return s.Root == before.Head })
	if ws.Epoch != before.Epoch || i < 0 || slices.ContainsFunc(snaps[:i+1], func(s api.Snapshot) bool { return s.Epoch != before.Epoch }) {
		w.t.Errorf("after the stale commit: %+v, head %s of epoch %d; want the head of epoch %d or its successor", snaps, ws.Head, ws.Epoch, before.Epoch)
	}
}

// TestMoved_TwoNodesToldToRun: two nodes are told to run one workspace at the
// same time, under epochs n and n+1, and both do. Each has a flush that the
// ledger had allowed: one commits, the other is refused and set aside, although
// its node is told to run it still.
// invariants 3, 4
func TestMoved_TwoNodesToldToRun(t *testing.T) {
	t.Parallel()
	r := newRelay(t)
	w, b := twoNodesThrough(t, r)
	stale := filepath.Base(w.instanceDir(w.node, "one"))
	w.arm(failpoint.FlushUncommitted)
	w.sh("one", "echo late > /root/late && sync")
	w.hit(failpoint.FlushUncommitted)
	r.stick(true)

	w.takeOver("one", b)
	w.holds("one")
	w.write("one", "b")
	before := w.untilSaved("one")
	runs := func() bool {
		return slices.ContainsFunc(sandboxes(w.scope.Dir), func(s sandbox) bool { return s.instance == stale && alive(s.pid) })
	}
	if !runs() || r.given() == 0 {
		t.Fatalf("the guest of the older epoch runs: %t, it was told to %d times; want both at once", runs(), r.given())
	}

	w.disarm(failpoint.FlushUncommitted)
	await(t, "the guest of the older epoch ends", func() error {
		if runs() {
			return errNotYet
		}
		return nil
	})
	if said := w.node.said(); !strings.Contains(said, "overtaken") {
		t.Error("the older epoch's commit was not refused")
	}
	r.stick(false)
	w.fenced(w.node, stale)
	w.committedUnder("one", before)
	w.holds("one")
	w.close()
}

// TestMoved_ComesBack: a node that was gone finds its workspace moved: it ends
// the guest that has run on, and keeps its overlay aside.
// invariants 3, 5
func TestMoved_ComesBack(t *testing.T) {
	t.Parallel()
	w, b := twoNodes(t)
	stale := filepath.Base(w.instanceDir(w.node, "one"))
	w.node.kill()
	w.takeOver("one", b)
	w.holds("one")
	w.node.start()
	w.fenced(w.node, stale)
	w.write("one", "b")
	w.holds("one")
	w.close()
}
