package control

import (
	"context"
	"fmt"
	"time"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/ledger"
	"github.com/billethq/billet/internal/model"
)

// StartWorkspace implements api.Service.
func (c *Control) StartWorkspace(ctx context.Context, who model.Principal, ref string, req api.StartWorkspaceRequest) (api.Workspace, error) {
	ws, err := c.find(ctx, who, ref)
	if err != nil {
		return api.Workspace{}, err
	}
	if req.Force && !req.FromSnapshot {
		return api.Workspace{}, errs.New(errs.Invalid, "force needs from_snapshot").WithHint("billet ws start %s --from-snapshot --force", ws.Name)
	}
	if err := c.refuseKilled(ctx, ws); err != nil {
		return api.Workspace{}, err
	}
	live, err := c.live(ctx, ws)
	if err != nil {
		return api.Workspace{}, err
	}
	m := c.meta(who.ID)
	switch {
	case live != nil && req.Force:
		return c.startOver(ctx, m, ws, *live)
	case live != nil && (req.FromSnapshot || live.State == model.StateUnproven):
		return api.Workspace{}, c.refuseStart(ctx, ws, *live)
	}
	return c.start(ctx, m, ws, live)
}

// start wants the workspace running. With no live instance the first placement
// is tried here, so that a refusal is the caller's answer and nothing changes.
func (c *Control) start(ctx context.Context, m ledger.Meta, ws model.Workspace, live *model.Instance) (api.Workspace, error) {
	if live == nil && ws.Desired != model.DesiredDeleted {
		if err := c.admit(ctx, ws); err != nil {
			return api.Workspace{}, err
		}
	}
	ws, err := c.cfg.Ledger.SetDesired(ctx, m, ws.Tenant, ws.ID, model.DesiredRunning)
	if err != nil {
		return api.Workspace{}, err
	}
	if live == nil {
		_, err := c.place(ctx, m, ws)
		c.noteWait(ws.ID, err) // lost a race: the reconciler goes on
	}
	c.changed.broadcast()
	return c.Workspace(ctx, model.Principal{Tenant: ws.Tenant}, string(ws.ID))
}

// refuseStart says what a start beside a live instance would give up, and that
// it takes a word more.
func (c *Control) refuseStart(ctx context.Context, ws model.Workspace, live model.Instance) error {
	lost, err := c.lost(ctx, live)
	if err != nil {
		return err
	}
	since := "what it wrote since " + lost.DurableAt.Format(time.RFC3339)
	if lost.UnsavedBytes > 0 {
		since += fmt.Sprintf(" (at least %s)", model.Size(lost.UnsavedBytes))
	}
	force := fmt.Sprintf("billet ws start %s --from-snapshot --force", ws.Name)
	if live.State == model.StateUnproven {
		return errs.New(errs.Conflict, "node %s is silent and its instance %s of %s is not proved gone: starting it elsewhere gives up %s", lost.Node, live.ID, ws.Name, since).
			WithHint("wait for the node; or give that up: %s", force)
	}
	return errs.New(errs.Conflict, "workspace %s has instance %s, which is %s on node %s: starting it from its newest snapshot gives up %s", ws.Name, live.ID, live.State, lost.Node, since).
		WithHint("save it first: billet ws stop %s; or give that up: %s", ws.Name, force)
}

// startOver gives a live instance up for one on the newest snapshot. A refusal
// for want of room comes first and leaves all as it was. Its node stays charged
// for what is given up; the tier's ceiling does not.
func (c *Control) startOver(ctx context.Context, m ledger.Meta, ws model.Workspace, live model.Instance) (api.Workspace, error) {
	if err := c.admitBeside(ctx, ws, 1); err != nil {
		return api.Workspace{}, err
	}
	lost, err := c.lost(ctx, live)
	if err != nil {
		return api.Workspace{}, err
	}
	if ws, err = c.cfg.Ledger.GiveUp(ctx, m, ws.Tenant, ws.ID, live.ID); err != nil {
		return api.Workspace{}, err
	}
	c.cfg.Log.Warn("instance given up", "workspace", ws.ID, "instance", live.ID, "node", live.Node, "principal", m.Actor)
	_, err = c.place(ctx, m, ws)
	c.noteWait(ws.ID, err) // lost a race: the reconciler goes on
	c.changed.broadcast()
	v, err := c.Workspace(ctx, model.Principal{Tenant: ws.Tenant}, string(ws.ID))
	v.GivenUp = &lost
	return v, err
}
