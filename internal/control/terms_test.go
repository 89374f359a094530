package control

import (
	"testing"
	"time"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/model"
)

// lend makes a workspace on terms, whose deadline is in a minute.
func (w *world) lend(t model.Terms) api.OnTerms {
	w.t.Helper()
	t.Deadline = w.clock.Now().Add(time.Minute)
	o, err := w.CreateOnTerms(w.t.Context(), w.who, api.CreateWorkspaceRequest{}, "", t)
	if err != nil {
		w.t.Fatal(err)
	}
	return o
}

func (w *world) mustReconcile() {
	w.t.Helper()
	if err := w.reconcile(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
}

// record is the workspace as the ledger has it.
func (w *world) record(id model.WorkspaceID) model.Workspace {
	w.t.Helper()
	ws, err := w.cfg.Ledger.Workspace(w.t.Context(), w.who.Tenant, string(id))
	if err != nil {
		w.t.Fatal(err)
	}
	return ws
}

func TestTerms_KilledAtTheDeadlineAndRecovered(t *testing.T) {
	w := newWorld(t)
	w.host("a")
	o := w.lend(model.Terms{Template: "base"})
	id := o.Workspace.ID
	if o.Workspace.Class != model.ClassAgent {
		t.Errorf("class is %s, want agent", o.Workspace.Class)
	}
	w.mustReconcile()
	if d := w.untilDue(time.Hour); d != time.Minute {
		t.Errorf("the reconciler waits %v, want a minute", d)
	}
	w.clock.advance(59 * time.Second)
	if w.mustReconcile(); w.record(id).Desired != model.DesiredRunning {
		t.Fatal("ended before its deadline")
	}
	w.clock.advance(time.Second)
	if w.mustReconcile(); w.record(id).Desired != model.DesiredStopped {
		t.Errorf("desired is %s, want stopped: its disk is to be saved", w.record(id).Desired)
	}
	if _, err := w.OnTerms(t.Context(), w.who, string(id)); !errs.Is(err, errs.NotFound) {
		t.Errorf("the client finds it: %v", err)
	}
	if list, err := w.AllOnTerms(t.Context(), w.who, false); err != nil || len(list) != 0 {
		t.Errorf("the client lists %v, %v", list, err)
	}
	if list, err := w.Workspaces(t.Context(), w.who); err != nil || len(list) != 0 {
		t.Errorf("people list %v, %v", list, err)
	}
	if list, err := w.KilledWorkspaces(t.Context(), w.who); err != nil || len(list) != 1 || list[0].Killed == nil {
		t.Fatalf("killed: %v, %v, want the one", list, err)
	}
	if _, err := w.StartWorkspace(t.Context(), w.who, string(id), api.StartWorkspaceRequest{}); !errs.Is(err, errs.Conflict) || errs.HintOf(err) == "" {
		t.Errorf("start of a killed one: %v, want a conflict with a hint", err)
	}
	if _, err := w.RecoverWorkspace(t.Context(), w.who, string(id)); err != nil {
		t.Fatal(err)
	}
	w.clock.advance(2 * killedKeep)
	if w.mustReconcile(); w.record(id).Desired != model.DesiredStopped {
		t.Error("a recovered workspace went on to its deletion")
	}
	if _, err := w.RecoverWorkspace(t.Context(), w.who, string(id)); !errs.Is(err, errs.Conflict) {
		t.Errorf("recovered twice: %v, want a conflict", err)
	}
}

func TestTerms_KilledIsDeletedAfterADay(t *testing.T) {
	w := newWorld(t)
	h := w.host("a")
	o := w.lend(model.Terms{})
	h.sync()
	d := h.only()
	if err := w.KillOnTerms(t.Context(), w.who, string(o.Workspace.ID)); err != nil {
		t.Fatal(err)
	}
	if err := w.KillOnTerms(t.Context(), w.who, string(o.Workspace.ID)); !errs.Is(err, errs.NotFound) {
		t.Errorf("killed twice: %v, want not found", err)
	}
	h.sync()
	if got := h.only().Desired; got != model.InstanceStop {
		t.Errorf("the node is told %s, want stop", got)
	}
	h.sync(seen(d, model.StateEnded))
	w.clock.advance(killedKeep)
	w.mustReconcile() // wanted deleted
	w.mustReconcile() // and removed
	if _, err := w.cfg.Ledger.Workspace(t.Context(), w.who.Tenant, string(o.Workspace.ID)); !errs.Is(err, errs.NotFound) {
		t.Errorf("a day later: %v, want not found", err)
	}
	if terms, err := w.cfg.Ledger.Terms(t.Context(), w.who.Tenant); err != nil || len(terms) != 0 {
		t.Errorf("terms are left: %v, %v", terms, err)
	}
}

func TestTerms_AutoPauseHibernates(t *testing.T) {
	for name, c := range map[string]struct {
		terms model.Terms
		want  model.Desired
	}{
		"with memory":    {model.Terms{AutoPause: true}, model.DesiredHibernated},
		"without memory": {model.Terms{AutoPause: true, PauseCold: true}, model.DesiredStopped},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.host("a")
			o := w.lend(c.terms)
			w.clock.advance(time.Minute)
			if w.mustReconcile(); w.record(o.Workspace.ID).Desired != c.want {
				t.Errorf("desired is %s, want %s", w.record(o.Workspace.ID).Desired, c.want)
			}
			w.clock.advance(time.Hour)
			w.mustReconcile()
			if _, err := w.OnTerms(t.Context(), w.who, string(o.Workspace.ID)); err != nil {
				t.Errorf("a paused one waits for its client: %v", err)
			}
		})
	}
}

