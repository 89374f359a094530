// Package ledgertest is the conformance suite of the ledger port.
package ledgertest

import (
	"context"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/ledger"
	"github.com/billethq/billet/internal/model"
)

// Fresh makes the place of a new, empty ledger and returns a function that
// opens it. Calling that again opens the same ledger: another server, or the
// same one after a restart. The test closes what it opened.
type Fresh func(t testing.TB) (open func() ledger.Ledger)

// Run holds an adapter to every sentence of the port.
func Run(t *testing.T, fresh Fresh) {
	tests := map[string]func(*fixture){
		"Deployment":              testDeployment,
		"Principals":              testPrincipals,
		"Tokens":                  testTokens,
		"Tokens_Last":             testLastToken,
		"TokenByHash":             testTokenByHash,
		"SSHKeys":                 testSSHKeys,
		"Nodes":                   testNodes,
		"Nodes_Remove":            testRemoveNode,
		"Nodes_RemoveGone":        testRemoveNodeGone,
		"Images":                  testImages,
		"Images_Owner":            testImageOwner,
		"Workspace_Create":        testWorkspaceCreate,
		"Workspace_Idempotency":   testWorkspaceIdempotency,
		"Workspace_Rename":        testWorkspaceRename,
		"Workspace_Desired":       testWorkspaceDesired,
		"Workspace_TakeBack":      testTakeBack,
		"Workspace_Remove":        testWorkspaceRemove,
		"Instance_Place":          testPlace,
		"Instance_PlaceRefused":   testPlaceRefused,
		"Instance_Charge":         testCharge,
		"Instance_Filter":         testInstanceFilter,
		"Instance_Newest":         testNewestInstance,
		"Instance_Desired":        testInstanceDesired,
		"Observe_Transitions":     testObserveTransitions,
		"Observe_UnaskedEnd":      testObserveUnaskedEnd,
		"Observe_Lease":           testObserveLease,
		"Observe_Refused":         testObserveRefused,
		"Unproven":                testUnproven,
		"Fence":                   testFence,
		"GiveUp":                  testGiveUp,
		"Flush":                   testFlush,
		"Flush_BeginRefused":      testBeginFlushRefused,
		"Flush_CommitRefused":     testCommitFlushRefused,
		"Flush_CommitState":       testCommitFlushState,
		"Flush_Expiry":            testFlushExpiry,
		"Memory":                  testMemory,
		"Memory_Dropped":          testMemoryDropped,
		"Memory_Forgotten":        testMemoryForgotten,
		"Memory_OfAFork":          testMemoryOfAFork,
		"Shares":                  testShares,
		"Shares_Refused":          testSharesRefused,
		"Hibernate":               testHibernate,
		"Holds":                   testHolds,
		"Idle_End":                testIdleEnd,
		"Idle_Back":               testIdleBack,
		"Idle_Woken":              testIdleWoken,
		"Stop_LastFlushRefused":   testLastFlushRefused,
		"Terms":                   testTerms,
		"Terms_End":               testTermsEnd,
		"KeptSnapshots":           testKeptSnapshots,
		"Events":                  testEvents,
		"Tenants":                 testTenants,
		"Text":                    testText,
		"Times":                   testTimes,
		"Cancelled":               testCancelled,
		"Restart":                 testRestart,
		"Concurrent_OneSubject":   testConcurrentSubject,
		"Concurrent_Headroom":     testConcurrentHeadroom,
		"Concurrent_Ceiling":      testConcurrentCeiling,
		"Concurrent_Commit":       testConcurrentCommit,
		"Concurrent_Name":         testConcurrentName,
		"Concurrent_Idempotency":  testConcurrentIdempotency,
		"Concurrent_FenceOrFlush": testConcurrentFence,
		"Concurrent_EventOrder":   testConcurrentEvents,
	}
	for _, name := range slices.Sorted(maps.Keys(tests)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // they mostly wait for a disk
			tests[name](newFixture(t, fresh))
		})
	}
	t.Run("Machine", func(t *testing.T) { testMachine(t, fresh) })
}

// start has nanoseconds and a zone, so that whoever keeps either is found out.
var start = time.Date(2030, 1, 2, 3, 4, 5, 678912345, time.FixedZone("", 2*60*60))

// mine is whose things the tests make and ask for.
const mine = model.DefaultTenant

