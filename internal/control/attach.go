package control

import (
	"context"
	"time"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/model"
	"github.com/billethq/billet/internal/road"
)

// attachTTL is how long an attachment's ticket opens streams: long enough for
// the client to dial, too short to be worth stealing.
const attachTTL = time.Minute

// Attach implements api.Service.
func (c *Control) Attach(ctx context.Context, who model.Principal, ref string) (api.Attachment, error) {
	ws, err := c.find(ctx, who, ref)
	if err != nil {
		return api.Attachment{}, err
	}
	live, err := c.live(ctx, ws)
	if err != nil {
		return api.Attachment{}, err
	}
	if live == nil || (live.State != model.StateRunning && live.State != model.StateUnproven) || live.Desired != model.InstanceRun {
		v, err := c.show(ctx, ws)
		if err != nil {
			return api.Attachment{}, err
		}
		return api.Attachment{}, notRunning(v)
	}
	return c.attachment(who, road.Ticket{Node: live.Node, Target: road.TargetAgent, Instance: live.ID, Epoch: live.Epoch, Tenant: ws.Tenant})
}

// notRunning says why a workspace cannot be entered and what to do.
func notRunning(v api.Workspace) error {
	e := errs.New(errs.Conflict, "workspace %s is %s", v.Name, v.State)
	switch v.State {
	case api.WorkspaceStarting:
		return e.WithHint("wait for it: billet ws show %s --watch", v.Name)
	case api.WorkspaceFailed:
		return errs.New(errs.Conflict, "workspace %s has failed: %s", v.Name, v.Failure).WithHint("start it again with: billet ws start %s", v.Name)
	case api.WorkspaceDeleting:
		return e.WithHint("it is going away")
	case api.WorkspaceStopped, api.WorkspaceStopping, api.WorkspaceRunning, api.WorkspaceUnproven:
	}
	return e.WithHint("start it with: billet ws start %s", v.Name)
}

func (c *Control) attachment(who model.Principal, t road.Ticket) (api.Attachment, error) {
	if len(c.cfg.Gateways) == 0 {
		return api.Attachment{}, errs.New(errs.Unavailable, "no gateway is configured").WithHint("start one with: billet gateway")
	}
	t.Deployment, t.Principal, t.Expires = c.deployment.ID, who.ID, c.cfg.Clock.Now().Add(attachTTL)
	text, err := road.Sign(c.signer, t)
	if err != nil {
		return api.Attachment{}, err
	}
	return api.Attachment{Gateway: c.cfg.Gateways[0].URL, Ticket: text, Instance: t.Instance, Epoch: t.Epoch, Node: t.Node, Expires: t.Expires}, nil
}
