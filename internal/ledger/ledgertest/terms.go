package ledgertest

import (
	"time"

	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/ledger"
	"github.com/billethq/billet/internal/model"
)

func (f *fixture) newTerms(word string) model.Terms {
	return model.Terms{
		Workspace: id[model.WorkspaceID](word), Tenant: model.DefaultTenant, Region: model.DefaultRegion, Template: "base",
		Metadata: map[string]string{"a": "b c"}, Envs: map[string]string{"K": "v"}, Began: f.now(), Deadline: f.now().Add(time.Minute),
		AutoPause: true, PauseCold: true, AutoResume: true, Network: "{}", Created: f.now(),
	}
}

// onTerms makes a workspace on terms, these first.
func (f *fixture) onTerms(word string) model.Terms {
	f.Helper()
	k := f.newTerms(word)
	f.writes(func() error { return f.l.CreateTerms(f.ctx, f.m, k) }, ledger.EventTermsCreated)
	f.workspace(word)
	return k
}

func testTerms(f *fixture) {
	k := f.onTerms("one")
	f.same("terms", must[model.Terms](f)(f.l.WorkspaceTerms(f.ctx, mine, k.Workspace)), k)
	f.refused(errs.Conflict, func() error { return f.l.CreateTerms(f.ctx, f.m, k) })
	f.refused(errs.NotFound, func() error { return drop(f.l.WorkspaceTerms(f.ctx, mine, "nobody")) })

	f.advance(time.Second)
	var got model.Terms
	set := func(in time.Duration, began time.Time, extend bool) func() error {
		return func() (err error) {
			got, err = f.l.SetDeadline(f.ctx, f.m, mine, k.Workspace, f.now().Add(in), began, extend)
			return err
		}
	}
	f.writes(set(10*time.Second, time.Time{}, true)) // extended to what is sooner: nothing
	f.same("extended to what is sooner", got, k)
	f.writes(set(10*time.Second, time.Time{}, false), ledger.EventTermsDeadline)
	k.Deadline = f.now().Add(10 * time.Second)
	f.same("shortened", got, k)
	f.writes(set(time.Hour, f.now(), true), ledger.EventTermsDeadline)
	k.Deadline, k.Began = f.now().Add(time.Hour), f.now()
	f.same("extended", got, k)
	f.writes(func() error { return f.l.SetTermsNetwork(f.ctx, f.m, mine, k.Workspace, `{"a":1}`) }, ledger.EventTermsNetwork)
	k.Network = `{"a":1}`
	f.same("all", must[[]model.Terms](f)(f.l.Terms(f.ctx, mine)), []model.Terms{k})

	// The terms go with their workspace.
	f.do(drop(f.l.SetDesired(f.ctx, f.m, mine, k.Workspace, model.DesiredDeleted)))
	f.do(f.l.RemoveWorkspace(f.ctx, f.m, mine, k.Workspace))
	f.same("terms of a removed workspace", len(must[[]model.Terms](f)(f.l.Terms(f.ctx, mine))), 0)

	bare := f.onTerms("two")
	f.writes(func() error { return f.l.RemoveTerms(f.ctx, f.m, mine, bare.Workspace) }, ledger.EventTermsRemoved)
	f.refused(errs.NotFound, func() error { return f.l.RemoveTerms(f.ctx, f.m, mine, bare.Workspace) })
	f.refused(errs.NotFound, func() error { return drop(f.l.EndTerms(f.ctx, f.m, mine, bare.Workspace, model.TermsEnd{Kill: true})) })
}

// testTermsEnd wants the look at the deadline and the end to be one step.
func testTermsEnd(f *fixture) {
	k := f.onTerms("one")
	var ended bool
	end := func(e model.TermsEnd) func() error {
		return func() (err error) { ended, err = f.l.EndTerms(f.ctx, f.m, mine, k.Workspace, e); return err }
	}
	pause := model.TermsEnd{Desired: model.DesiredHibernated, Due: true}
	f.writes(end(pause))
	f.same("ended before the deadline", ended, false)
	f.advance(time.Minute)
	f.writes(end(pause), ledger.EventTermsPaused)
	w := must[model.Workspace](f)(f.l.Workspace(f.ctx, mine, "one"))
	f.same("paused at the deadline", []any{ended, w.Desired}, []any{true, model.DesiredHibernated})

	kill := model.TermsEnd{Desired: model.DesiredStopped, Kill: true}
	f.writes(end(kill), ledger.EventTermsKilled)
	k = must[model.Terms](f)(f.l.WorkspaceTerms(f.ctx, mine, k.Workspace))
	f.same("killed", []any{ended, k.Killed}, []any{true, f.now()})
	f.writes(end(kill))
	f.same("killed again", ended, false)
	f.refused(errs.NotFound, func() error {
		return drop(f.l.SetDeadline(f.ctx, f.m, mine, k.Workspace, f.now().Add(time.Hour), time.Time{}, false))
	})
}

func testKeptSnapshots(f *fixture) {
	k := model.KeptSnapshot{
		ID: id[model.SnapshotID]("kept"), Tenant: model.DefaultTenant, Region: model.DefaultRegion, Name: "team", Workspace: id[model.WorkspaceID]("one"),
		Class: model.ClassAgent, Tier: "small", Shape: model.Shape{VCPUs: 1, Memory: 1 << 30}, Image: "base", Root: root("r"),
		Memory: f.memory("m1", time.Hour), Terms: model.Terms{Template: "base", Envs: map[string]string{"K": "v"}}, Created: f.now(),
	}
	f.writes(func() error { return f.l.KeepSnapshot(f.ctx, f.m, k) }, ledger.EventSnapshotKept)
	f.same("kept", must[[]model.KeptSnapshot](f)(f.l.KeptSnapshots(f.ctx, mine)), []model.KeptSnapshot{k})
	other := k
	other.ID = id[model.SnapshotID]("other")
	f.refused(errs.Conflict, func() error { return f.l.KeepSnapshot(f.ctx, f.m, other) })
	f.writes(func() error { return f.l.ForgetSnapshot(f.ctx, f.m, mine, k.ID) }, ledger.EventSnapshotForgotten)
	f.refused(errs.NotFound, func() error { return f.l.ForgetSnapshot(f.ctx, f.m, mine, k.ID) })
}