func TestTerms_ExtendedInTimeIsKept(t *testing.T) {
	w := newWorld(t)
	w.host("a")
	o := w.lend(model.Terms{})
	id := string(o.Workspace.ID)
	at := w.clock.Now().Add(time.Hour)
	if k, err := w.SetDeadline(t.Context(), w.who, id, at, true, false); err != nil || !k.Deadline.Equal(at) {
		t.Fatalf("extended: %v, %v", k.Deadline, err)
	}
	if k, err := w.SetDeadline(t.Context(), w.who, id, w.clock.Now(), true, false); err != nil || !k.Deadline.Equal(at) {
		t.Errorf("an extension to what is sooner gave %v, %v", k.Deadline, err)
	}
	w.clock.advance(time.Minute)
	if w.mustReconcile(); w.record(o.Workspace.ID).Desired != model.DesiredRunning {
		t.Error("ended at the deadline that had been extended")
	}
	if _, err := w.SetDeadline(t.Context(), w.who, id, w.clock.Now(), false, false); err != nil {
		t.Fatal(err)
	}
	if w.mustReconcile(); w.record(o.Workspace.ID).Desired != model.DesiredStopped {
		t.Error("goes on past the deadline that was shortened")
	}
}

// A server that dies between the terms and the workspace leaves terms of
// nothing, which go.
func TestTerms_OfNothingAreRemoved(t *testing.T) {
	w := newWorld(t)
	now := w.clock.Now()
	if err := w.cfg.Ledger.CreateTerms(t.Context(), w.meta(""), model.Terms{Workspace: "wnothing000000000000", Tenant: "default", Region: "local", Deadline: now}); err != nil {
		t.Fatal(err)
	}
	count := func() int {
		w.mustReconcile()
		terms, err := w.cfg.Ledger.Terms(t.Context(), w.who.Tenant)
		if err != nil {
			t.Fatal(err)
		}
		return len(terms)
	}
	if n := count(); n != 1 {
		t.Errorf("%d terms at once, want 1: the workspace may be on its way", n)
	}
	w.clock.advance(orphanAge)
	if n := count(); n != 0 {
		t.Errorf("%d terms later, want none", n)
	}
}

