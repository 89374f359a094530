package ledgertest

import (
	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/ledger"
	"github.com/billethq/billet/internal/model"
)

func (f *fixture) removeNode(id model.NodeID, gone bool) error {
	return drop(f.l.RemoveNode(f.ctx, f.m, id, gone))
}

func testRemoveNode(f *fixture) {
	w, in := f.running("w")
	f.refused(errs.NotFound, func() error { return f.removeNode(id[model.NodeID]("none"), true) })
	// invariant 2: nothing but a proof takes the charge away, and asking is none.
	f.refused(errs.Conflict, func() error { return f.removeNode(in.Node, false) })
	f.same("its instance", must[model.Instance](f)(f.l.Instance(f.ctx, in.ID)), in)
	f.do(f.l.Fence(f.ctx, f.m, mine, model.SubjectWorkspace, model.SubjectID(w.ID)))
	f.refused(errs.Conflict, func() error { return f.removeNode(in.Node, false) }) // overtaken, not gone
	f.observe(in, model.StateEnded, model.CauseFenced)

	f.writes(func() error { return f.removeNode(in.Node, false) }, ledger.EventNodeRemoved)
	f.same("nodes left", len(must[[]model.Node](f)(f.l.Nodes(f.ctx))), 0)
	f.refused(errs.NotFound, func() error { return f.removeNode(in.Node, false) })
	f.refused(errs.NotFound, func() error { // nothing is placed there any more
		return drop(f.l.Place(f.ctx, f.m, f.newInstance("late", w, in.Node), f.ceiling()))
	})

	f.advance(lease)
	n := f.newNode("wn", 8)
	f.writes(func() error { return f.l.SeeNode(f.ctx, f.m, n) }, ledger.EventNodeJoined)
	n.Created, n.LastSeen = f.now(), f.now()
	f.same("joined anew", must[[]model.Node](f)(f.l.Nodes(f.ctx)), []model.Node{n})
	f.place("after", w, n.ID)
}

// testRemoveNodeGone removes a node by a person's word, under everything that
// an instance on it can be.
func testRemoveNodeGone(f *fixture) {
	n := f.node("n", 100)
	run := func(word string, told model.InstanceDesired) (model.Workspace, model.Instance) {
		w := f.workspace(word)
		in := f.place(word+"i", w, n.ID)
		f.observe(in, model.StateRunning, model.CauseNone)
		if told != model.InstanceRun {
			f.do(f.l.SetInstanceDesired(f.ctx, f.m, mine, in.ID, told))
		}
		return w, in
	}
	a, ai := run("a", model.InstanceRun)
	b, bi := run("b", model.InstanceStop)
	c, ci := run("c", model.InstanceDestroy)
	d, di := run("d", model.InstanceRun)
	f.do(f.l.Fence(f.ctx, f.m, mine, model.SubjectWorkspace, model.SubjectID(d.ID)))
	must[model.Workspace](f)(f.l.SetDesired(f.ctx, f.m, mine, c.ID, model.DesiredDeleted))
	begun := must[model.FlushIntent](f)(f.l.BeginFlush(f.ctx, f.m, f.newIntent("begun", ai, a.Head)))
	f.advance(2 * lease)
	must[[]model.Instance](f)(f.l.MarkUnproven(f.ctx, f.m))

	var lost []model.Instance
	events := f.writes(func() (err error) {
		lost, err = f.l.RemoveNode(f.ctx, f.m, n.ID, true)
		return err
	},
		ledger.EventSubjectFenced, ledger.EventInstanceMoved, ledger.EventWorkspaceFailed,
		ledger.EventSubjectFenced, ledger.EventInstanceMoved, ledger.EventWorkspaceFailed,
		ledger.EventSubjectFenced, ledger.EventInstanceMoved,
		ledger.EventInstanceMoved, ledger.EventNodeRemoved)
	f.same("how many were lost", events[len(events)-1].Data, map[string]string{"name": "n", "lost": "4"})
	for i, want := range []model.Instance{ai, bi, ci, di} {
		got := must[model.Instance](f)(f.l.Instance(f.ctx, want.ID))
		f.same("the instance that came back", lost[i], got)
		cause := model.CauseHostGone
		if want.ID == di.ID {
			cause = model.CauseFenced
		}
		if got.State != model.StateEnded || got.Cause != cause {
			f.Errorf("instance %s is %s by %q, want ended by %q", got.ID, got.State, got.Cause, cause)
		}
	}
	for _, want := range []struct {
		w       model.Workspace
		desired model.Desired
		failure model.Cause
	}{{a, model.DesiredStopped, model.CauseHostGone}, {b, model.DesiredStopped, model.CauseHostGone}, {c, model.DesiredDeleted, ""}, {d, model.DesiredRunning, ""}} {
		got := must[model.Workspace](f)(f.l.Workspace(f.ctx, mine, string(want.w.ID)))
		if got.Desired != want.desired || got.Failure != want.failure || got.Head != want.w.Head || got.Epoch != 2 {
			f.Errorf("workspace %s is %+v, want desired %s, failure %q, its head and epoch 2", got.Name, got, want.desired, want.failure)
		}
	}

	// invariant 3: should the word have been wrong, what comes back is stale.
	f.do(f.l.SeeNode(f.ctx, f.m, n))
	f.refused(errs.Stale, func() error {
		return drop(f.l.CommitFlush(f.ctx, f.m, begun.ID, ai.ID, f.snapshot("late", begun)))
	})
	f.refused(errs.Stale, func() error { return drop(f.l.BeginFlush(f.ctx, f.m, f.newIntent("more", ai, a.Head))) })
	if changed := must[bool](f)(f.l.Observe(f.ctx, f.m, f.seen(ai, model.StateRunning, model.CauseNone))); changed {
		f.Error("an instance that ended with its host lives again")
	}
	must[model.Workspace](f)(f.l.SetDesired(f.ctx, f.m, mine, a.ID, model.DesiredRunning))
	if again := f.place("a2", a, n.ID); again.Epoch != 3 {
		f.Errorf("the next instance has epoch %d, want 3", again.Epoch)
	}
}
