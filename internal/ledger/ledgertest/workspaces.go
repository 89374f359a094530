package ledgertest

import (
	"time"

	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/ledger"
	"github.com/billethq/billet/internal/model"
)

func testWorkspaceCreate(f *fixture) {
	w := f.newWorkspace("one")
	// What only the ledger knows is not the caller's to say.
	w.Epoch, w.Head, w.HeadSeq, w.Failure, w.Created = 7, root("lie"), 9, model.CauseCrashed, start.Add(time.Hour)
	var got model.Workspace
	f.writes(func() (err error) {
		var created bool
		got, created, err = f.l.CreateWorkspace(f.ctx, f.m, w, ledger.Idempotency{})
		f.same("created", created, true)
		return err
	}, ledger.EventWorkspaceCreated)
	w.Epoch, w.Head, w.HeadSeq, w.Failure = 0, w.Base, 0, model.CauseNone
	w.HeadAt, w.Created, w.Updated = f.now(), f.now(), f.now()
	f.same("workspace", got, w)
	for _, ref := range []string{"one", string(w.ID)} {
		f.same("workspace by "+ref, must[model.Workspace](f)(f.l.Workspace(f.ctx, mine, ref)), w)
	}
	f.refused(errs.NotFound, func() error { return drop(f.l.Workspace(f.ctx, mine, "two")) })

	refuse := func(kind errs.Kind, change func(*model.Workspace)) {
		f.Helper()
		v := f.newWorkspace("two")
		change(&v)
		f.refused(kind, func() error { _, _, err := f.l.CreateWorkspace(f.ctx, f.m, v, ledger.Idempotency{}); return err })
	}
	refuse(errs.Conflict, func(v *model.Workspace) { v.Name = "one" })
	refuse(errs.Conflict, func(v *model.Workspace) { v.ID = w.ID })
	refuse(errs.Invalid, func(v *model.Workspace) { v.Desired = model.DesiredDeleted })
	refuse(errs.Invalid, func(v *model.Workspace) { v.Desired = "" })

	a := f.workspace("a")
	f.same("workspaces by name", must[[]model.Workspace](f)(f.l.Workspaces(f.ctx, mine)), []model.Workspace{a, w})
}

func testWorkspaceIdempotency(f *fixture) {
	idem := ledger.Idempotency{Key: "key", Principal: id[model.PrincipalID]("ada"), Fingerprint: [32]byte{1}}
	create := func(word string, idem ledger.Idempotency) (model.Workspace, bool, error) {
		return f.l.CreateWorkspace(f.ctx, f.m, f.newWorkspace(word), idem)
	}
	w, created, err := create("one", idem)
	f.do(err)
	f.same("created", created, true)
	f.advance(time.Second)
	f.writes(func() error { // the repeat changes nothing, whatever its workspace says
		again, created, err := create("two", idem)
		f.same("created again", created, false)
		f.same("workspace again", again, w)
		return err
	})
	other := idem
	other.Fingerprint[0]++
	f.refused(errs.Conflict, func() error { _, _, err := create("one", other); return err })
	other = idem
	other.Principal = id[model.PrincipalID]("bob") // keys are each principal's own
	if _, created, err := create("two", other); err != nil || !created {
		f.Fatalf("another principal's key: created %t, %v", created, err)
	}
	f.refused(errs.Conflict, func() error { // a refused creation does not use up its key
		third := ledger.Idempotency{Key: "third", Principal: idem.Principal}
		_, _, err := create("one", third)
		if _, created, err := create("three", third); err != nil || !created {
			f.Fatalf("key of a refused creation: created %t, %v", created, err)
		}
		f.fresh()
		return err
	})

	f.do(drop(f.l.SetDesired(f.ctx, f.m, mine, w.ID, model.DesiredDeleted)))
	f.do(f.l.RemoveWorkspace(f.ctx, f.m, mine, w.ID))
	f.refused(errs.Conflict, func() error { _, _, err := create("four", idem); return err })

	f.do(f.l.ExpireIdempotency(f.ctx, start)) // used at start: stays
	f.refused(errs.Conflict, func() error { _, _, err := create("four", idem); return err })
	f.do(f.l.ExpireIdempotency(f.ctx, start.Add(time.Microsecond)))
	if _, created, err := create("four", idem); err != nil || !created {
		f.Fatalf("forgotten key: created %t, %v", created, err)
	}
}

// testTakeBack wants a creation that was undone to be as if it had never been.
// invariant 7
func testTakeBack(f *fixture) {
	idem := ledger.Idempotency{Key: "key", Principal: id[model.PrincipalID]("ada"), Fingerprint: [32]byte{1}}
	create := func(word string, idem ledger.Idempotency) model.Workspace {
		f.Helper()
		w := f.newWorkspace(word)
		w.Name = "one"
		got, created, err := f.l.CreateWorkspace(f.ctx, f.m, w, idem)
		f.do(err)
		f.same("created", created, true)
		return got
	}
	first := create("first", idem)
	f.writes(func() error { return f.l.TakeBack(f.ctx, f.m, mine, first.ID) }, ledger.EventWorkspaceRemoved)
	f.refused(errs.NotFound, func() error { return drop(f.l.Workspace(f.ctx, mine, "one")) })
	f.refused(errs.NotFound, func() error { return f.l.TakeBack(f.ctx, f.m, mine, first.ID) })
	_, found, err := f.l.Created(f.ctx, mine, idem)
	f.do(err)
	f.same("found by its key", found, false)

	idem.Fingerprint[0]++ // even another request
	second := create("second", idem)
	in := f.place("i", second, f.node("n", 8).ID)
	f.refused(errs.Conflict, func() error { return f.l.TakeBack(f.ctx, f.m, mine, second.ID) })
	f.observe(in, model.StateEnded, model.CauseExited)
	f.refused(errs.Conflict, func() error { return f.l.TakeBack(f.ctx, f.m, mine, second.ID) }) // it may have written
	f.same("the workspace", must[model.Workspace](f)(f.l.Workspace(f.ctx, mine, "one")).ID, second.ID)
}

