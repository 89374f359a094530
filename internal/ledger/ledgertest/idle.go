package ledgertest

import (
	"time"

	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/ledger"
	"github.com/billethq/billet/internal/model"
)

// hold vetoes the hibernation of a workspace of a tenant's.
func (f *fixture) hold(t model.TenantID, w model.WorkspaceID, d time.Duration) (model.Hold, error) {
	return f.l.PutHold(f.ctx, f.m, model.Hold{Workspace: w, Tenant: t, Reason: "a demo", Expires: f.m.Now.Add(d)})
}

func (f *fixture) idleness(w model.WorkspaceID) model.Idleness {
	f.Helper()
	return must[model.Idleness](f)(f.l.Idleness(f.ctx, f.m, mine, w))
}

func testHolds(f *fixture) {
	w := f.workspace("one")
	f.same("nothing at first", f.idleness(w.ID), model.Idleness{})
	var got model.Hold
	put := func(d time.Duration) func() error {
		return func() (err error) { got, err = f.hold(mine, w.ID, d); return err }
	}
	f.writes(put(time.Hour), ledger.EventHoldPlaced)
	want := model.Hold{Workspace: w.ID, Tenant: w.Tenant, Region: w.Region, Principal: f.m.Actor, Reason: "a demo", Created: f.now(), Expires: kept(f.m.Now.Add(time.Hour))}
	f.same("hold", got, want)
	f.same("held", f.idleness(w.ID).Hold, want)
	f.writes(put(time.Minute), ledger.EventHoldPlaced) // a shorter one replaces it
	f.advance(time.Minute)
	f.same("expired", f.idleness(w.ID), model.Idleness{})
	release := func() error { return f.l.DeleteHold(f.ctx, f.m, mine, w.ID) }
	f.refused(errs.NotFound, release)
	f.writes(func() error { return f.l.ExpireHolds(f.ctx, f.m) })

	f.do(put(time.Hour)())
	f.writes(func() error { return f.l.ExpireHolds(f.ctx, f.m) })
	f.same("a hold that has not expired is kept", f.idleness(w.ID).Hold, got)
	f.writes(release, ledger.EventHoldReleased)
	f.same("released", f.idleness(w.ID), model.Idleness{})
	f.refused(errs.NotFound, release)

	f.refused(errs.Invalid, put(0))
	f.refused(errs.NotFound, func() error { return drop(f.hold(mine, "nobody", time.Hour)) })
	f.do(put(time.Hour)())
	f.do(drop(f.l.SetDesired(f.ctx, f.m, mine, w.ID, model.DesiredDeleted)))
	f.refused(errs.Conflict, put(time.Hour))
	f.do(f.l.RemoveWorkspace(f.ctx, f.m, mine, w.ID))
	f.same("of a removed workspace", f.idleness(w.ID), model.Idleness{})
}

// idleEnd is what a node asks of an instance.
func (f *fixture) idleEnd(in model.Instance) model.IdleEnd {
	return model.IdleEnd{
		Instance: in.ID, Epoch: in.Epoch, Since: f.now().Add(-time.Hour), User: f.m.Actor, Detail: "input", Inputs: map[string]string{"cpu": "0"},
	}
}

func (f *fixture) counts() map[string]int64 {
	f.Helper()
	out := map[string]int64{}
	for _, c := range must[[]model.IdleCount](f)(f.l.IdleCounts(f.ctx, mine)) {
		out[string(c.Name)+" "+c.Reason] = c.Count
	}
	return out
}

