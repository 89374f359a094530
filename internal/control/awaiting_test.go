package control

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/model"
)

// restarted runs a test under a clock of its own, on a server that has just
// come back to the nodes that were heard before.
func restarted(t *testing.T, before func(w *world), test func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		before(w)
		w.open()
		test(t, w)
	})
}

// asked is a request that may wait, and how long it has.
type asked struct {
	ws   api.Workspace
	err  error
	took time.Duration
	done chan struct{}
}

func ask(ctx context.Context, w *world, call func(context.Context) (api.Workspace, error)) *asked {
	a := &asked{done: make(chan struct{})}
	go func() {
		began := time.Now()
		a.ws, a.err = call(ctx)
		a.took = time.Since(began)
		close(a.done)
	}()
	synctest.Wait()
	return a
}

func (w *world) asking(name string) func(context.Context) (api.Workspace, error) {
	return func(ctx context.Context) (api.Workspace, error) {
		return w.CreateWorkspace(ctx, w.who, "", api.CreateWorkspaceRequest{Name: name})
	}
}

func TestRestart_CreateWaitsForTheNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a := w.host("a")
		w.open()
		got := ask(t.Context(), w, w.asking("one"))
		select {
		case <-got.done:
			t.Fatalf("before its node called: %+v, %v", got.ws, got.err)
		default:
		}
		time.Sleep(2 * time.Second)
		a.sync()
		<-got.done
		if got.err != nil || got.ws.Instance == nil || got.took != 2*time.Second {
			t.Errorf("once its node called: %+v, %v after %v, want it placed at once", got.ws, got.err, got.took)
		}
	})
}

func TestRestart_StartWaitsForTheNodes(t *testing.T) {
	var a *host
	restarted(t, func(w *world) {
		a = w.host("a")
		w.create(api.CreateWorkspaceRequest{Name: "one", Stopped: true})
	}, func(t *testing.T, w *world) {
		got := ask(t.Context(), w, func(ctx context.Context) (api.Workspace, error) {
			return w.StartWorkspace(ctx, w.who, "one", api.StartWorkspaceRequest{})
		})
		a.sync()
		<-got.done
		if got.err != nil || got.ws.Instance == nil {
			t.Errorf("got %+v, %v, want it placed", got.ws, got.err)
		}
	})
}

// Nodes that do not come back cost a bounded wait, and the refusal says so.
func TestRestart_WaitForNodesEnds(t *testing.T) {
	restarted(t, func(w *world) { w.host("a"); w.host("b") }, func(t *testing.T, w *world) {
		got := ask(t.Context(), w, w.asking("one"))
		<-got.done
		if !errs.Is(got.err, errs.Unavailable) || !strings.Contains(got.err.Error(), "2 nodes that were there before") || errs.HintOf(got.err) == "" || got.took != nodesReturn {
			t.Errorf("got %v (hint %q) after %v, want unavailable with its cause after %v", got.err, errs.HintOf(got.err), got.took, nodesReturn)
		}
		w.clock.advance(nodesReturn)
		if got := ask(t.Context(), w, w.asking("one")); !errs.Is(got.err, errs.Unavailable) || got.took != 0 {
			t.Errorf("later: %v after %v, want unavailable at once", got.err, got.took)
		}
	})
}

// A node that has room is not kept waiting for the others, and one that was
// silent before the restart is not waited for.
func TestRestart_WaitsForNobodyInVain(t *testing.T) {
	var b *host
	restarted(t, func(w *world) {
		w.host("lost")
		w.clock.advance(2 * leasePeriod)
		b = w.host("b")
	}, func(t *testing.T, w *world) {
		b.sync()
		for _, name := range []string{"one", "two", "three", "four"} { // all that b has memory for
			if got := ask(t.Context(), w, w.asking(name)); got.err != nil || got.took != 0 {
				t.Fatalf("%s: %v after %v, want it placed at once", name, got.err, got.took)
			}
		}
		if got := ask(t.Context(), w, w.asking("five")); !errs.Is(got.err, errs.Exhausted) || got.took != 0 {
			t.Errorf("with b full: %v after %v, want exhausted at once", got.err, got.took)
		}
	})
}

// A full node is no refusal while another one may come back.
func TestRestart_FullNodeWaitsForTheOther(t *testing.T) {
	var a, b *host
	restarted(t, func(w *world) { a, b = w.host("a"), w.host("b") }, func(t *testing.T, w *world) {
		a.req.Capacity.Memory = 0
		a.sync()
		got := ask(t.Context(), w, w.asking("one"))
		b.sync()
		<-got.done
		if got.err != nil || got.ws.Instance == nil || got.ws.Instance.Node != "b" {
			t.Errorf("got %+v, %v, want it on b", got.ws, got.err)
		}
	})
}

// What no node can change is refused at once, and who leaves waits no more.
func TestRestart_WaitsForNothingElse(t *testing.T) {
	restarted(t, func(w *world) { w.host("a") }, func(t *testing.T, w *world) {
		got := ask(t.Context(), w, func(ctx context.Context) (api.Workspace, error) {
			return w.CreateWorkspace(ctx, w.who, "", api.CreateWorkspaceRequest{Disk: 1 << 50})
		})
		if !errs.Is(got.err, errs.Invalid) || got.took != 0 {
			t.Errorf("a disk too large: %v after %v, want it refused at once", got.err, got.took)
		}
		ctx, cancel := context.WithCancel(t.Context())
		got = ask(ctx, w, w.asking("one"))
		cancel()
		<-got.done
		if !errs.Is(got.err, errs.Unavailable) || !errors.Is(got.err, context.Canceled) || got.took != 0 {
			t.Errorf("who left: %v after %v, want unavailable at once", got.err, got.took)
		}
		if l, err := w.Workspaces(t.Context(), w.who); err != nil || len(l) != 0 {
			t.Errorf("workspaces: %+v, %v, want none", l, err)
		}
	})
}

func TestExpect_WhoWasHeardUntilTheEnd(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	got := expect([]model.Node{{ID: "last", LastSeen: now}, {ID: "near", LastSeen: now.Add(-leasePeriod + 1)}, {ID: "lost", LastSeen: now.Add(-leasePeriod)}})
	if len(got) != 2 || !got["last"] || !got["near"] {
		t.Errorf("got %v, want last and near", got)
	}
	if got := expect(nil); len(got) != 0 {
		t.Errorf("of no nodes: got %v", got)
	}
}
