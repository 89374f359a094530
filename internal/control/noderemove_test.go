package control

import (
	"strings"
	"testing"
	"time"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/ledger"
	"github.com/billethq/billet/internal/model"
)

// lostHost makes a node with a running workspace and lets it fall silent.
func (w *world) lostHost(name, workspace string) (*host, api.DesiredInstance) {
	w.t.Helper()
	h := w.host(name)
	w.create(api.CreateWorkspaceRequest{Name: workspace})
	h.sync()
	d := h.only()
	o := seen(d, model.StateRunning)
	o.UnsavedBytes = 5 << 20
	h.sync(o)
	w.clock.advance(2 * leasePeriod)
	if err := w.reconcile(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	return h, d
}

func (w *world) names() (names []string) {
	w.t.Helper()
	nodes, err := w.Nodes(w.t.Context(), w.who)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, n := range nodes {
		names = append(names, n.Name)
	}
	return names
}

func TestRemoveNode_Refused(t *testing.T) {
	w := newWorld(t)
	h, _ := w.lostHost("a", "one")
	rm := func(ref string, force bool) error {
		_, err := w.RemoveNode(t.Context(), w.who, ref, force)
		return err
	}
	if err := rm("none", true); !errs.Is(err, errs.NotFound) {
		t.Errorf("one that never was: got %v, want not_found", err)
	}
	// invariant 2: silence proves nothing, and the refusal names what is at stake.
	err := rm("a", false)
	if !errs.Is(err, errs.Conflict) || !strings.Contains(err.Error(), "one (unproven, durable until ") || !strings.Contains(errs.HintOf(err), "billet node rm a --force") {
		t.Errorf("a silent one: got %v (hint %q), want a conflict that names the workspace and --force", err, errs.HintOf(err))
	}
	// A server that has just started has heard nobody yet.
	w.open()
	if err := rm("a", true); !errs.Is(err, errs.Unavailable) {
		t.Errorf("right after a start: got %v, want unavailable", err)
	}
	h.sync()
	w.clock.advance(leasePeriod)
	h.sync()
	for _, force := range []bool{false, true} {
		if err := rm("a", force); !errs.Is(err, errs.Conflict) || !strings.Contains(err.Error(), "is heard") {
			t.Errorf("one that is heard, force %v: got %v, want a conflict", force, err)
		}
	}
	if got := w.state("one"); got != api.WorkspaceRunning && got != api.WorkspaceUnproven {
		t.Errorf("after the refusals the workspace is %s", got)
	}
}

func TestRemoveNode_EmptyNeedsNoForce(t *testing.T) {
	w := newWorld(t)
	w.host("a")
	w.clock.advance(2 * leasePeriod)
	if got, err := w.RemoveNode(t.Context(), w.who, "a", false); err != nil || got.Name != "a" || got.Lost == nil || len(got.Lost) > 0 {
		t.Errorf("got %+v, %v, want node a and nothing lost", got, err)
	}
	if names := w.names(); len(names) > 0 {
		t.Errorf("nodes are %v, want none", names)
	}
}

// Of two nodes of one name the silent one is meant: the host came back without
// its state. Of two silent ones somebody has to say which.
func TestRemoveNode_SharedName(t *testing.T) {
	w := newWorld(t)
	first := w.host("a")
	w.clock.advance(leasePeriod)
	second := w.host("a")
	if got, err := w.RemoveNode(t.Context(), w.who, "a", false); err != nil || got.ID != first.req.Node {
		t.Fatalf("got %+v, %v, want the silent one", got, err)
	}
	w.clock.advance(leasePeriod)
	third := w.host("a")
	w.clock.advance(leasePeriod)
	_, err := w.RemoveNode(t.Context(), w.who, "a", false)
	if !errs.Is(err, errs.Conflict) || !strings.Contains(err.Error(), string(second.req.Node)) || !strings.Contains(err.Error(), string(third.req.Node)) {
		t.Errorf("two silent ones: got %v, want a conflict with both ids", err)
	}
	if _, err := w.RemoveNode(t.Context(), w.who, string(third.req.Node), false); err != nil {
		t.Errorf("by its id: %v", err)
	}
}

// invariant 3: a word that was wrong gives nobody two heads. The node that
// calls again joins anew; what it still runs is fenced, its overlay kept.
func TestRemoveNode_ThatWasNotGone(t *testing.T) {
	w := newWorld(t)
	h, old := w.lostHost("a", "one")
	begun, err := w.BeginFlush(t.Context(), api.BeginFlushRequest{Node: h.req.Node, Instance: old.ID, Epoch: old.Epoch, Base: root0})
	if err != nil {
		t.Fatal(err)
	}
	got, err := w.RemoveNode(t.Context(), w.who, "a", true)
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Lost) != 1 || got.Lost[0].Workspace != "one" || got.Lost[0].UnsavedBytes != 5<<20 || got.Lost[0].Cause != model.CauseHostGone {
		t.Errorf("lost %+v, want 5 MiB of workspace one", got.Lost)
	}
	if ws, err := w.Workspace(t.Context(), w.who, "one"); err != nil || ws.State != api.WorkspaceFailed || ws.Failure != model.CauseHostGone || ws.Head != root0 {
		t.Errorf("the workspace is %+v, %v, want failed by host_gone on its newest snapshot", ws, err)
	}
	w.wantRemovalRecorded(h.req.Node)

	b := w.host("b")
	if _, err := w.StartWorkspace(t.Context(), w.who, "one", api.StartWorkspaceRequest{}); err != nil {
		t.Fatal(err)
	}
	b.sync()
	if d := b.only(); d.Epoch <= old.Epoch || d.Root != root0 {
		t.Fatalf("the other node is told %+v, want the snapshot under a higher epoch than %d", d, old.Epoch)
	}

	h.sync(seen(old, model.StateRunning))
	if d := h.only(); d.Desired != model.InstanceFence {
		t.Errorf("the node that calls again is told to %s what it runs, want fence", d.Desired)
	}
	if names := w.names(); len(names) != 2 {
		t.Errorf("nodes are %v, want a again beside b", names)
	}
	if _, err := w.CommitFlush(t.Context(), api.CommitFlushRequest{
		Node: h.req.Node, Instance: old.ID, Epoch: old.Epoch, Intent: begun.Intent, Base: root0, Root: rootN("2"), Seq: begun.Seq, Consistency: "frozen",
	}); !errs.Is(err, errs.Stale) {
		t.Errorf("a flush that had begun: got %v, want stale", err)
	}
	if err := w.flush(h, old, root0, rootN("2")); !errs.Is(err, errs.Stale) {
		t.Errorf("another flush: got %v, want stale", err)
	}
	gone := seen(old, model.StateEnded)
	gone.Cause = model.CauseFenced
	if h.sync(gone); h.only().Desired != model.InstanceDestroy {
		t.Errorf("once its guest is gone: told %s, want destroy", h.only().Desired)
	}
}

func (w *world) wantRemovalRecorded(id model.NodeID) {
	w.t.Helper()
	events, err := w.Events(w.t.Context(), w.who, "", 0, 0)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, e := range events {
		if e.Kind == ledger.EventNodeRemoved && e.Subject == string(id) && e.Actor == string(w.who.ID) {
			return
		}
	}
	w.t.Errorf("no event says that %s removed node %s", w.who.ID, id)
}

// A node that calls again sooner than it would be written again is written all
// the same: else it would be told to run things and be on no list.
func TestRemoveNode_CallsAgainAtOnce(t *testing.T) {
	w := newWorld(t)
	h := w.host("a")
	w.clock.advance(leasePeriod)
	h.sync()
	w.clock.advance(silentAfter + time.Second)
	if _, err := w.RemoveNode(t.Context(), w.who, "a", false); err != nil {
		t.Fatal(err)
	}
	h.sync()
	if names := w.names(); len(names) != 1 {
		t.Errorf("nodes are %v, want a again", names)
	}
	w.create(api.CreateWorkspaceRequest{Name: "one"})
	if h.sync(); h.only().Desired != model.InstanceRun {
		t.Errorf("told %s, want run", h.only().Desired)
	}
}
