package control

import (
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/ledger/sqlite"
	"github.com/billethq/billet/internal/model"
)

// fakeClock moves only when a test moves it.
type fakeClock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *fakeClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *fakeClock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// world is a control plane on a real ledger, and the nodes that a test plays.
type world struct {
	*Control
	t     *testing.T
	dir   string
	clock *fakeClock
	who   model.Principal
	close func()
}

const root0 = model.Root("b3:" + "0000000000000000000000000000000000000000000000000000000000000000")

func rootN(c string) model.Root { return model.Root("b3:" + strings.Repeat(c, 64)) }

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, dir: t.TempDir(), clock: &fakeClock{now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}}
	w.open()
	t.Cleanup(func() { w.close() })
	if _, err := w.CommitGeneration(t.Context(), api.CommitGenerationRequest{Image: "base", Root: root0, DiskBytes: 8 << 30}); err != nil {
		t.Fatal(err)
	}
	return w
}

// open starts the control plane on the ledger, as a restart of the server does.
func (w *world) open() {
	w.t.Helper()
	if w.close != nil {
		w.close()
	}
	log := slog.New(slog.DiscardHandler)
	l, err := sqlite.Open(filepath.Join(w.dir, "ledger.db"), log)
	if err != nil {
		w.t.Fatal(err)
	}
	secrets, err := OpenSecrets(filepath.Join(w.dir, "secrets"))
	if err != nil {
		w.t.Fatal(err)
	}
	shape := model.Shape{VCPUs: 1, Memory: 1 << 30, Disk: 16 << 30, Processes: 100, OpenFiles: 100}
	c, err := New(w.t.Context(), Config{
		Entrance: EntranceAddress{Listen: "127.0.0.1:7482", Domain: "billet.localhost"},
		Ledger:   l, Secrets: secrets, Clock: w.clock, Log: log, Gateways: []api.Gateway{{Name: "g", URL: "http://127.0.0.1:1"}},
		Tiers: []model.Tier{
			{Name: "small", Shape: shape, Image: "base", Drivers: []model.DriverName{model.DriverGVisor}},
			{Name: "one", Shape: shape, Image: "base", Drivers: []model.DriverName{model.DriverGVisor}, Max: 1},
			{Name: "disk", Shape: shape, Image: "base", Drivers: []model.DriverName{model.DriverGVisor}, MemoryKeep: model.KeepNothing},
			{Name: "people", Shape: shape, Image: "base", Drivers: []model.DriverName{model.DriverGVisor}, Classes: []model.Class{model.ClassHuman}},
		},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	if w.who, err = c.Local(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	w.Control, w.close = c, func() { _ = l.Close() }
}

// host is a node that a test plays by hand.
type host struct {
	w    *world
	req  api.SyncRequest
	last api.SyncResponse
}

func (w *world) host(name string) *host {
	h := &host{w: w, req: api.SyncRequest{
		Node: model.NodeID(model.NewID()), Name: name, BootID: "boot", Driver: model.DriverGVisor,
		Capacity: model.Capacity{VCPUs: 16, Memory: 4 << 30, Disk: 400 << 30},
	}}
	h.sync()
	return h
}

// sync posts what h sees and returns what it is told of one instance.
func (h *host) sync(observed ...api.ObservedInstance) api.SyncResponse {
	h.w.t.Helper()
	h.req.Observed, h.req.Have = observed, h.last.Generation
	resp, err := h.w.Sync(h.w.t.Context(), h.req)
	if err != nil {
		h.w.t.Fatal(err)
	}
	h.last = resp
	return resp
}

func (h *host) only() api.DesiredInstance {
	h.w.t.Helper()
	if len(h.last.Instances) != 1 {
		h.w.t.Fatalf("told of %d instances, want 1: %+v", len(h.last.Instances), h.last.Instances)
	}
	return h.last.Instances[0]
}

func seen(d api.DesiredInstance, st model.InstanceState) api.ObservedInstance {
	return api.ObservedInstance{ID: d.ID, Epoch: d.Epoch, State: st}
}

func (w *world) create(req api.CreateWorkspaceRequest) api.Workspace {
	w.t.Helper()
	ws, err := w.CreateWorkspace(w.t.Context(), w.who, "", req)
	if err != nil {
		w.t.Fatal(err)
	}
	return ws
}

func (w *world) state(ref string) api.WorkspaceState {
	w.t.Helper()
	ws, err := w.Workspace(w.t.Context(), w.who, ref)
	if err != nil {
		w.t.Fatal(err)
	}
	return ws.State
}

func (w *world) flush(h *host, d api.DesiredInstance, base, root model.Root) error {
	return w.flushWith(h, d, base, root, nil)
}

func (w *world) flushWith(h *host, d api.DesiredInstance, base, root model.Root, mem *api.CommitMemory) error {
	b, err := w.BeginFlush(w.t.Context(), api.BeginFlushRequest{Node: h.req.Node, Instance: d.ID, Epoch: d.Epoch, Base: base})
	if err != nil {
		return err
	}
	_, err = w.CommitFlush(w.t.Context(), api.CommitFlushRequest{
		Node: h.req.Node, Instance: d.ID, Epoch: d.Epoch, Intent: b.Intent, Base: base, Root: root, Seq: b.Seq, Consistency: "frozen",
		Memory: mem,
	})
	return err
}

func TestWorkspace_CreatedRunStoppedStarted(t *testing.T) {
	w := newWorld(t)
	h := w.host("a")
	w.create(api.CreateWorkspaceRequest{Name: "one"})
	h.sync()
	d := h.only()
	if d.Desired != model.InstanceRun || d.Root != root0 || d.Epoch != 1 || d.Name != "one" {
		t.Fatalf("told %+v, want run of the image's root under epoch 1", d)
	}
	h.sync(seen(d, model.StateStarting))
	if got := w.state("one"); got != api.WorkspaceStarting {
		t.Errorf("state: got %s, want starting", got)
	}
	h.sync(seen(d, model.StateRunning))
	if a, err := w.Attach(t.Context(), w.who, "one"); err != nil || a.Instance != d.ID || a.Epoch != 1 {
		t.Errorf("attach: got %+v, %v, want the instance", a, err)
	}
	if _, err := w.StopWorkspace(t.Context(), w.who, "one", api.StopWorkspaceRequest{Cold: true}); err != nil {
		t.Fatal(err)
	}
	h.sync(seen(d, model.StateRunning))
	if got := h.only().Desired; got != model.InstanceStop {
		t.Fatalf("told %s, want stop", got)
	}
	if err := w.flush(h, d, root0, rootN("1")); err != nil {
		t.Fatal(err)
	}
	ended := seen(d, model.StateEnded)
	ended.Cause = model.CauseStopped
	h.sync(ended)
	if got := h.only(); got.Desired != model.InstanceDestroy || got.Subject != "" {
		t.Errorf("after its end: told %+v, want destroy of what remains", got)
	}
	if got := w.state("one"); got != api.WorkspaceStopped {
		t.Errorf("state: got %s, want stopped", got)
	}
	if _, err := w.StartWorkspace(t.Context(), w.who, "one", api.StartWorkspaceRequest{}); err != nil {
		t.Fatal(err)
	}
	h.sync()
	if d := h.only(); d.Root != rootN("1") || d.Epoch != 2 || d.Seq != 1 {
		t.Errorf("second life: told %+v, want the committed root under epoch 2", d)
	}
}

// An unasked end is shown by name and never started again by itself.
func TestWorkspace_FailureIsNotRestarted(t *testing.T) {
	w := newWorld(t)
	h := w.host("a")
	w.create(api.CreateWorkspaceRequest{Name: "one"})
	h.sync()
	o := seen(h.only(), model.StateEnded)
	o.Cause, o.Detail = model.CauseOutOfMemory, "oom_kill 1"
	h.sync(o)
	if err := w.reconcile(t.Context()); err != nil {
		t.Fatal(err)
	}
	ws, err := w.Workspace(t.Context(), w.who, "one")
	if err != nil || ws.State != api.WorkspaceFailed || ws.Failure != model.CauseOutOfMemory || ws.Detail != "oom_kill 1" {
		t.Errorf("got %+v, %v, want failed: out_of_memory", ws, err)
	}
	if h.sync(); len(h.last.Instances) != 0 {
		t.Errorf("told %+v, want nothing", h.last.Instances)
	}
	if _, err := w.Attach(t.Context(), w.who, "one"); !errs.Is(err, errs.Conflict) || !strings.Contains(err.Error(), "out_of_memory") {
		t.Errorf("attach: got %v, want a conflict that names the cause", err)
	}
}

// invariant 3: a flush under an overtaken epoch is refused, and the stale
// instance is fenced, then removed.
func TestForce_FencesTheOldInstance(t *testing.T) {
	w := newWorld(t)
	a := w.host("a")
	w.create(api.CreateWorkspaceRequest{Name: "one"})
	a.sync()
	old := a.only()
	a.sync(seen(old, model.StateRunning))

	w.clock.advance(2 * leasePeriod)
	b := w.host("b")
	if err := w.reconcile(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := w.state("one"); got != api.WorkspaceUnproven {
		t.Fatalf("state: got %s, want unproven", got)
	}
	if _, err := w.StartWorkspace(t.Context(), w.who, "one", api.StartWorkspaceRequest{}); !errs.Is(err, errs.Conflict) {
		t.Errorf("start without force: got %v, want a conflict", err)
	}
	if _, err := w.StartWorkspace(t.Context(), w.who, "one", api.StartWorkspaceRequest{FromSnapshot: true, Force: true}); err != nil {
		t.Fatal(err)
	}
	b.sync()
	if d := b.only(); d.Epoch <= old.Epoch || d.Desired != model.InstanceRun {
		t.Fatalf("the other node is told %+v, want run under a higher epoch than %d", d, old.Epoch)
	}
	if err := w.flush(a, old, root0, rootN("2")); !errs.Is(err, errs.Stale) {
		t.Errorf("flush of the old instance: got %v, want stale", err)
	}
	a.sync(seen(old, model.StateRunning))
	if d := a.only(); d.Desired != model.InstanceFence {
		t.Errorf("the old node is told %s, want fence", d.Desired)
	}
	gone := seen(old, model.StateEnded)
	gone.Cause = model.CauseFenced
	a.sync(gone)
	if d := a.only(); d.Desired != model.InstanceDestroy {
		t.Errorf("once its guest is gone: told %s, want destroy", d.Desired)
	}
}

// invariant 2: unknown is never absent.
func TestSync_UnknownInstanceIsFencedBeforeItIsRemoved(t *testing.T) {
	w := newWorld(t)
	h := w.host("a")
	o := api.ObservedInstance{ID: model.InstanceID(model.NewID()), Epoch: 3, State: model.StateRunning}
	if h.sync(o); h.only().Desired != model.InstanceFence {
		t.Errorf("told %s, want fence", h.only().Desired)
	}
	o.State = model.StateEnded
	if h.sync(o); h.only().Desired != model.InstanceDestroy {
		t.Errorf("once ended: told %s, want destroy", h.only().Desired)
	}
}

func TestSync_GenerationsRiseOverRestarts(t *testing.T) {
	w := newWorld(t)
	h := w.host("a")
	first := h.last.Generation
	if again := h.sync().Generation; again != first {
		t.Errorf("unchanged answer: got generation %d, want %d again", again, first)
	}
	w.clock.advance(-time.Hour) // a clock that was set back
	w.open()
	if after := h.sync().Generation; after <= first {
		t.Errorf("after a restart: got generation %d, want more than %d", after, first)
	}
}

func TestSync_IsHeldUntilSomethingChanges(t *testing.T) {
	w := newWorld(t)
	h := w.host("a")
	h.req.WaitMilli = (20 * time.Second).Milliseconds()
	got := make(chan api.SyncResponse, 1)
	go func() { got <- h.sync() }()
	for { // until it is held
		w.mu.Lock()
		held := w.nodes[h.req.Node].syncing > 0
		w.mu.Unlock()
		if held {
			break
		}
	}
	w.create(api.CreateWorkspaceRequest{Name: "one"})
	select {
	case r := <-got:
		if len(r.Instances) != 1 {
			t.Errorf("told %+v, want the new instance", r.Instances)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("the held sync was not answered")
	}
}

// A server that dies between the record and the placement finishes the work.
func TestReconcile_PlacesWhatARestartLeft(t *testing.T) {
	w := newWorld(t)
	h := w.host("a")
	ws, err := w.newWorkspace(t.Context(), w.who, w.meta(w.who.ID), api.CreateWorkspaceRequest{Name: "one"})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := w.cfg.Ledger.CreateWorkspace(t.Context(), w.meta(w.who.ID), ws, idempotency(w.who, "", nil)); err != nil {
		t.Fatal(err)
	}
	w.open()
	h.sync()
	if err := w.reconcile(t.Context()); err != nil {
		t.Fatal(err)
	}
	if h.sync(); h.only().Desired != model.InstanceRun {
		t.Errorf("told %+v, want run", h.only())
	}
}

func TestBeginFlush_TellsThatThePendingRootIsCommitted(t *testing.T) {
	w := newWorld(t)
	h := w.host("a")
	w.create(api.CreateWorkspaceRequest{Name: "one"})
	h.sync()
	d := h.only()
	if err := w.flush(h, d, root0, rootN("1")); err != nil {
		t.Fatal(err)
	}
	r, err := w.BeginFlush(t.Context(), api.BeginFlushRequest{Node: h.req.Node, Instance: d.ID, Epoch: d.Epoch, Base: root0, Pending: rootN("1")})
	if err != nil || !r.Committed {
		t.Errorf("got %+v, %v, want committed", r, err)
	}
	if _, err := w.BeginFlush(t.Context(), api.BeginFlushRequest{Node: h.req.Node, Instance: d.ID, Epoch: d.Epoch, Base: root0, Pending: rootN("2")}); !errs.Is(err, errs.Stale) {
		t.Errorf("another pending root on an old base: got %v, want stale", err)
	}
}

func TestFork_WaitsForTheNewestState(t *testing.T) {
	w := newWorld(t)
	h := w.host("a")
	w.create(api.CreateWorkspaceRequest{Name: "one"})
	h.sync()
	d := h.only()
	h.sync(seen(d, model.StateRunning))
	done := make(chan api.Workspace, 1)
	go func() {
		f, err := w.ForkWorkspace(t.Context(), w.who, "", "one", api.ForkWorkspaceRequest{Name: "two", Stopped: true})
		if err != nil {
			t.Error(err)
		}
		done <- f
	}()
	for h.sync(seen(d, model.StateRunning)); h.only().Flush == 0; h.sync(seen(d, model.StateRunning)) {
	}
	if err := w.flush(h, d, root0, rootN("5")); err != nil {
		t.Fatal(err)
	}
	o := seen(d, model.StateRunning)
	o.Flushed = h.only().Flush
	h.sync(o)
	f := <-done
	if f.Head != rootN("5") || f.Epoch != 0 || f.HeadSeq != 0 {
		t.Errorf("got %+v, want a new workspace on the flushed root", f)
	}
}
