package ledgertest

import (
	"fmt"
	"math"
	"time"

	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/ledger"
	"github.com/billethq/billet/internal/model"
)

func testPlace(f *fixture) {
	w, n := f.workspace("one"), f.node("n", 8)
	want := f.newInstance("i1", w, n.ID)
	// What only the ledger knows is not the caller's to say.
	want.Epoch, want.State, want.Desired, want.Cause, want.Detail = 9, model.StateRunning, model.InstanceStop, model.CauseKilled, "x"
	var got model.Instance
	f.writes(func() (err error) {
		got, err = f.l.Place(f.ctx, f.m, want, f.ceiling())
		return err
	}, ledger.EventInstancePlaced)
	want.Epoch, want.State, want.Desired, want.Cause, want.Detail = 1, model.StateReserved, model.InstanceRun, model.CauseNone, ""
	want.LeaseUntil, want.Created, want.Updated = kept(f.m.Now.Add(lease)), f.now(), f.now()
	f.same("instance", got, want)
	f.same("instance as kept", must[model.Instance](f)(f.l.Instance(f.ctx, want.ID)), want)
	f.same("epoch of the workspace", must[model.Workspace](f)(f.l.Workspace(f.ctx, mine, "one")).Epoch, model.Epoch(1))
	f.same("tier use", must[map[string]int](f)(f.l.TierUse(f.ctx)), map[string]int{"small": 1})

	f.observe(got, model.StateEnded, model.CauseExited)
	f.do(drop(f.l.SetDesired(f.ctx, f.m, mine, w.ID, model.DesiredRunning)))
	f.same("next epoch", f.place("i2", w, n.ID).Epoch, model.Epoch(2))

	for i, kind := range []model.SubjectKind{model.SubjectJob, model.SubjectPrebuild, model.SubjectProbe} {
		in := f.newInstance(string(kind), w, n.ID)
		in.SubjectKind, in.Shape = kind, model.Shape{}
		first := must[model.Instance](f)(f.l.Place(f.ctx, f.m, in, f.ceiling()))
		f.same("first epoch of a "+string(kind), first.Epoch, model.Epoch(1)) // each kind counts for itself
		f.refused(errs.Conflict, func() error {
			in.ID = id[model.InstanceID](fmt.Sprint("twice", i))
			return drop(f.l.Place(f.ctx, f.m, in, f.ceiling()))
		})
		f.observe(first, model.StateEnded, model.CauseExited)
		f.same("second epoch of a "+string(kind), must[model.Instance](f)(f.l.Place(f.ctx, f.m, in, f.ceiling())).Epoch, model.Epoch(2))
	}
}

func testPlaceRefused(f *fixture) {
	w, n := f.workspace("one"), f.node("n", 4)
	big, _ := f.workspace("big"), f.node("huge", 1000)
	place := func(change func(*model.Instance, *ledger.Ceiling)) error {
		in, c := f.newInstance("i", w, n.ID), f.ceiling()
		change(&in, &c)
		return drop(f.l.Place(f.ctx, f.m, in, c))
	}
	refuse := func(kind errs.Kind, change func(*model.Instance, *ledger.Ceiling)) {
		f.Helper()
		f.refused(kind, func() error { return place(change) })
		f.same("epoch after the refusal", must[model.Workspace](f)(f.l.Workspace(f.ctx, mine, "one")).Epoch, model.Epoch(0))
	}
	refuse(errs.NotFound, func(in *model.Instance, _ *ledger.Ceiling) { in.Node = id[model.NodeID]("none") })
	refuse(errs.NotFound, func(in *model.Instance, _ *ledger.Ceiling) { in.Subject = "none" })
	refuse(errs.Exhausted, func(in *model.Instance, _ *ledger.Ceiling) { in.Shape.VCPUs = n.Capacity.VCPUs + 1 })
	refuse(errs.Exhausted, func(in *model.Instance, _ *ledger.Ceiling) { in.Shape.Memory = n.Capacity.Memory + 1 })
	refuse(errs.Exhausted, func(in *model.Instance, _ *ledger.Ceiling) { in.Shape.Disk = n.Capacity.Disk + 1 })
	refuse(errs.Exhausted, func(in *model.Instance, _ *ledger.Ceiling) { in.Shape.Memory = math.MaxInt64 })
	refuse(errs.Invalid, func(in *model.Instance, _ *ledger.Ceiling) { in.Shape.Disk = -1 })

	ceiling := func(in *model.Instance, c *ledger.Ceiling) { c.Max = 1 }
	f.place("other", big, id[model.NodeID]("huge"))
	refuse(errs.Exhausted, ceiling)
	f.observe(must[model.Instance](f)(f.l.Instance(f.ctx, id[model.InstanceID]("other"))), model.StateEnded, model.CauseStopped)
	f.refused(errs.Conflict, func() error { // an id is never used twice
		return place(func(in *model.Instance, _ *ledger.Ceiling) { in.ID = id[model.InstanceID]("other") })
	})

	for _, d := range []model.Desired{model.DesiredStopped, model.DesiredDeleted} { // a reconciler's old view
		f.do(drop(f.l.SetDesired(f.ctx, f.m, mine, w.ID, d)))
		refuse(errs.Conflict, func(*model.Instance, *ledger.Ceiling) {})
	}
	w = f.workspace("two")
	f.do(place(ceiling))                    // the ceiling is free again
	f.refused(errs.Conflict, func() error { // a subject has one live instance
		return place(func(in *model.Instance, _ *ledger.Ceiling) {
			in.ID, in.Node = id[model.InstanceID]("second"), id[model.NodeID]("huge")
		})
	})
}

