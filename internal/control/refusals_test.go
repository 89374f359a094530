package control

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/model"
)

func TestCreate_Refusals(t *testing.T) {
	w := newWorld(t)
	mk := func(req api.CreateWorkspaceRequest) error {
		_, err := w.CreateWorkspace(t.Context(), w.who, "", req)
		return err
	}
	if err := mk(api.CreateWorkspaceRequest{Name: "nowhere"}); !errs.Is(err, errs.Unavailable) {
		t.Errorf("without a node: got %v, want unavailable", err)
	}
	w.host("a")
	agent := w.who
	agent.Class = model.ClassAgent
	for _, c := range []struct {
		name string
		req  api.CreateWorkspaceRequest
		want errs.Kind
	}{
		{"path in the name", api.CreateWorkspaceRequest{Name: "../x"}, errs.Invalid},
		{"no such tier", api.CreateWorkspaceRequest{Tier: "huge"}, errs.NotFound},
		{"no such image", api.CreateWorkspaceRequest{Image: "none"}, errs.NotFound},
		{"no such class", api.CreateWorkspaceRequest{Class: "robot"}, errs.Invalid},
		{"tier not for the class", api.CreateWorkspaceRequest{Tier: "people", Class: model.ClassAgent}, errs.Denied},
		{"disk smaller than the image", api.CreateWorkspaceRequest{Disk: 1 << 30}, errs.Invalid},
		{"negative disk", api.CreateWorkspaceRequest{Disk: -1}, errs.Invalid},
		{"disk beyond any node's", api.CreateWorkspaceRequest{Disk: 101 << 30}, errs.Invalid},
	} {
		if err := mk(c.req); errs.KindOf(err) != c.want || errs.HintOf(err) == "" {
			t.Errorf("%s: got %v (hint %q), want kind %s with a hint", c.name, err, errs.HintOf(err), c.want)
		}
	}
	if all, err := w.Workspaces(t.Context(), w.who); err != nil || len(all) != 0 {
		t.Errorf("after refusals: got %v, %v, want nothing made", all, err)
	}
	if err := mk(api.CreateWorkspaceRequest{Name: "first", Tier: "one"}); err != nil {
		t.Fatal(err)
	}
	if err := mk(api.CreateWorkspaceRequest{Name: "second", Tier: "one"}); !errs.Is(err, errs.Exhausted) {
		t.Errorf("beyond the tier's ceiling: got %v, want exhausted", err)
	}
	if err := mk(api.CreateWorkspaceRequest{Name: "first"}); !errs.Is(err, errs.Conflict) {
		t.Errorf("a taken name: got %v, want conflict", err)
	}
}

func TestCreate_IdempotentByKey(t *testing.T) {
	w := newWorld(t)
	w.host("a")
	mk := func(name string) (api.Workspace, error) {
		return w.CreateWorkspace(t.Context(), w.who, "key", api.CreateWorkspaceRequest{Name: name})
	}
	first, err := mk("one")
	if err != nil {
		t.Fatal(err)
	}
	if again, err := mk("one"); err != nil || again.ID != first.ID {
		t.Errorf("repeated: got %s, %v, want %s", again.ID, err, first.ID)
	}
	if _, err := mk("two"); !errs.Is(err, errs.Conflict) {
		t.Errorf("same key, another request: got %v, want conflict", err)
	}
}