// testIdleEnd wants what a node asks to be looked at again, and to be one step
// with what it changes.
func testIdleEnd(f *fixture) {
	w, in := f.running("one")
	var ended bool
	end := func(e model.IdleEnd) func() error {
		return func() (err error) { ended, err = f.l.EndIdle(f.ctx, f.m, mine, w.ID, e); return err }
	}
	stays := func(what string) {
		f.Helper()
		f.writes(end(f.idleEnd(in)))
		f.same("ended while "+what, ended, false)
	}
	f.do(drop(f.hold(mine, w.ID, time.Hour)))
	stays("held")
	f.do(f.l.DeleteHold(f.ctx, f.m, mine, w.ID))
	terms := f.newTerms("one")
	f.do(f.l.CreateTerms(f.ctx, f.m, terms))
	f.same("lent", f.idleness(w.ID).Lent, true)
	stays("on terms")
	f.do(f.l.RemoveTerms(f.ctx, f.m, mine, w.ID))
	old := f.idleEnd(in)
	old.Epoch--
	f.refused(errs.Stale, end(old))
	f.refused(errs.NotFound, end(model.IdleEnd{Instance: "nobody"}))

	e := f.idleEnd(in)
	e.Job, e.Past = true, model.IdleStretch{Number: 7, Keep: "hold", Took: time.Minute}
	f.writes(end(e), ledger.EventWorkspaceIdle)
	f.same("ended", ended, true)
	f.same("desired", must[model.Workspace](f)(f.l.Workspace(f.ctx, mine, "one")).Desired, model.DesiredHibernated)
	f.same("instance's desired", must[model.Instance](f)(f.l.Instance(f.ctx, in.ID)).Desired, model.InstanceHibernate)
	f.same("why", f.idleness(w.ID).Sleep, model.Sleep{
		Workspace: w.ID, Tenant: w.Tenant, Region: w.Region, Reason: model.SleepIdle, At: f.now(), Since: kept(e.Since), User: f.m.Actor, Detail: "input",
	})
	stays("it is hibernating already")
	f.same("counts", f.counts(), map[string]int64{"hibernations idle": 1, "false_hibernations job": 1, "missed_idleness hold": 1})
	f.writes(func() error { return drop(f.l.NoteStretch(f.ctx, f.m, in.ID, in.Epoch, e.Past)) })
	f.same("missed idleness counted twice", f.counts()["missed_idleness hold"], int64(1))
	next := model.IdleStretch{Number: 8, Keep: "hold", Took: time.Second}
	f.same("counted", must[bool](f)(f.l.NoteStretch(f.ctx, f.m, in.ID, in.Epoch, next)), true)
	f.refused(errs.Stale, func() error { return drop(f.l.NoteStretch(f.ctx, f.m, in.ID, in.Epoch-1, next)) })
	for _, c := range must[[]model.IdleCount](f)(f.l.IdleCounts(f.ctx, mine)) {
		if c.Name == model.CountMissed {
			f.same("missed idleness", c, model.IdleCount{Name: c.Name, Class: w.Class, Reason: "hold", Count: 2, Took: time.Minute + time.Second})
		}
	}
}

// testIdleBack wants a return to count against the hibernation only when it
// shows that somebody was there.
func testIdleBack(f *fixture) {
	w, in := f.running("one")
	sleep := func(user model.PrincipalID) {
		f.Helper()
		e := f.idleEnd(in)
		e.User = user
		f.same("ended", must[bool](f)(f.l.EndIdle(f.ctx, f.m, mine, w.ID, e)), true)
	}
	back := func() {
		f.Helper()
		f.do(drop(f.l.SetDesired(f.ctx, f.m, mine, w.ID, model.DesiredRunning)))
		f.do(f.l.SetInstanceDesired(f.ctx, f.m, mine, in.ID, model.InstanceRun))
		f.same("why after the return", f.idleness(w.ID).Sleep, model.Sleep{})
	}
	sleep("somebody")
	back()
	f.same("somebody else's return", f.counts()["false_hibernations resumed"], int64(0))
	sleep(f.m.Actor)
	f.advance(model.FalseWithin + time.Second)
	back()
	f.same("a late return", f.counts()["false_hibernations resumed"], int64(0))
	sleep(f.m.Actor)
	f.advance(model.FalseWithin)
	f.renew(in)
	back()
	f.same("a return", f.counts()["false_hibernations resumed"], int64(1))

	f.do(drop(f.l.SetDesired(f.ctx, f.m, mine, w.ID, model.DesiredHibernated)))
	f.same("asked", f.idleness(w.ID).Sleep.Reason, model.SleepAsked)
	f.do(drop(f.l.SetDesired(f.ctx, f.m, mine, w.ID, model.DesiredRunning)))
	f.same("counts", f.counts(), map[string]int64{"hibernations idle": 3, "hibernations asked": 1, "false_hibernations resumed": 1})
}

// testIdleWoken wants a hibernation that failed to be taken back, and no other.
func testIdleWoken(f *fixture) {
	w, in := f.running("one")
	var woken bool
	wake := func() (err error) {
		woken, err = f.l.WakeIdle(f.ctx, f.m, mine, w.ID, in.ID, "no room")
		return err
	}
	f.writes(wake)
	f.same("woken while it runs", woken, false)
	f.do(drop(f.l.EndIdle(f.ctx, f.m, mine, w.ID, f.idleEnd(in))))
	f.writes(wake, ledger.EventWorkspaceAwake)
	f.same("woken", woken, true)
	f.same("desired", must[model.Workspace](f)(f.l.Workspace(f.ctx, mine, "one")).Desired, model.DesiredRunning)
	f.same("instance's desired", must[model.Instance](f)(f.l.Instance(f.ctx, in.ID)).Desired, model.InstanceRun)
	f.same("why", f.idleness(w.ID).Sleep, model.Sleep{})
	f.writes(wake)
	f.same("woken again", woken, false)

	f.do(drop(f.l.SetDesired(f.ctx, f.m, mine, w.ID, model.DesiredHibernated))) // a person's word
	f.do(f.l.SetInstanceDesired(f.ctx, f.m, mine, in.ID, model.InstanceHibernate))
	f.writes(wake)
	f.same("woken from what somebody asked for", woken, false)
	f.same("counts", f.counts(), map[string]int64{"hibernations idle": 1, "hibernations asked": 1, "failed_hibernations ": 1})
}
