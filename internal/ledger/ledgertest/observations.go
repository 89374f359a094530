package ledgertest

import (
	"fmt"
	"strings"
	"time"

	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/ledger"
	"github.com/billethq/billet/internal/model"
)

// reach brings a new instance to a state.
func (f *fixture) reach(word string, s model.InstanceState) model.Instance {
	f.Helper()
	w := f.workspace(word)
	in := f.place(word+"i", w, f.node(word+"n", 8).ID)
	switch s {
	case model.StateReserved:
	case model.StateUnproven:
		f.advance(2 * lease)
		f.do(drop(f.l.MarkUnproven(f.ctx, f.m)))
	case model.StateFenced:
		f.do(f.l.Fence(f.ctx, f.m, mine, model.SubjectWorkspace, model.SubjectID(w.ID)))
	case model.StateStarting, model.StateRunning, model.StateStopping, model.StateEnded:
		f.observe(in, s, model.CauseNone)
	}
	return must[model.Instance](f)(f.l.Instance(f.ctx, in.ID))
}

// testObserveTransitions walks the whole table of the model, state by state.
func testObserveTransitions(f *fixture) {
	for i, from := range model.InstanceStates() {
		for j, to := range []model.InstanceState{model.StateStarting, model.StateRunning, model.StateStopping, model.StateEnded} {
			in := f.reach(fmt.Sprintf("w%d%d", i, j), from)
			seen := f.seen(in, to, in.Cause)
			switch legal := model.CheckTransition(from, to) == nil; {
			case !from.Live() && to != model.StateEnded, from == to:
				f.writes(func() error {
					changed, err := f.l.Observe(f.ctx, f.m, seen)
					f.same("changed", changed, false)
					return err
				})
			case legal:
				kinds := []string{ledger.EventInstanceMoved}
				if to == model.StateEnded && from.Live() {
					kinds = append(kinds, ledger.EventWorkspaceFailed)
				}
				f.writes(func() error {
					changed, err := f.l.Observe(f.ctx, f.m, seen)
					f.same("changed", changed, true)
					return err
				}, kinds...)
				in.State = to
			default:
				f.refused(errs.Conflict, func() error { return drop(f.l.Observe(f.ctx, f.m, seen)) })
			}
			f.same(fmt.Sprintf("%s seen %s", from, to), must[model.Instance](f)(f.l.Instance(f.ctx, in.ID)).State, in.State)
		}
	}
}

// testObserveUnaskedEnd wants what failed to wait for somebody's request.
// invariant 14
func testObserveUnaskedEnd(f *fixture) {
	end := func(word string, asked model.InstanceDesired, desired model.Desired) model.Workspace {
		f.Helper()
		w, in := f.running(word)
		if asked != model.InstanceRun {
			f.do(f.l.SetInstanceDesired(f.ctx, f.m, mine, in.ID, asked))
		}
		f.do(drop(f.l.SetDesired(f.ctx, f.m, mine, w.ID, desired)))
		f.advance(time.Second)
		f.observe(in, model.StateEnded, model.CauseOutOfMemory)
		return must[model.Workspace](f)(f.l.Workspace(f.ctx, mine, string(w.ID)))
	}
	type outcome struct {
		Desired model.Desired
		Failure model.Cause
	}
	for i, c := range []struct {
		asked   model.InstanceDesired
		desired model.Desired
		want    outcome
	}{
		{model.InstanceRun, model.DesiredRunning, outcome{model.DesiredStopped, model.CauseOutOfMemory}},
		{model.InstanceRun, model.DesiredStopped, outcome{model.DesiredStopped, model.CauseOutOfMemory}},
		{model.InstanceRun, model.DesiredDeleted, outcome{model.DesiredDeleted, model.CauseOutOfMemory}},
		{model.InstanceStop, model.DesiredStopped, outcome{model.DesiredStopped, model.CauseNone}},
		{model.InstanceStop, model.DesiredRunning, outcome{model.DesiredRunning, model.CauseNone}},
		{model.InstanceDestroy, model.DesiredDeleted, outcome{model.DesiredDeleted, model.CauseNone}},
	} {
		w := end(fmt.Sprint("w", i), c.asked, c.desired)
		f.same(fmt.Sprintf("told %s, desired %s", c.asked, c.desired), outcome{w.Desired, w.Failure}, c.want)
	}
	w := end("again", model.InstanceRun, model.DesiredRunning)
	f.same("updated", w.Updated, f.now())
	f.same("failure cleared", must[model.Workspace](f)(f.l.SetDesired(f.ctx, f.m, mine, w.ID, model.DesiredRunning)).Failure, model.CauseNone)

	job := f.newInstance("job", w, f.node("jobs", 8).ID) // has no workspace to fail
	job.SubjectKind = model.SubjectJob
	job = must[model.Instance](f)(f.l.Place(f.ctx, f.m, job, f.ceiling()))
	f.writes(func() error { return drop(f.l.Observe(f.ctx, f.m, f.seen(job, model.StateEnded, model.CauseExited))) }, ledger.EventInstanceMoved)
}

func testObserveLease(f *fixture) {
	_, in := f.running("one")
	f.advance(time.Second)
	seen := f.seen(in, model.StateRunning, model.CauseNone)
	observe := func(want bool, events ...string) {
		f.Helper()
		f.writes(func() error {
			changed, err := f.l.Observe(f.ctx, f.m, seen)
			f.same("changed", changed, want)
			return err
		}, events...)
		f.same("instance", must[model.Instance](f)(f.l.Instance(f.ctx, in.ID)), in)
	}
	in.LeaseUntil = kept(seen.LeaseUntil)
	observe(false) // only the lease
	seen.LeaseUntil = seen.LeaseUntil.Add(-time.Second)
	observe(false) // never shorter

	seen.Phases = []model.Phase{{Name: "placed", At: start}, {Name: "attached", At: start.Add(time.Second)}}
	in.Phases = []model.Phase{{Name: "placed", At: kept(start)}, {Name: "attached", At: kept(start.Add(time.Second))}}
	in.Updated = f.now()
	observe(true, ledger.EventInstanceProgressed)
	observe(false)
	seen.Detail, in.Detail = "so far", "so far"
	observe(true, ledger.EventInstanceProgressed)
	seen.Cause, in.Cause = model.CauseDiskFull, model.CauseDiskFull
	observe(true, ledger.EventInstanceProgressed)

	seen.Detail = strings.Repeat("é", 8<<10) // twice what is kept
	in.Detail = strings.Repeat("é", 4<<10)
	observe(true, ledger.EventInstanceProgressed)
	observe(false)
}

func testObserveRefused(f *fixture) {
	_, in := f.running("one")
	refuse := func(kind errs.Kind, change func(*ledger.Observation)) {
		f.Helper()
		o := f.seen(in, model.StateStopping, model.CauseNone)
		change(&o)
		f.refused(kind, func() error { return drop(f.l.Observe(f.ctx, f.m, o)) })
		f.same("instance", must[model.Instance](f)(f.l.Instance(f.ctx, in.ID)), in)
	}
	refuse(errs.NotFound, func(o *ledger.Observation) { o.Instance = "none" })
	refuse(errs.Stale, func(o *ledger.Observation) { o.Node = "other" })
	refuse(errs.Stale, func(o *ledger.Observation) { o.Epoch++ })
	refuse(errs.Stale, func(o *ledger.Observation) { o.Epoch-- })
	for _, s := range []model.InstanceState{model.StateReserved, model.StateUnproven, model.StateFenced, "", "upside_down"} {
		refuse(errs.Invalid, func(o *ledger.Observation) { o.State = s })
	}
}
