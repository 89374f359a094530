package control

import (
	"strings"
	"testing"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/model"
)

// views is of how many nodes the server remembers anything, and of how many
// instances.
func (w *world) views() (nodes, instances int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, v := range w.nodes {
		instances += len(v.observed)
	}
	return len(w.nodes), instances
}

func strangers(n int) []api.ObservedInstance {
	out := make([]api.ObservedInstance, n)
	for i := range out {
		out[i] = api.ObservedInstance{ID: model.InstanceID(model.NewID()), Epoch: 1, State: model.StateEnded}
	}
	return out
}

func TestSync_ReportIsBounded(t *testing.T) {
	w := newWorld(t)
	h := w.host("a")
	h.req.Observed = strangers(maxObserved + 1)
	_, err := w.Sync(t.Context(), h.req)
	if !errs.Is(err, errs.Invalid) || !strings.Contains(err.Error(), "4097") || errs.HintOf(err) == "" {
		t.Errorf("got %v (hint %q), want invalid with the numbers and a hint", err, errs.HintOf(err))
	}
	if _, n := w.views(); n != 0 {
		t.Errorf("%d instances of a refused report are kept", n)
	}
}

// What a node does not report any more is forgotten, whatever it made up.
func TestSync_ForgetsWhatIsNotReported(t *testing.T) {
	w := newWorld(t)
	h := w.host("a")
	w.create(api.CreateWorkspaceRequest{Name: "one"})
	h.sync()
	d := h.only()
	for range 3 {
		h.sync(append(strangers(5), seen(d, model.StateRunning))...)
		if _, n := w.views(); n != 6 {
			t.Errorf("%d instances are kept of a report of 6", n)
		}
	}
	o := seen(d, model.StateEnded)
	o.Cause = model.CauseExited
	h.sync(o)
	h.sync()
	if nodes, n := w.views(); nodes != 1 || n != 0 {
		t.Errorf("at the end %d nodes and %d instances are kept, want 1 and none", nodes, n)
	}
}

// A node that was refused, or removed, is not remembered.
func TestSync_ForgetsNodesWithoutARecord(t *testing.T) {
	w := newWorld(t)
	h := w.host("a")
	for range 3 {
		other := h.req
		other.Node = model.NodeID(model.NewID())
		if _, err := w.Sync(t.Context(), other); !errs.Is(err, errs.Conflict) {
			t.Fatalf("another node of that name: got %v, want a conflict", err)
		}
	}
	if n, _ := w.views(); n != 1 {
		t.Errorf("%d nodes are remembered, want the one that was taken", n)
	}
	w.clock.advance(2 * leasePeriod)
	if _, err := w.RemoveNode(t.Context(), w.who, "a", false); err != nil {
		t.Fatal(err)
	}
	if n, _ := w.views(); n != 0 {
		t.Errorf("%d nodes are remembered after the only one was removed", n)
	}
	if h.sync(); h.last.Generation == 0 {
		t.Error("a removed node that calls again gets no answer")
	}
}

// A node speaks for its own instances alone.
func TestSync_AnothersInstanceIsNotItsToTellOf(t *testing.T) {
	w := newWorld(t)
	a := w.host("a")
	w.create(api.CreateWorkspaceRequest{Name: "one"})
	a.sync()
	a.sync(seen(a.only(), model.StateRunning))
	b, lie := w.host("b"), seen(a.only(), model.StateRunning)
	lie.UnsavedBytes, lie.FlushError = 1<<40, "all is lost"
	b.sync(lie)
	if ws, err := w.Workspace(t.Context(), w.who, "one"); err != nil || ws.UnsavedBytes != 0 || ws.FlushError != "" {
		t.Errorf("got %+v, %v, want what its own node says", ws, err)
	}
}

func TestReconcile_ForgetsWithTheRecords(t *testing.T) {
	w := newWorld(t)
	h := w.host("a")
	w.create(api.CreateWorkspaceRequest{Name: "one"})
	h.sync()
	d := h.only()
	h.sync(seen(d, model.StateRunning))
	in, err := w.cfg.Ledger.Instance(t.Context(), d.ID)
	if err != nil || w.wish(in, false) == 0 {
		t.Fatalf("no flush of %+v can be asked for: %v", in, err)
	}
	kept := func(waiting, flushes int) {
		t.Helper()
		if err := w.reconcile(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		if len(w.waiting) != waiting || len(w.flushes) != flushes {
			t.Errorf("kept: waits %v, flushes %v, want %d and %d", w.waiting, w.flushes, waiting, flushes)
		}
	}
	kept(0, 1)
	o := seen(d, model.StateEnded)
	o.Cause = model.CauseExited
	h.sync(o)
	kept(0, 0)

	w.clock.advance(2 * leasePeriod) // no node answers any more
	ws, err := w.find(t.Context(), w.who, "one")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.cfg.Ledger.SetDesired(t.Context(), w.meta(""), ws.Tenant, ws.ID, model.DesiredRunning); err != nil {
		t.Fatal(err)
	}
	kept(1, 0)
	if _, err := w.StopWorkspace(t.Context(), w.who, "one", api.StopWorkspaceRequest{}); err != nil {
		t.Fatal(err)
	}
	kept(0, 0)
}
