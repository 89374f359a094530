package control

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/ledger"
	"github.com/billethq/billet/internal/model"
)

// CreateOnTerms makes a running workspace for class agent that is lent to the
// caller: from a kept snapshot where from is not "", else as req says. What the
// snapshot's own terms gave every command is inherited.
func (c *Control) CreateOnTerms(ctx context.Context, who model.Principal, req api.CreateWorkspaceRequest, from model.SnapshotID, t model.Terms) (api.OnTerms, error) {
	m := c.meta(who.ID)
	var ws model.Workspace
	if from == "" {
		req.Class = model.ClassAgent
		made, err := c.newWorkspace(ctx, who, m, req)
		if err != nil {
			return api.OnTerms{}, err
		}
		ws = made
	} else {
		kept, err := c.kept(ctx, who, from)
		if err != nil {
			return api.OnTerms{}, err
		}
		ws = beginFrom(kept, who, m)
		t = inherit(t, kept.Terms)
	}
	return c.createOnTerms(ctx, m, ws, t)
}

// inherit adds to terms what those of the parent gave every command.
func inherit(t, parent model.Terms) model.Terms {
	envs := map[string]string{}
	for _, from := range []map[string]string{parent.Envs, t.Envs} {
		for k, v := range from {
			envs[k] = v
		}
	}
	t.Envs = envs
	return t
}

// createOnTerms records the terms before the workspace: should the server die
// in between, the terms of nothing are left, and not a guest without an end.
func (c *Control) createOnTerms(ctx context.Context, m ledger.Meta, ws model.Workspace, t model.Terms) (api.OnTerms, error) {
	ws.Name = lentName(ws.ID)
	t.Workspace, t.Tenant, t.Region, t.Created = ws.ID, ws.Tenant, ws.Region, m.Now
	if err := c.admit(ctx, ws); err != nil {
		return api.OnTerms{}, err
	}
	if err := c.cfg.Ledger.CreateTerms(ctx, m, t); err != nil {
		return api.OnTerms{}, err
	}
	v, err := c.create(ctx, m, ws, ledger.Idempotency{})
	if err != nil {
		if again := c.cfg.Ledger.RemoveTerms(ctx, m, ws.Tenant, ws.ID); again != nil && !errs.Is(again, errs.NotFound) {
			return api.OnTerms{}, fmt.Errorf("%w (and take back its terms: %w)", err, again)
		}
		return api.OnTerms{}, err
	}
	return api.OnTerms{Workspace: v, Terms: t}, nil
}

// lentName names a workspace that its client knows by id only.
func lentName(id model.WorkspaceID) string { return "sb-" + string(id) }

// ForkOnTerms makes count workspaces on the newest state of one that is lent,
// saving it once. Each has an answer of its own.
func (c *Control) ForkOnTerms(ctx context.Context, who model.Principal, ref string, count int, deadline time.Time) ([]api.OnTerms, []error, error) {
	parent, err := c.OnTerms(ctx, who, ref)
	if err != nil {
		return nil, nil, err
	}
	ws, err := c.cfg.Ledger.Workspace(ctx, who.Tenant, string(parent.Workspace.ID))
	if err != nil {
		return nil, nil, err
	}
	if ws, err = c.saved(ctx, ws); err != nil {
		return nil, nil, err
	}
	out, failed := make([]api.OnTerms, count), make([]error, count)
	for i := range count {
		m := c.meta(who.ID)
		t := parent.Terms
		t.Deadline, t.Began = deadline, m.Now
		out[i], failed[i] = c.createOnTerms(ctx, m, forkOf(ws, who, m, api.ForkWorkspaceRequest{}), t)
	}
	return out, failed, nil
}

