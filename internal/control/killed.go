package control

import (
	"context"
	"time"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/ledger"
	"github.com/billethq/billet/internal/model"
)

const (
	// killedKeep is how long a killed workspace can be recovered: a mistaken
	// deadline is noticed within a day.
	killedKeep = 24 * time.Hour
	// orphanAge is when terms whose workspace was never made are taken for the
	// remains of a server that died: far beyond the length of a creation.
	orphanAge = 10 * time.Minute
)

// KillOnTerms ends a workspace for its client: it is saved and stopped, listed
// no more, and deleted after killedKeep.
func (c *Control) KillOnTerms(ctx context.Context, who model.Principal, ref string) error {
	o, err := c.OnTerms(ctx, who, ref)
	if err != nil {
		return err
	}
	if _, err := c.cfg.Ledger.EndTerms(ctx, c.meta(who.ID), who.Tenant, o.Workspace.ID, model.TermsEnd{Desired: model.DesiredStopped, Kill: true}); err != nil {
		return err
	}
	return c.moveOn(ctx, who.Tenant, o.Workspace.ID)
}

// moveOn takes the first step after a change of what is desired.
func (c *Control) moveOn(ctx context.Context, tenant model.TenantID, id model.WorkspaceID) error {
	ws, err := c.cfg.Ledger.Workspace(ctx, tenant, string(id))
	if errs.Is(err, errs.NotFound) {
		return nil
	}
	if err == nil {
		_, err = c.step(ctx, ws)
	}
	c.changed.broadcast()
	return err
}

// RecoverWorkspace implements api.Service.
func (c *Control) RecoverWorkspace(ctx context.Context, who model.Principal, ref string) (api.Workspace, error) {
	ws, err := c.find(ctx, who, ref)
	if err != nil {
		return api.Workspace{}, err
	}
	t, err := c.cfg.Ledger.WorkspaceTerms(ctx, ws.Tenant, ws.ID)
	if errs.Is(err, errs.NotFound) || err == nil && t.Killed.IsZero() {
		return api.Workspace{}, errs.New(errs.Conflict, "workspace %s was not killed", ws.Name).WithHint("see: billet ws ls --killed")
	}
	if err != nil {
		return api.Workspace{}, err
	}
	if ws.Desired == model.DesiredDeleted {
		return api.Workspace{}, errs.New(errs.Conflict, "workspace %s is being deleted: it was killed more than %v ago", ws.Name, killedKeep).WithHint("a fork or a kept snapshot of it may still be there")
	}
	if err := c.cfg.Ledger.RemoveTerms(ctx, c.meta(who.ID), ws.Tenant, ws.ID); err != nil {
		return api.Workspace{}, err
	}
	c.changed.broadcast()
	return c.Workspace(ctx, who, string(ws.ID))
}

// killed are the workspaces that were ended for their clients, and when.
func (c *Control) killed(ctx context.Context) (map[model.WorkspaceID]time.Time, error) {
	terms, err := c.cfg.Ledger.Terms(ctx, ledger.AllTenants)
	if err != nil {
		return nil, err
	}
	out := map[model.WorkspaceID]time.Time{}
	for _, t := range terms {
		if !t.Killed.IsZero() {
			out[t.Workspace] = t.Killed
		}
	}
	return out, nil
}

// refuseKilled keeps a workspace down that was ended for its client.
func (c *Control) refuseKilled(ctx context.Context, ws model.Workspace) error {
	t, err := c.cfg.Ledger.WorkspaceTerms(ctx, ws.Tenant, ws.ID)
	if errs.Is(err, errs.NotFound) {
		return nil
	}
	if err == nil && !t.Killed.IsZero() {
		return errs.New(errs.Conflict, "workspace %s was killed at its deadline or by its client", ws.Name).WithHint("take it back first: billet ws recover %s", ws.Name)
	}
	return err
}

// lapse ends what is past its deadline and returns when the next one is, zero
// for never.
func (c *Control) lapse(ctx context.Context, all []model.Workspace) (next time.Time, moved bool, err error) {
	terms, err := c.cfg.Ledger.Terms(ctx, ledger.AllTenants)
	if err != nil || len(terms) == 0 {
		return next, false, err
	}
	byID := make(map[model.WorkspaceID]model.Workspace, len(all))
	for _, ws := range all {
		byID[ws.ID] = ws
	}
	m := c.meta("")
	for _, t := range terms {
		ws, made := byID[t.Workspace]
		ended, err := c.lapseOne(ctx, m, t, ws, made)
		if err != nil && !errs.Is(err, errs.Conflict) && !errs.Is(err, errs.NotFound) {
			c.cfg.Log.Error("terms step failed", "workspace", t.Workspace, "err", err)
		}
		moved = moved || ended
		if waits := t.Killed.IsZero() && t.Deadline.After(m.Now); waits && (next.IsZero() || t.Deadline.Before(next)) {
			next = t.Deadline
		}
	}
	return next, moved, nil
}

// lapseOne takes one workspace's terms one step on.
func (c *Control) lapseOne(ctx context.Context, m ledger.Meta, t model.Terms, ws model.Workspace, made bool) (bool, error) {
	switch {
	case !made:
		if m.Now.Sub(t.Created) < orphanAge {
			return false, nil
		}
		if _, err := c.cfg.Ledger.Workspace(ctx, t.Tenant, string(t.Workspace)); !errs.Is(err, errs.NotFound) {
			return false, err
		}
		return false, c.cfg.Ledger.RemoveTerms(ctx, m, t.Tenant, t.Workspace)
	case ws.Desired == model.DesiredDeleted:
		return false, nil
	case !t.Killed.IsZero():
		desired := model.DesiredStopped
		if m.Now.Sub(t.Killed) >= killedKeep {
			desired = model.DesiredDeleted
		}
		if ws.Desired == desired {
			return false, nil
		}
		_, err := c.cfg.Ledger.SetDesired(ctx, m, ws.Tenant, ws.ID, desired)
		return err == nil, err
	case t.Deadline.After(m.Now):
		return false, nil
	}
	failed := ws.Failure != model.CauseNone && !t.AutoPause
	if ws.Desired != model.DesiredRunning && !failed {
		return false, nil // paused: it waits for its client
	}
	end := model.TermsEnd{Desired: model.DesiredStopped, Kill: !t.AutoPause, Due: true}
	if t.AutoPause && !t.PauseCold && c.keep(ws) > 0 {
		end.Desired = model.DesiredHibernated
	}
	return c.cfg.Ledger.EndTerms(ctx, m, ws.Tenant, ws.ID, end)
}