// testCharge follows capacity through every state: it is given back at the
// proof that the compute is gone, and by nothing else.
// invariant 2
func testCharge(f *fixture) {
	n := f.node("n", 2) // room for one
	f.workspace("probe")
	for i, way := range [][]model.InstanceState{
		{model.StateReserved}, {model.StateStarting}, {model.StateRunning}, {model.StateStopping},
		{model.StateUnproven}, {model.StateRunning, model.StateUnproven}, {model.StateFenced}, {model.StateUnproven, model.StateFenced},
	} {
		w := f.workspace(fmt.Sprint("w", i))
		in := f.place(fmt.Sprint("i", i), w, n.ID)
		for _, s := range way {
			switch s {
			case model.StateReserved:
			case model.StateUnproven:
				f.advance(2 * lease)
				f.same("silent", len(must[[]model.Instance](f)(f.l.MarkUnproven(f.ctx, f.m))), 1)
			case model.StateFenced:
				f.do(f.l.Fence(f.ctx, f.m, mine, model.SubjectWorkspace, model.SubjectID(w.ID)))
			case model.StateStarting, model.StateRunning, model.StateStopping, model.StateEnded:
				f.observe(in, s, model.CauseNone)
			}
		}
		full := func() error {
			return drop(f.l.Place(f.ctx, f.m, f.newInstance("probe", must[model.Workspace](f)(f.l.Workspace(f.ctx, mine, "probe")), n.ID), f.ceiling()))
		}
		f.same("state", must[model.Instance](f)(f.l.Instance(f.ctx, in.ID)).State, way[len(way)-1])
		f.refused(errs.Exhausted, full)
		f.observe(in, model.StateEnded, model.CauseStopped)
	}
	f.place("last", must[model.Workspace](f)(f.l.Workspace(f.ctx, mine, "probe")), n.ID)
}

func testInstanceFilter(f *fixture) {
	a, b := f.node("a", 100), f.node("b", 100)
	w := f.workspace("w")
	i1 := f.place("z1", w, a.ID) // ids fall as time rises
	f.observe(i1, model.StateEnded, model.CauseStopped)
	f.do(drop(f.l.SetDesired(f.ctx, f.m, mine, w.ID, model.DesiredRunning)))
	f.advance(time.Second)
	i2 := f.place("y2", w, b.ID)
	f.advance(time.Second)
	i3 := f.place("x3", f.workspace("v"), a.ID)
	for _, c := range []struct {
		filter ledger.InstanceFilter
		want   []model.InstanceID
	}{
		{ledger.InstanceFilter{Tenant: mine}, []model.InstanceID{i1.ID, i2.ID, i3.ID}},
		{ledger.InstanceFilter{Tenant: mine, Live: true}, []model.InstanceID{i2.ID, i3.ID}},
		{ledger.InstanceFilter{Tenant: mine, Node: a.ID}, []model.InstanceID{i1.ID, i3.ID}},
		{ledger.InstanceFilter{Tenant: mine, Node: a.ID, Live: true}, []model.InstanceID{i3.ID}},
		{ledger.InstanceFilter{Tenant: mine, Subject: i1.Subject}, []model.InstanceID{i1.ID, i2.ID}},
		{ledger.InstanceFilter{Tenant: mine, Subject: i1.Subject, Node: b.ID, Live: true}, []model.InstanceID{i2.ID}},
		{ledger.InstanceFilter{Tenant: mine, Limit: 2}, []model.InstanceID{i1.ID, i2.ID}},
		{ledger.InstanceFilter{Tenant: mine, Node: "none"}, nil},
	} {
		var got []model.InstanceID
		for _, in := range must[[]model.Instance](f)(f.l.Instances(f.ctx, c.filter)) {
			got = append(got, in.ID)
		}
		f.same(fmt.Sprintf("%+v", c.filter), got, c.want)
	}
	f.refused(errs.NotFound, func() error { return drop(f.l.Instance(f.ctx, "none")) })
}