// kept is what a ledger makes of a time.
func kept(t time.Time) time.Time { return t.UTC().Truncate(time.Microsecond) }

// fixture is one test on one ledger, with the time in its hand.
type fixture struct {
	*testing.T
	ctx  context.Context
	open func() ledger.Ledger
	l    ledger.Ledger
	m    ledger.Meta
	seq  int64 // of the newest event it has looked at
}

func newFixture(t *testing.T, fresh Fresh) *fixture {
	f := &fixture{T: t, ctx: t.Context(), open: fresh(t), m: ledger.Meta{Now: start, Actor: id[model.PrincipalID]("actor")}}
	f.l = f.another()
	return f
}

// another opens the ledger once more.
func (f *fixture) another() ledger.Ledger {
	f.Helper()
	l := f.open()
	f.Cleanup(func() { _ = l.Close() })
	return l
}

// now is the time that the ledger stamps.
func (f *fixture) now() time.Time { return kept(f.m.Now) }

func (f *fixture) advance(d time.Duration) { f.m.Now = f.m.Now.Add(d) }

// id pads a readable word to the shape of an id.
func id[T ~string](word string) T { return T((word + "zzzzzzzzzzzzzzzzzzzz")[:20]) }

// root makes the name of a content that a word stands for.
func root(word string) model.Root {
	const zeros = "0000000000000000000000000000000000000000000000000000000000000000"
	return model.Root("b3:" + zeros[:64-2*len(word)] + hexOf(word))
}

func hexOf(s string) string {
	const digits = "0123456789abcdef"
	var out []byte
	for _, b := range []byte(s) {
		out = append(out, digits[b>>4], digits[b&15])
	}
	return string(out)
}