func testWorkspaceRename(f *fixture) {
	w, other := f.workspace("one"), f.workspace("other")
	f.advance(time.Second)
	f.writes(func() error { return f.l.RenameWorkspace(f.ctx, f.m, mine, w.ID, "uno") }, ledger.EventWorkspaceRenamed)
	w.Name, w.Updated = "uno", f.now()
	f.same("renamed", must[model.Workspace](f)(f.l.Workspace(f.ctx, mine, "uno")), w)
	f.refused(errs.NotFound, func() error { return drop(f.l.Workspace(f.ctx, mine, "one")) })
	f.refused(errs.Conflict, func() error { return f.l.RenameWorkspace(f.ctx, f.m, mine, w.ID, other.Name) })
	f.refused(errs.NotFound, func() error { return f.l.RenameWorkspace(f.ctx, f.m, mine, id[model.WorkspaceID]("none"), "x") })
	f.advance(time.Second)
	f.writes(func() error { return f.l.RenameWorkspace(f.ctx, f.m, mine, w.ID, "uno") })
	f.same("renamed to the same", must[model.Workspace](f)(f.l.Workspace(f.ctx, mine, "uno")), w)
	f.do(f.l.RenameWorkspace(f.ctx, f.m, mine, other.ID, "one")) // the old name is free
}

func testWorkspaceDesired(f *fixture) {
	w := f.workspace("one")
	set := func(d model.Desired, events ...string) {
		f.Helper()
		f.advance(time.Second)
		f.writes(func() error {
			got, err := f.l.SetDesired(f.ctx, f.m, mine, w.ID, d)
			if len(events) > 0 {
				w.Desired, w.Updated = d, f.now()
			}
			f.same("workspace", got, w)
			f.same("workspace as kept", must[model.Workspace](f)(f.l.Workspace(f.ctx, mine, "one")), w)
			return err
		}, events...)
	}
	set(model.DesiredRunning)
	set(model.DesiredStopped, ledger.EventWorkspaceDesired)
	set(model.DesiredStopped)
	f.refused(errs.Invalid, func() error { return drop(f.l.SetDesired(f.ctx, f.m, mine, w.ID, "flying")) })
	f.refused(errs.NotFound, func() error {
		return drop(f.l.SetDesired(f.ctx, f.m, mine, id[model.WorkspaceID]("none"), model.DesiredStopped))
	})
	set(model.DesiredDeleted, ledger.EventWorkspaceDesired)
	set(model.DesiredDeleted) // a repeat is safe
	for _, d := range []model.Desired{model.DesiredRunning, model.DesiredStopped} {
		f.refused(errs.Conflict, func() error { return drop(f.l.SetDesired(f.ctx, f.m, mine, w.ID, d)) })
	}
}

func testWorkspaceRemove(f *fixture) {
	w, in := f.running("one")
	it := must[model.FlushIntent](f)(f.l.BeginFlush(f.ctx, f.m, f.newIntent("it", in, w.Head)))
	f.do(drop(f.l.CommitFlush(f.ctx, f.m, it.ID, in.ID, f.snapshot("snap", it))))
	f.do(drop(f.l.BeginFlush(f.ctx, f.m, f.newIntent("open", in, root("snap")))))
	remove := func() error { return f.l.RemoveWorkspace(f.ctx, f.m, mine, w.ID) }

	f.refused(errs.Conflict, remove) // desired running
	f.do(drop(f.l.SetDesired(f.ctx, f.m, mine, w.ID, model.DesiredDeleted)))
	f.refused(errs.Conflict, remove) // an instance is live
	f.advance(2 * lease)
	f.do(drop(f.l.MarkUnproven(f.ctx, f.m)))
	f.refused(errs.Conflict, remove) // unproven still counts
	f.observe(in, model.StateEnded, model.CauseStopped)
	f.writes(remove, ledger.EventWorkspaceRemoved)

	f.refused(errs.NotFound, remove)
	f.refused(errs.NotFound, func() error { return drop(f.l.Workspace(f.ctx, mine, string(w.ID))) })
	f.same("snapshots left", len(must[[]model.Snapshot](f)(f.l.Snapshots(f.ctx, mine, w.ID))), 0)
	f.advance(3 * time.Hour)
	f.same("intents left", must[int](f)(f.l.ExpireIntents(f.ctx, f.m)), 0)
	f.same("history kept", len(must[[]model.Event](f)(f.l.Events(f.ctx, mine, string(w.ID), 0, 0))) > 5, true)

	f.refused(errs.Conflict, func() error { // the id is never used again
		again := f.newWorkspace("one")
		again.Name = "another"
		_, _, err := f.l.CreateWorkspace(f.ctx, f.m, again, ledger.Idempotency{})
		return err
	})
	twin := f.newWorkspace("one")
	twin.ID = id[model.WorkspaceID]("fresh") // the name is free
	f.do(func() error { _, _, err := f.l.CreateWorkspace(f.ctx, f.m, twin, ledger.Idempotency{}); return err }())
}