// testNewestInstance has a long history made under a clock that runs backwards.
func testNewestInstance(f *fixture) {
	w, n := f.workspace("one"), f.node("n", 100)
	newest := func() (model.Instance, bool) {
		f.Helper()
		in, found, err := f.l.NewestInstance(f.ctx, mine, model.SubjectWorkspace, model.SubjectID(w.ID))
		f.do(err)
		return in, found
	}
	_, found := newest()
	f.same("found before the first", found, false)
	for i := range 3 {
		in := f.place(fmt.Sprint("i", i), w, n.ID)
		got, _ := newest()
		f.same("the newest", got, in)
		f.observe(in, model.StateEnded, model.CauseStopped)
		f.advance(-time.Hour)
		f.do(drop(f.l.SetDesired(f.ctx, f.m, mine, w.ID, model.DesiredRunning)))
	}
	job := f.newInstance("job", w, n.ID) // of the same id, and another kind
	job.SubjectKind = model.SubjectJob
	f.do(drop(f.l.Place(f.ctx, f.m, job, f.ceiling())))
	f.do(f.l.Fence(f.ctx, f.m, mine, model.SubjectWorkspace, model.SubjectID(w.ID))) // an epoch without an instance
	got, _ := newest()
	f.same("the newest, and how it ended", []any{got.ID, got.Epoch, got.State}, []any{id[model.InstanceID]("i2"), model.Epoch(3), model.StateEnded})
}

func testInstanceDesired(f *fixture) {
	_, in := f.running("one")
	set := func(d model.InstanceDesired) func() error {
		return func() error { return f.l.SetInstanceDesired(f.ctx, f.m, mine, in.ID, d) }
	}
	f.advance(time.Second)
	f.writes(set(model.InstanceStop), ledger.EventInstanceDesired)
	in.Desired, in.Updated = model.InstanceStop, f.now()
	f.advance(time.Second)
	f.writes(set(model.InstanceStop)) // again: nothing
	f.same("instance", must[model.Instance](f)(f.l.Instance(f.ctx, in.ID)), in)
	f.refused(errs.Invalid, set("dance"))
	f.refused(errs.NotFound, func() error { return f.l.SetInstanceDesired(f.ctx, f.m, mine, "none", model.InstanceStop) })
	f.observe(in, model.StateEnded, model.CauseStopped)
	f.refused(errs.Conflict, set(model.InstanceDestroy))
}

// testUnproven wants the end of a lease to end nothing but certainty.
// invariant 9
func testUnproven(f *fixture) {
	_, first := f.running("a")
	f.advance(time.Microsecond)
	_, second := f.running("b")
	_, gone := f.running("c")
	f.observe(gone, model.StateEnded, model.CauseExited)
	mark := func(events ...string) (silent []model.Instance) {
		f.Helper()
		f.writes(func() (err error) {
			silent, err = f.l.MarkUnproven(f.ctx, f.m)
			return err
		}, events...)
		return silent
	}
	f.m.Now = first.LeaseUntil // ends now: not before now
	f.same("at the end of the lease", len(mark()), 0)
	f.advance(time.Microsecond)
	first.State, first.Updated = model.StateUnproven, f.now()
	f.same("after it", mark(ledger.EventInstanceMoved), []model.Instance{first})
	f.same("as kept", must[model.Instance](f)(f.l.Instance(f.ctx, first.ID)), first)
	f.advance(lease)
	second.State, second.Updated = model.StateUnproven, f.now()
	f.same("only what is new", mark(ledger.EventInstanceMoved), []model.Instance{second})
	f.same("nothing new", len(mark()), 0)

	f.observe(first, model.StateRunning, model.CauseNone) // its node is back
	f.same("back", must[model.Instance](f)(f.l.Instance(f.ctx, first.ID)).State, model.StateRunning)
	f.same("after its renewal", len(mark()), 0)
}

