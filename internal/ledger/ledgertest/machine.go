package ledgertest

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/ledger"
	"github.com/billethq/billet/internal/model"
)

// testMachine drives the ledger and the oracle with the same random calls and
// compares every answer, and in the end the events and all that is kept.
func testMachine(t *testing.T, fresh Fresh) {
	t.Parallel()
	l := fresh(t)()
	defer l.Close()
	m := &machine{l: l, ctx: t.Context(), reached: map[string]int{}}
	rapid.Check(t, func(rt *rapid.T) {
		// A ledger of its own for each run would cost more than the run: each
		// has its own ids in one ledger instead.
		m.startRun(rt)
		for range rapid.IntRange(8, 20).Draw(rt, "steps") {
			m.step()
		}
		m.compare()
	})
	for _, must := range machineMust {
		if m.reached[must] == 0 {
			t.Errorf("no run reached %q; reached: %v", must, m.reached)
		}
	}
}

// machineMust are the ends that the runs have to have come to: a machine that
// is refused everything proves nothing.
var machineMust = []string{
	"create ", "create conflict", "remove ", "remove conflict", "place ", "place conflict", "place exhausted",
	"observe ", "observe stale", "unproven ", "fence ", "begin ", "begin stale", "commit ", "commit stale", "commit unavailable", "expire ",
}

// machine is the present run and what outlives it.
type machine struct {
	l       ledger.Ledger
	ctx     context.Context
	reached map[string]int
	seq     int64 // of the newest event looked at
	made    int   // ids made so far

	*rapid.T
	o       *oracle
	prefix  string   // of every id of this run
	written []string // kinds of the events that the calls should have written
}

// startRun makes what a run begins with: two nodes and three workspaces.
func (m *machine) startRun(rt *rapid.T) {
	m.T, m.prefix, m.written = rt, "", nil
	m.prefix = m.fresh() + "r"
	m.o = &oracle{
		now: kept(start), nodes: map[model.NodeID]model.Node{}, workspaces: map[model.WorkspaceID]*model.Workspace{},
		epochs: map[model.SubjectID]model.Epoch{}, intents: map[model.IntentID]model.FlushIntent{}, snapshots: map[model.WorkspaceID][]model.Snapshot{},
	}
	// The intents of the runs before must not count in this one.
	if _, err := m.l.ExpireIntents(m.ctx, ledger.Meta{Now: start.AddDate(100, 0, 0)}); err != nil {
		rt.Fatal(err)
	}
	for i, vcpus := range []int{2, 4} {
		n := model.Node{ID: model.NodeID(fmt.Sprint(m.prefix, "n", i)), Name: "n", Capacity: model.Capacity{VCPUs: vcpus}}
		if err := m.l.SeeNode(m.ctx, m.meta(), n); err != nil {
			rt.Fatal(err)
		}
		m.o.nodes[n.ID] = n
	}
	m.events()
	for i := range 3 {
		m.make(model.WorkspaceID(fmt.Sprint(m.prefix, "w", i)), fmt.Sprint(m.prefix, "name", i), model.DesiredRunning)
	}
}

func (m *machine) meta() ledger.Meta { return ledger.Meta{Now: m.o.now} }

// events returns the kinds of the new events of this run.
func (m *machine) events() (kinds []string) {
	for {
		page, err := m.l.Events(m.ctx, ledger.AllTenants, "", m.seq, 0)
		if err != nil {
			m.Fatal(err)
		}
		for _, e := range page {
			m.seq = e.Seq
			if strings.HasPrefix(e.Subject, m.prefix) {
				kinds = append(kinds, e.Kind)
			}
		}
		if len(page) < ledger.MaxEvents {
			return kinds
		}
	}
}

// agree compares the answer to a call with the oracle's, and notes the events
// that it should have written.
func agree[T any](m *machine, what string, got T, err error, want T, out outcome) {
	m.Helper()
	alike(m, what, got, err, want, out.Kind)
	m.reached[what+" "+string(out.Kind)]++
	m.written = append(m.written, out.Events...)
}

// alike compares an answer, or an error by its kind.
func alike[T any](m *machine, what string, got T, err error, want T, kind errs.Kind) {
	m.Helper()
	if errs.KindOf(err) != kind {
		m.Fatalf("%s: got error %v (kind %q), want kind %q", what, err, errs.KindOf(err), kind)
	}
	if d := cmp.Diff(want, got, cmpopts.EquateEmpty()); d != "" {
		m.Fatalf("%s (-want +got):\n%s", what, d)
	}
}

// fresh makes an id that no other call has.
func (m *machine) fresh() string {
	m.made++
	return fmt.Sprint(m.prefix, "x", m.made)
}

