package control

import (
	"strings"
	"testing"
	"time"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/model"
)

// stops asks for a stop and returns what the node is told.
func (w *world) stops(h *host, d api.DesiredInstance, req api.StopWorkspaceRequest) model.InstanceDesired {
	w.t.Helper()
	if _, err := w.StopWorkspace(w.t.Context(), w.who, d.Name, req); err != nil {
		w.t.Fatal(err)
	}
	h.sync(seen(d, model.StateRunning))
	return h.only().Desired
}

// asleep makes a workspace that has hibernated, with its memory at root.
func (w *world) asleep(h *host, name string, root model.Root) {
	w.t.Helper()
	d := w.runs(h, name, "small")
	if got := w.stops(h, d, api.StopWorkspaceRequest{}); got != model.InstanceHibernate {
		w.t.Fatalf("told %s, want hibernate", got)
	}
	if err := w.flushWith(h, d, root0, root, &api.CommitMemory{Root: rootN("7"), Machine: h.req.Machine, Bytes: 5}); err != nil {
		w.t.Fatal(err)
	}
	o := seen(d, model.StateEnded)
	o.Cause = model.CauseStopped
	h.sync(o)
	h.sync()
	w.clock.advance(time.Second) // instances are told apart by when they were made
}

// runs makes a running workspace.
func (w *world) runs(h *host, name, tier string) api.DesiredInstance {
	w.t.Helper()
	w.create(api.CreateWorkspaceRequest{Name: name, Tier: tier})
	h.sync()
	d := h.only()
	h.sync(seen(d, model.StateRunning))
	return d
}

func (w *world) next(name string) *api.NextResume {
	w.t.Helper()
	ws, err := w.Workspace(w.t.Context(), w.who, name)
	if err != nil {
		w.t.Fatal(err)
	}
	return ws.NextResume
}

func TestStop_HibernatesUnlessTold(t *testing.T) {
	for name, tc := range map[string]struct {
		tier string
		req  api.StopWorkspaceRequest
		want model.InstanceDesired
	}{
		"by default":         {"small", api.StopWorkspaceRequest{}, model.InstanceHibernate},
		"cold":               {"small", api.StopWorkspaceRequest{Cold: true}, model.InstanceStop},
		"a tier without any": {"disk", api.StopWorkspaceRequest{}, model.InstanceStop},
	} {
		w := newWorld(t)
		h := w.host("a")
		if got := w.stops(h, w.runs(h, "one", tc.tier), tc.req); got != tc.want {
			t.Errorf("%s: told %s, want %s", name, got, tc.want)
		}
	}
}

// TestResume_WithMemory: memory goes to whoever starts the workspace next, and
// is of no use any more once the disk has moved on.
func TestResume_WithMemory(t *testing.T) {
	w := newWorld(t)
	h := w.host("a")
	h.req.Machine = "machine"
	w.asleep(h, "one", rootN("1"))
	if n := w.next("one"); n == nil || n.How != api.ResumeMemory || n.Bytes != 5 || !n.Until.Equal(w.clock.Now().Add(DefaultMemoryKeep-time.Second)) {
		t.Fatalf("next resume: %+v", n)
	}
	if _, err := w.StartWorkspace(t.Context(), w.who, "one", api.StartWorkspaceRequest{}); err != nil {
		t.Fatal(err)
	}
	h.sync()
	d := h.only()
	if d.Root != rootN("1") || d.Memory != rootN("7") || d.Fork {
		t.Errorf("told %+v, want the memory of its own snapshot", d)
	}
	h.sync(seen(d, model.StateRunning))
	if err := w.flush(h, d, rootN("1"), rootN("2")); err != nil {
		t.Fatal(err)
	}
	h.sync(seen(d, model.StateRunning))
	if d := h.only(); d.Memory != "" {
		t.Errorf("after a flush: told of memory %s, of another disk", d.Memory)
	}
	if n := w.next("one"); n.How != api.ResumeCold {
		t.Errorf("next resume: %+v", n)
	}
}

// TestResume_TakenBack: who connects before the commit has the guest go on.
func TestResume_TakenBack(t *testing.T) {
	w := newWorld(t)
	h := w.host("a")
	d := w.runs(h, "one", "small")
	w.stops(h, d, api.StopWorkspaceRequest{})
	if _, err := w.StartWorkspace(t.Context(), w.who, "one", api.StartWorkspaceRequest{}); err != nil {
		t.Fatal(err)
	}
	if err := w.reconcile(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.sync(seen(d, model.StateRunning))
	if got := h.only().Desired; got != model.InstanceRun {
		t.Errorf("told %s, want run", got)
	}
	// Too late: it has ended, as it was told before. It is started again.
	o := seen(d, model.StateEnded)
	o.Cause = model.CauseStopped
	h.sync(o)
	if err := w.reconcile(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.sync()
	if again := h.only(); again.ID == d.ID || again.Desired != model.InstanceRun {
		t.Errorf("told %+v, want another instance to run", again)
	}
}

func TestNextResume_SaysWhyCold(t *testing.T) {
	w := newWorld(t)
	h := w.host("a")
	h.req.Machine = "machine"
	w.asleep(h, "one", rootN("1"))
	want := func(part string) {
		t.Helper()
		if n := w.next("one"); n.How != api.ResumeCold || !strings.Contains(n.Why, part) {
			t.Errorf("next resume: %+v, want cold, for %q", n, part)
		}
	}
	h.req.Machine = "another"
	h.sync()
	want("no node that is there")
	h.req.Machine = "machine"
	h.sync()
	w.clock.advance(DefaultMemoryKeep + time.Second)
	h.sync()
	want("expired")
	if err := w.reconcile(t.Context()); err != nil {
		t.Fatal(err)
	}
	want("no memory image")
	snaps, err := w.Snapshots(t.Context(), w.who, "one")
	if err != nil || len(snaps) != 1 || snaps[0].Root != rootN("1") || snaps[0].Memory != "" {
		t.Errorf("after the decay: %+v, %v, want the same snapshot without memory", snaps, err)
	}
}

func TestFork_BeginsWithTheMemory(t *testing.T) {
	w := newWorld(t)
	h := w.host("a")
	h.req.Machine = "machine"
	w.asleep(h, "one", rootN("1"))
	if _, err := w.ForkWorkspace(t.Context(), w.who, "", "one", api.ForkWorkspaceRequest{Name: "two"}); err != nil {
		t.Fatal(err)
	}
	h.sync()
	if d := h.only(); d.Name != "two" || d.Memory != rootN("7") || !d.Fork || d.Root != rootN("1") {
		t.Errorf("told %+v, want a fork on the parent's memory", d)
	}
}