// testFence wants an epoch that only rises, also when nothing is live.
// invariant 3
func testFence(f *fixture) {
	w, in := f.running("one")
	fence := func() error { return f.l.Fence(f.ctx, f.m, mine, model.SubjectWorkspace, model.SubjectID(w.ID)) }
	f.advance(time.Second)
	f.writes(fence, ledger.EventSubjectFenced, ledger.EventInstanceFenced)
	in.State, in.Desired, in.Cause, in.Updated = model.StateFenced, model.InstanceFence, model.CauseFenced, f.now()
	f.same("fenced", must[model.Instance](f)(f.l.Instance(f.ctx, in.ID)), in)
	f.same("epoch", must[model.Workspace](f)(f.l.Workspace(f.ctx, mine, "one")).Epoch, model.Epoch(2))
	f.same("tier use", must[map[string]int](f)(f.l.TierUse(f.ctx)), map[string]int{})
	f.same("epoch of the next", f.place("next", w, f.node("m", 8).ID).Epoch, model.Epoch(3))

	f.writes(fence, ledger.EventSubjectFenced, ledger.EventInstanceFenced) // the next one now
	f.writes(fence, ledger.EventSubjectFenced)                             // nothing live: the epoch rises all the same
	f.same("epoch", must[model.Workspace](f)(f.l.Workspace(f.ctx, mine, "one")).Epoch, model.Epoch(5))
	f.refused(errs.NotFound, func() error { return f.l.Fence(f.ctx, f.m, mine, model.SubjectWorkspace, "none") })
	f.refused(errs.NotFound, func() error { return f.l.Fence(f.ctx, f.m, mine, model.SubjectJob, model.SubjectID(w.ID)) })
}

// testGiveUp wants an instance to be left behind for another one, and for
// nothing else.
// invariant 3
func testGiveUp(f *fixture) {
	w, in := f.running("one")
	giveUp := func(in model.Instance) error {
		got, err := f.l.GiveUp(f.ctx, f.m, mine, w.ID, in.ID)
		if err == nil {
			f.same("the answer", got, must[model.Workspace](f)(f.l.Workspace(f.ctx, mine, "one")))
		}
		return err
	}
	state := func(in model.Instance) []any {
		now := must[model.Instance](f)(f.l.Instance(f.ctx, in.ID))
		w := must[model.Workspace](f)(f.l.Workspace(f.ctx, mine, "one"))
		return []any{now.State, now.Desired, w.Desired, w.Epoch}
	}
	it := must[model.FlushIntent](f)(f.l.BeginFlush(f.ctx, f.m, f.newIntent("it", in, w.Head)))
	other := in
	other.ID = id[model.InstanceID]("other") // of which nobody was told
	f.refused(errs.Conflict, func() error { return giveUp(other) })
	f.same("refused", state(in), []any{model.StateRunning, model.InstanceRun, model.DesiredRunning, in.Epoch})

	f.do(drop(f.l.SetDesired(f.ctx, f.m, mine, w.ID, model.DesiredHibernated))) // on its way down
	f.writes(func() error { return giveUp(in) }, ledger.EventSubjectFenced, ledger.EventInstanceFenced, ledger.EventWorkspaceDesired)
	f.same("given up", state(in), []any{model.StateFenced, model.InstanceFence, model.DesiredRunning, in.Epoch + 1})
	f.refused(errs.Stale, func() error { return drop(f.l.CommitFlush(f.ctx, f.m, it.ID, in.ID, f.snapshot("s", it))) })
	f.refused(errs.Conflict, func() error { return giveUp(in) }) // it is over

	next := f.place("next", w, f.node("m", 8).ID)
	f.refused(errs.Conflict, func() error { return giveUp(in) }) // another one lives
	f.do(drop(f.l.SetDesired(f.ctx, f.m, mine, w.ID, model.DesiredDeleted)))
	f.refused(errs.Conflict, func() error { return giveUp(next) }) // for nothing
	f.same("deleted", state(next), []any{model.StateReserved, model.InstanceRun, model.DesiredDeleted, next.Epoch})
}