// OnTerms finds a workspace that is lent. One that was killed is not there.
func (c *Control) OnTerms(ctx context.Context, who model.Principal, ref string) (api.OnTerms, error) {
	gone := errs.New(errs.NotFound, "sandbox %q is not there", ref).WithHint("it was killed, or its timeout has passed")
	v, err := c.Workspace(ctx, who, ref)
	if errs.Is(err, errs.NotFound) {
		return api.OnTerms{}, gone
	}
	if err != nil {
		return api.OnTerms{}, err
	}
	t, err := c.cfg.Ledger.WorkspaceTerms(ctx, who.Tenant, v.ID)
	if errs.Is(err, errs.NotFound) || err == nil && (!t.Killed.IsZero() || v.State == api.WorkspaceDeleting) {
		return api.OnTerms{}, gone
	}
	return api.OnTerms{Workspace: v, Terms: t}, err
}

// AllOnTerms lists the workspaces that are lent, oldest first, with killed those
// that were ended and can still be recovered.
func (c *Control) AllOnTerms(ctx context.Context, who model.Principal, killed bool) ([]api.OnTerms, error) {
	terms, err := c.cfg.Ledger.Terms(ctx, who.Tenant)
	if err != nil {
		return nil, err
	}
	out := []api.OnTerms{}
	for _, t := range terms {
		if t.Tenant != who.Tenant || t.Killed.IsZero() == killed {
			continue
		}
		v, err := c.Workspace(ctx, who, string(t.Workspace))
		if errs.Is(err, errs.NotFound) {
			continue // not made yet, or going
		}
		if err != nil {
			return nil, err
		}
		if v.State != api.WorkspaceDeleting {
			out = append(out, api.OnTerms{Workspace: v, Terms: t})
		}
	}
	return out, nil
}

// SetDeadline moves the deadline of a workspace that is lent, with extend only
// to a later time; with begun it was started just now.
func (c *Control) SetDeadline(ctx context.Context, who model.Principal, ref string, deadline time.Time, extend, begun bool) (model.Terms, error) {
	o, err := c.OnTerms(ctx, who, ref)
	if err != nil {
		return model.Terms{}, err
	}
	m := c.meta(who.ID)
	began := time.Time{}
	if begun {
		began = m.Now
	}
	t, err := c.cfg.Ledger.SetDeadline(ctx, m, who.Tenant, o.Workspace.ID, deadline, began, extend)
	c.changed.broadcast() // the reconciler waits for the next deadline
	return t, err
}

// SetTermsNetwork replaces what the client wants of the network.
func (c *Control) SetTermsNetwork(ctx context.Context, who model.Principal, ref, network string) error {
	o, err := c.OnTerms(ctx, who, ref)
	if err != nil {
		return err
	}
	return c.cfg.Ledger.SetTermsNetwork(ctx, c.meta(who.ID), who.Tenant, o.Workspace.ID, network)
}

// DoorKey makes the tokens of the data route. Without it they change, and
// nothing else is lost.
func (s *Secrets) DoorKey() ([]byte, error) { return s.key("door.key") }

// DoorToken is what opens the data route of a workspace that is lent. It is
// derived, so that the ledger has nothing to leak.
func (c *Control) DoorToken(id model.WorkspaceID) (string, error) {
	key, err := c.cfg.Secrets.DoorKey()
	if err != nil {
		return "", err
	}
	mac := hmac.New(sha256.New, key)
	_, _ = mac.Write([]byte("sandbox door " + string(id)))
	return hex.EncodeToString(mac.Sum(nil)), nil
}

// DoorTenant is the tenant of a workspace that is lent, for a door that knows
// no more than its id.
func (c *Control) DoorTenant(ctx context.Context, id model.WorkspaceID) (model.TenantID, error) {
	terms, err := c.cfg.Ledger.Terms(ctx, ledger.AllTenants)
	if err != nil {
		return "", err
	}
	for _, t := range terms {
		if t.Workspace == id && t.Killed.IsZero() {
			return t.Tenant, nil
		}
	}
	return "", errs.New(errs.NotFound, "sandbox %q is not there", string(id))
}

// ForgetMemory has a workspace that is stopped come back by a cold boot.
func (c *Control) ForgetMemory(ctx context.Context, who model.Principal, ref string) error {
	ws, err := c.find(ctx, who, ref)
	if err != nil || ws.Memory.Root == "" {
		return err
	}
	return c.cfg.Ledger.DropMemory(ctx, c.meta(who.ID), ws.Tenant, ws.ID, ws.Memory.Root)
}