func TestDelete_RefusesToLoseUnsavedState(t *testing.T) {
	w := newWorld(t)
	h := w.host("a")
	w.create(api.CreateWorkspaceRequest{Name: "one"})
	h.sync()
	d := h.only()
	o := seen(d, model.StateRunning)
	o.UnsavedBytes = 12 << 10
	h.sync(o)
	err := w.DeleteWorkspace(t.Context(), w.who, "one", false)
	if !errs.Is(err, errs.Conflict) || !strings.Contains(err.Error(), "12 KiB") || !strings.Contains(errs.HintOf(err), "--force") {
		t.Errorf("got %v (hint %q), want a conflict that names what is lost and --force", err, errs.HintOf(err))
	}
	if err := w.DeleteWorkspace(t.Context(), w.who, "one", true); err != nil {
		t.Fatal(err)
	}
	if h.sync(o); h.only().Desired != model.InstanceDestroy {
		t.Errorf("told %s, want destroy", h.only().Desired)
	}
	gone := seen(d, model.StateEnded)
	gone.Cause = model.CauseStopped
	h.sync(gone)
	if err := w.reconcile(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Workspace(t.Context(), w.who, "one"); !errs.Is(err, errs.NotFound) {
		t.Errorf("after its instance ended: got %v, want not found", err)
	}
}

func TestTokens_AreShownOnceAndExpire(t *testing.T) {
	w := newWorld(t)
	ctx := context.Background()
	made, err := w.CreateToken(ctx, w.who, api.CreateTokenRequest{Name: "ci", Class: model.ClassCI, Expires: "1h"})
	if err != nil {
		t.Fatal(err)
	}
	p, err := w.Authenticate(ctx, made.Secret)
	if err != nil || p.Class != model.ClassCI || p.Role != model.RoleUser {
		t.Errorf("got %+v, %v, want a user of class ci", p, err)
	}
	w.clock.advance(2 * time.Hour)
	for _, secret := range []string{made.Secret, "blt_wrong", ""} {
		if _, err := w.Authenticate(ctx, secret); !errs.Is(err, errs.Unauthenticated) || errs.HintOf(err) == "" {
			t.Errorf("secret %q: got %v, want unauthenticated with a hint", secret, err)
		}
	}
}

// What was written a moment ago has not been counted yet: a running workspace
// is never deleted without force.
func TestDelete_RefusesARunningWorkspaceThatLooksSaved(t *testing.T) {
	w := newWorld(t)
	h := w.host("a")
	w.create(api.CreateWorkspaceRequest{Name: "one"})
	h.sync()
	h.sync(seen(h.only(), model.StateRunning))
	if err := w.DeleteWorkspace(t.Context(), w.who, "one", false); !errs.Is(err, errs.Conflict) {
		t.Errorf("got %v, want a conflict", err)
	}
}

// invariant 7: a forced start that is refused has given nothing up.
func TestForce_RefusedLeavesTheOldInstanceAlone(t *testing.T) {
	w := newWorld(t)
	h := w.host("a")
	w.create(api.CreateWorkspaceRequest{Name: "one"})
	h.sync()
	old := h.only()
	h.sync(seen(old, model.StateRunning))
	w.clock.advance(2 * leasePeriod)
	if _, err := w.StartWorkspace(t.Context(), w.who, "one", api.StartWorkspaceRequest{FromSnapshot: true, Force: true}); !errs.Is(err, errs.Unavailable) {
		t.Fatalf("with no node left: got %v, want unavailable", err)
	}
	h.sync(seen(old, model.StateRunning))
	if d := h.only(); d.Desired != model.InstanceRun || d.Epoch != old.Epoch {
		t.Errorf("when its node is back: told %+v, want run as before", d)
	}
}

// invariant 7: a refused creation records nothing, with a key or without.
func TestCreate_RefusedWithAKeyMayBeRepeated(t *testing.T) {
	w := newWorld(t)
	mk := func() error {
		_, err := w.CreateWorkspace(t.Context(), w.who, "key", api.CreateWorkspaceRequest{Name: "one"})
		return err
	}
	if err := mk(); !errs.Is(err, errs.Unavailable) {
		t.Fatalf("without a node: got %v, want unavailable", err)
	}
	evs, err := w.Events(t.Context(), w.who, "", 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range evs {
		if strings.HasPrefix(e.Kind, "workspace.") {
			t.Errorf("a refused creation left %+v", e)
		}
	}
	w.host("a")
	if err := mk(); err != nil {
		t.Errorf("repeated with a node: got %v", err)
	}
}

// Keys that are gone are never replaced under what was stored with them.
func TestNew_RefusesWithoutTheKeysOfWhatIsStored(t *testing.T) {
	w := newWorld(t)
	w.host("a")
	lost := filepath.Join(w.dir, "secrets", domainKeyFile(model.DeploymentDomain))
	if err := os.Remove(lost); err != nil {
		t.Fatal(err)
	}
	if _, err := New(t.Context(), w.cfg); !errs.Is(err, errs.Internal) || !strings.Contains(err.Error(), lost) || errs.HintOf(err) == "" {
		t.Errorf("got %v (hint %q), want a refusal that names the key", err, errs.HintOf(err))
	}
	if _, err := os.Stat(lost); err == nil {
		t.Error("a new key was made")
	}
}

func TestFork_RefusesWhileTheNodeIsSilent(t *testing.T) {
	w := newWorld(t)
	h := w.host("a")
	w.create(api.CreateWorkspaceRequest{Name: "one"})
	h.sync()
	h.sync(seen(h.only(), model.StateRunning))
	w.clock.advance(2 * leasePeriod)
	if err := w.reconcile(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := w.ForkWorkspace(t.Context(), w.who, "", "one", api.ForkWorkspaceRequest{Name: "two"}); !errs.Is(err, errs.Conflict) {
		t.Errorf("got %v, want a conflict at once", err)
	}
}

func TestSync_ANameIsOneNodes(t *testing.T) {
	w := newWorld(t)
	w.host("a")
	twin := api.SyncRequest{Node: model.NodeID(model.NewID()), Name: "a", Driver: model.DriverGVisor}
	if _, err := w.Sync(t.Context(), twin); !errs.Is(err, errs.Conflict) || errs.HintOf(err) == "" {
		t.Errorf("a second node of one name: got %v, want a conflict with a hint", err)
	}
	w.clock.advance(2 * silentAfter)
	if _, err := w.Sync(t.Context(), twin); err != nil {
		t.Errorf("once the first is silent: got %v", err)
	}
}