// workspace, name, node, instance and intent choose among few, so that calls
// meet.
func (m *machine) workspace() model.WorkspaceID {
	return model.WorkspaceID(fmt.Sprint(m.prefix, "w", rapid.IntRange(0, 3).Draw(m.T, "workspace")))
}

func (m *machine) name() string {
	return fmt.Sprint(m.prefix, "name", rapid.IntRange(0, 4).Draw(m.T, "name"))
}

func (m *machine) instance() model.Instance {
	if len(m.o.instances) == 0 {
		return model.Instance{ID: "none"}
	}
	// The newest are the likeliest: the first of the drawn numbers is.
	i := rapid.IntRange(0, len(m.o.instances)-1).Draw(m.T, "instance")
	return *m.o.instances[len(m.o.instances)-1-i]
}

// steps are the calls. Random numbers here are small more often than large, and
// so what leads on comes first.
var steps = []func(*machine){
	(*machine).place, (*machine).observe, (*machine).begin, (*machine).commit, (*machine).desire, (*machine).remove,
	(*machine).create, (*machine).pass, (*machine).fence, (*machine).tell, (*machine).rename,
}

func (m *machine) step() {
	steps[rapid.IntRange(0, len(steps)-1).Draw(m.T, "step")](m)
}

func (m *machine) create() {
	desired := rapid.SampledFrom([]model.Desired{model.DesiredRunning, model.DesiredRunning, model.DesiredStopped}).Draw(m.T, "desired")
	m.make(m.workspace(), m.name(), desired)
}

func (m *machine) make(id model.WorkspaceID, name string, d model.Desired) {
	w := model.Workspace{ID: id, Name: name, Base: "base", Tier: m.prefix, Shape: model.Shape{VCPUs: 1}, Desired: d}
	want, out := m.o.create(w)
	got, _, err := m.l.CreateWorkspace(m.ctx, m.meta(), w, ledger.Idempotency{})
	agree(m, "create", got, err, want, out)
}

func (m *machine) rename() {
	id, name := m.workspace(), m.name()
	out := m.o.rename(id, name)
	agree(m, "rename", 0, m.l.RenameWorkspace(m.ctx, m.meta(), "", id, name), 0, out)
}

func (m *machine) desire() {
	d := rapid.SampledFrom([]model.Desired{model.DesiredRunning, model.DesiredRunning, model.DesiredStopped, model.DesiredDeleted}).Draw(m.T, "desired")
	m.set(m.workspace(), d)
}

func (m *machine) set(id model.WorkspaceID, d model.Desired) {
	want, out := m.o.desire(id, d)
	got, err := m.l.SetDesired(m.ctx, m.meta(), "", id, d)
	agree(m, "desire", got, err, want, out)
}

func (m *machine) remove() {
	id := m.workspace()
	if rapid.Bool().Draw(m.T, "asked") {
		m.set(id, model.DesiredDeleted)
	}
	out := m.o.remove(id)
	agree(m, "remove", 0, m.l.RemoveWorkspace(m.ctx, m.meta(), "", id), 0, out)
}

func (m *machine) place() {
	in := model.Instance{
		ID: model.InstanceID(m.fresh()), Node: model.NodeID(fmt.Sprint(m.prefix, "n", rapid.IntRange(0, 1).Draw(m.T, "node"))),
		SubjectKind: model.SubjectWorkspace, Subject: model.SubjectID(m.workspace()),
		Shape: model.Shape{VCPUs: rapid.IntRange(1, 3).Draw(m.T, "vcpus")},
	}
	c := ledger.Ceiling{Tier: m.prefix, Max: rapid.SampledFrom([]int{0, 0, 1, 2}).Draw(m.T, "max"), LeaseUntil: m.o.now.Add(lease)}
	want, out := m.o.place(in, c)
	got, err := m.l.Place(m.ctx, m.meta(), in, c)
	agree(m, "place", got, err, want, out)
}

func (m *machine) tell() {
	id := m.instance().ID
	d := rapid.SampledFrom([]model.InstanceDesired{model.InstanceStop, model.InstanceRun, model.InstanceDestroy}).Draw(m.T, "told")
	out := m.o.tell(id, d)
	agree(m, "tell", 0, m.l.SetInstanceDesired(m.ctx, m.meta(), "", id, d), 0, out)
}