// do fails the test unless err is nil.
func (f *fixture) do(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

// must returns v unless there is an error.
func must[T any](f *fixture) func(T, error) T {
	return func(v T, err error) T {
		f.Helper()
		f.do(err)
		return v
	}
}

// same fails the test when got is not want.
func (f *fixture) same(what string, got, want any) {
	f.Helper()
	if d := cmp.Diff(want, got); d != "" {
		f.Fatalf("%s (-want +got):\n%s", what, d)
	}
}

// fresh returns the events since the last call.
func (f *fixture) fresh() []model.Event {
	f.Helper()
	events := must[[]model.Event](f)(f.l.Events(f.ctx, ledger.AllTenants, "", f.seq, 0))
	for _, e := range events {
		if e.Seq <= f.seq {
			f.Fatalf("event %d follows %d", e.Seq, f.seq)
		}
		f.seq = e.Seq
	}
	return events
}

// writes checks that the call succeeds and leaves exactly these events, with
// the actor and time of the call.
func (f *fixture) writes(call func() error, kinds ...string) []model.Event {
	f.Helper()
	f.fresh()
	f.do(call())
	events := f.fresh()
	var got []string
	for _, e := range events {
		got = append(got, e.Kind)
		if e.Actor != f.m.Actor || !e.At.Equal(f.now()) || e.At.Location() != time.UTC {
			f.Fatalf("event %s is by %q at %s, want %q at %s", e.Kind, e.Actor, e.At, f.m.Actor, f.now())
		}
	}
	f.same("events", got, kinds)
	return events
}

// refused checks that the call fails with the kind and leaves no event.
// invariant 7
func (f *fixture) refused(kind errs.Kind, call func() error) error {
	f.Helper()
	f.fresh()
	err := call()
	if !errs.Is(err, kind) {
		f.Fatalf("got error %v (kind %q), want kind %q", err, errs.KindOf(err), kind)
	}
	if events := f.fresh(); len(events) > 0 {
		f.Fatalf("the refused call wrote events: %+v", events)
	}
	return err
}

// drop makes an error of a call with a result.
func drop[T any](_ T, err error) error { return err }

// Things that tests need many of, valid and complete.

func (f *fixture) newWorkspace(word string) model.Workspace {
	return model.Workspace{
		ID: id[model.WorkspaceID](word), Tenant: model.DefaultTenant, Region: model.DefaultRegion,
		Owner: id[model.PrincipalID]("owner"), Name: word, Class: model.ClassAgent, Tier: "small",
		Shape: model.Shape{VCPUs: 2, Memory: 4 << 30, Disk: 32 << 30, Processes: 512, OpenFiles: 1024},
		Image: "base", Base: root("base"), Desired: model.DesiredRunning,
	}
}

func (f *fixture) workspace(word string) model.Workspace {
	f.Helper()
	w, created, err := f.l.CreateWorkspace(f.ctx, f.m, f.newWorkspace(word), ledger.Idempotency{})
	f.do(err)
	if !created {
		f.Fatalf("workspace %s was not created", word)
	}
	return w
}

func (f *fixture) newNode(word string, vcpus int) model.Node {
	return model.Node{
		ID: id[model.NodeID](word), Tenant: model.DefaultTenant, Region: model.DefaultRegion, Name: word,
		Driver: model.DriverGVisor, BootID: "boot-1", Version: "v1",
		Capacity: model.Capacity{VCPUs: vcpus, Memory: int64(vcpus) << 34, Disk: int64(vcpus) << 40},
	}
}

func (f *fixture) node(word string, vcpus int) model.Node {
	f.Helper()
	n := f.newNode(word, vcpus)
	f.do(f.l.SeeNode(f.ctx, f.m, n))
	return n
}

// lease is how long leases last here.
const lease = time.Minute

func (f *fixture) ceiling() ledger.Ceiling {
	return ledger.Ceiling{Tier: "small", LeaseUntil: f.m.Now.Add(lease)}
}

func (f *fixture) newInstance(word string, w model.Workspace, node model.NodeID) model.Instance {
	return model.Instance{
		ID: id[model.InstanceID](word), Tenant: w.Tenant, Region: w.Region, Node: node, Driver: model.DriverGVisor,
		Shape: w.Shape, SubjectKind: model.SubjectWorkspace, Subject: model.SubjectID(w.ID),
	}
}

func (f *fixture) place(word string, w model.Workspace, node model.NodeID) model.Instance {
	f.Helper()
	return must[model.Instance](f)(f.l.Place(f.ctx, f.m, f.newInstance(word, w, node), f.ceiling()))
}

// running makes a workspace with a running instance on a node of its own.
func (f *fixture) running(word string) (model.Workspace, model.Instance) {
	f.Helper()
	w := f.workspace(word)
	in := f.place(word+"i", w, f.node(word+"n", 8).ID)
	f.observe(in, model.StateRunning, model.CauseNone)
	return must[model.Workspace](f)(f.l.Workspace(f.ctx, mine, string(w.ID))), must[model.Instance](f)(f.l.Instance(f.ctx, in.ID))
}

func (f *fixture) seen(in model.Instance, s model.InstanceState, c model.Cause) ledger.Observation {
	return ledger.Observation{Node: in.Node, Instance: in.ID, Epoch: in.Epoch, State: s, Cause: c, LeaseUntil: f.m.Now.Add(lease)}
}

func (f *fixture) observe(in model.Instance, s model.InstanceState, c model.Cause) {
	f.Helper()
	if changed := must[bool](f)(f.l.Observe(f.ctx, f.m, f.seen(in, s, c))); !changed {
		f.Fatalf("observing instance %s as %s changed nothing", in.ID, s)
	}
}

// renew has the node of a running instance say that nothing has changed.
func (f *fixture) renew(in model.Instance) {
	f.Helper()
	f.do(drop(f.l.Observe(f.ctx, f.m, f.seen(in, model.StateRunning, model.CauseNone))))
}

func (f *fixture) newIntent(word string, in model.Instance, base model.Root) model.FlushIntent {
	return model.FlushIntent{
		ID: id[model.IntentID](word), Tenant: in.Tenant, Region: in.Region, Instance: in.ID, Subject: in.Subject,
		Epoch: in.Epoch, Base: base, Expires: f.m.Now.Add(2 * time.Hour),
	}
}

// snapshot is what a flush under an intent makes.
func (f *fixture) snapshot(word string, it model.FlushIntent) model.Snapshot {
	return model.Snapshot{
		ID: id[model.SnapshotID](word), Tenant: it.Tenant, Region: it.Region, Workspace: model.WorkspaceID(it.Subject),
		Root: root(word), Parent: it.Base, Epoch: it.Epoch, Seq: it.Seq, Consistency: "frozen", StoredBytes: 1 << 20, WrittenBytes: 2 << 20,
	}
}