func TestTerms_RefusedCreationLeavesNothing(t *testing.T) {
	w := newWorld(t)
	w.host("a")
	for name, c := range map[string]struct {
		req  api.CreateWorkspaceRequest
		kind errs.Kind
	}{
		"an image that is not there": {api.CreateWorkspaceRequest{Image: "nosuch"}, errs.NotFound},
		"a tier for people":          {api.CreateWorkspaceRequest{Tier: "people"}, errs.Denied},
	} {
		if _, err := w.CreateOnTerms(t.Context(), w.who, c.req, "", model.Terms{}); !errs.Is(err, c.kind) {
			t.Errorf("%s: %v, want kind %s", name, err, c.kind)
		}
	}
	first := api.CreateWorkspaceRequest{Tier: "one"}
	if _, err := w.CreateOnTerms(t.Context(), w.who, first, "", model.Terms{Deadline: w.clock.Now().Add(time.Hour)}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.CreateOnTerms(t.Context(), w.who, first, "", model.Terms{}); !errs.Is(err, errs.Exhausted) {
		t.Errorf("beyond the tier's ceiling: %v", err)
	}
	if terms, err := w.cfg.Ledger.Terms(t.Context(), w.who.Tenant); err != nil || len(terms) != 1 {
		t.Errorf("terms: %v, %v, want those of the one that was made", terms, err)
	}
}

func TestKeptSnapshot_OutlivesItsWorkspace(t *testing.T) {
	w := newWorld(t)
	h := w.host("a")
	o := w.lend(model.Terms{Envs: map[string]string{"A": "1", "B": "1"}})
	id := string(o.Workspace.ID)
	h.sync()
	d := h.only()
	h.sync(seen(d, model.StateRunning))
	if err := w.flush(h, d, root0, rootN("1")); err != nil {
		t.Fatal(err)
	}
	if _, err := w.StopWorkspace(t.Context(), w.who, id, api.StopWorkspaceRequest{Cold: true}); err != nil {
		t.Fatal(err)
	}
	h.sync(seen(d, model.StateEnded))
	k, err := w.KeepSnapshot(t.Context(), w.who, id, "mine")
	if err != nil || k.Root != rootN("1") {
		t.Fatalf("kept %s, %v, want the newest root", k.Root, err)
	}
	if err := w.DeleteWorkspace(t.Context(), w.who, id, true); err != nil {
		t.Fatal(err)
	}
	w.mustReconcile()
	for _, ref := range []model.SnapshotID{k.ID, "mine"} {
		made, err := w.CreateOnTerms(t.Context(), w.who, api.CreateWorkspaceRequest{}, ref, model.Terms{Deadline: w.clock.Now().Add(time.Hour), Envs: map[string]string{"B": "2"}})
		if err != nil {
			t.Fatal(err)
		}
		if ws := w.record(made.Workspace.ID); ws.Head != rootN("1") || made.Terms.Envs["A"] != "1" || made.Terms.Envs["B"] != "2" {
			t.Errorf("it begins at %s with %v", ws.Head, made.Terms.Envs)
		}
	}
	if err := w.ForgetSnapshot(t.Context(), w.who, k.ID); err != nil {
		t.Fatal(err)
	}
	if err := w.ForgetSnapshot(t.Context(), w.who, k.ID); !errs.Is(err, errs.NotFound) {
		t.Errorf("forgotten twice: %v", err)
	}
}

func TestTokens_ForE2BClients(t *testing.T) {
	w := newWorld(t)
	k, err := w.CreateToken(t.Context(), w.who, api.CreateTokenRequest{Name: "bot", E2B: true})
	if err != nil {
		t.Fatal(err)
	}
	if k.Class != model.ClassAgent || len(k.Secret) != 44 || k.Secret[:4] != "e2b_" {
		t.Errorf("got class %s and a secret of %d bytes that begins with %q", k.Class, len(k.Secret), k.Secret[:4])
	}
	if p, err := w.Authenticate(t.Context(), k.Secret); err != nil || p.Name != "bot" {
		t.Errorf("it opens as %v, %v", p, err)
	}
}