func (m *machine) observe() {
	in := m.instance()
	s := ledger.Observation{
		Node: in.Node, Instance: in.ID, Epoch: in.Epoch + model.Epoch(rapid.SampledFrom([]int{0, 0, 0, 0, 1}).Draw(m.T, "ahead")),
		State:      rapid.SampledFrom([]model.InstanceState{model.StateStarting, model.StateRunning, model.StateStopping, model.StateEnded}).Draw(m.T, "state"),
		Cause:      rapid.SampledFrom([]model.Cause{model.CauseNone, model.CauseExited}).Draw(m.T, "cause"),
		LeaseUntil: m.o.now.Add(lease),
	}
	want, out := m.o.observe(s)
	got, err := m.l.Observe(m.ctx, m.meta(), s)
	agree(m, "observe", got, err, want, out)
}

func (m *machine) fence() {
	id := m.workspace()
	out := m.o.fence(id)
	agree(m, "fence", 0, m.l.Fence(m.ctx, m.meta(), "", model.SubjectWorkspace, model.SubjectID(id)), 0, out)
}

func (m *machine) begin() {
	in := m.instance()
	it := model.FlushIntent{ID: model.IntentID(m.fresh()), Instance: in.ID, Epoch: in.Epoch, Base: "base", Expires: m.o.now.Add(2 * lease)}
	if w := m.o.workspaces[model.WorkspaceID(in.Subject)]; w != nil {
		it.Base = rapid.SampledFrom([]model.Root{w.Head, w.Head, w.Head, w.Base}).Draw(m.T, "base")
	}
	want, out := m.o.beginFlush(it)
	got, err := m.l.BeginFlush(m.ctx, m.meta(), it)
	agree(m, "begin", got, err, want, out)
}

// commit commits an open intent, or the newest snapshot again.
func (m *machine) commit() {
	in := m.instance()
	s := model.Snapshot{
		ID: model.SnapshotID(m.fresh()), Workspace: model.WorkspaceID(in.Subject), Root: model.Root(m.fresh()), Parent: "base", Epoch: in.Epoch, Seq: 1,
	}
	id := model.IntentID("none")
	for _, it := range m.o.intents {
		if it.Instance == in.ID && (id == "none" || it.ID < id) { // the same one in every replay
			id, s.Parent, s.Seq = it.ID, it.Base, it.Seq
		}
	}
	if made := m.o.snapshots[s.Workspace]; len(made) > 0 && rapid.IntRange(0, 3).Draw(m.T, "again") == 0 {
		s = made[0]
	}
	want, out := m.o.commitFlush(id, in.ID, s)
	got, err := m.l.CommitFlush(m.ctx, m.meta(), id, in.ID, s)
	agree(m, "commit", got, err, want, out)
}

// pass lets time pass and does what time asks for.
func (m *machine) pass() {
	m.o.now = m.o.now.Add(rapid.SampledFrom([]time.Duration{time.Microsecond, lease / 2, lease, 3 * lease}).Draw(m.T, "passed"))
	silent, out := m.o.markUnproven()
	all, err := m.l.MarkUnproven(m.ctx, m.meta())
	var got []model.Instance
	for _, in := range all {
		if strings.HasPrefix(string(in.ID), m.prefix) {
			got = append(got, in)
		}
	}
	agree(m, "unproven", byID(got), err, byID(silent), out)
	n, out := m.o.expireIntents()
	gotN, err := m.l.ExpireIntents(m.ctx, m.meta())
	agree(m, "expire", gotN, err, n, out)
}

// byID gives instances made in one moment an order.
func byID(in []model.Instance) map[model.InstanceID]model.Instance {
	out := map[model.InstanceID]model.Instance{}
	for _, i := range in {
		out[i.ID] = i
	}
	return out
}

// compare looks at everything that is kept of this run.
func (m *machine) compare() {
	alike(m, "events", m.events(), nil, m.written, "")
	use := 0
	for subject := range m.o.epochs {
		want, kind := model.Workspace{}, errs.NotFound
		if w := m.o.workspaces[model.WorkspaceID(subject)]; w != nil {
			want, kind = m.o.view(w), ""
		}
		got, err := m.l.Workspace(m.ctx, "", string(subject))
		alike(m, "workspace", got, err, want, kind)
		var kept []model.Instance
		for _, in := range m.o.instances {
			if in.Subject == subject {
				kept = append(kept, *in)
			}
			if in.Subject == subject && in.State.Live() {
				use++
			}
		}
		instances, err := m.l.Instances(m.ctx, ledger.InstanceFilter{Subject: subject})
		alike(m, "instances", byID(instances), err, byID(kept), "")
		snapshots, err := m.l.Snapshots(m.ctx, "", model.WorkspaceID(subject))
		alike(m, "snapshots", snapshots, err, m.o.snapshots[model.WorkspaceID(subject)], "")
	}
	tiers, err := m.l.TierUse(m.ctx)
	alike(m, "tier use", tiers[m.prefix], err, use, "")
}
