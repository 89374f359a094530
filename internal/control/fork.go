package control

import (
	"context"
	"time"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/model"
)

// forkFlushWait bounds how long a fork of a running workspace waits for its
// newest state to become durable.
const forkFlushWait = 10 * time.Minute

// ForkWorkspace implements api.Service.
func (c *Control) ForkWorkspace(ctx context.Context, who model.Principal, key, ref string, req api.ForkWorkspaceRequest) (api.Workspace, error) {
	ws, err := c.find(ctx, who, ref)
	if err != nil {
		return api.Workspace{}, err
	}
	m := c.meta(who.ID)
	if ws, err = c.saved(ctx, ws); err != nil {
		return api.Workspace{}, err
	}
	fork := ws
	fork.ID, fork.Owner, fork.Name = model.WorkspaceID(model.NewID()), who.ID, req.Name
	fork.Base, fork.HeadSeq, fork.Epoch, fork.Failure = ws.Head, 0, 0, model.CauseNone
	fork.Desired, fork.Created, fork.Updated = desiredAtFirst(req.Stopped), m.Now, m.Now
	if fork.Name == "" {
		fork.Name = generateName()
	}
	if err := model.CheckName("workspace", fork.Name); err != nil {
		return api.Workspace{}, err
	}
	return c.create(ctx, m, fork, idempotency(who, key, struct {
		Ref string
		Req api.ForkWorkspaceRequest
	}{string(ws.ID), req}))
}

// flushWish is a flush that somebody waits for. Numbers only rise, also over
// restarts of the server, and are compared with nothing but the node's echo.
type flushWish struct {
	number uint64
	memory bool // with the guest's memory
}

// wish asks for a flush of what an instance writes until now.
func (c *Control) wish(id model.InstanceID, memory bool) uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := max(uint64(c.cfg.Clock.Now().UnixMicro()), c.flushes[id].number+1)
	c.flushes[id] = flushWish{number: n, memory: memory}
	c.changed.broadcast()
	return n
}

// saved returns the workspace once everything that it has written until the
// call is durable, and its memory with it where that is kept.
func (c *Control) saved(ctx context.Context, ws model.Workspace) (model.Workspace, error) {
	live, err := c.live(ctx, ws.ID)
	if err != nil || live == nil {
		return ws, err
	}
	if live.State == model.StateUnproven {
		return ws, errs.New(errs.Conflict, "node %s is silent: what workspace %s wrote since %s cannot be saved now", c.nodeName(live.Node), ws.Name, ws.HeadAt.Format(time.RFC3339)).
			WithHint("wait for the node; see: billet node ls")
	}
	number := c.wish(live.ID, c.keep(ws) > 0)
	ctx, cancel := context.WithTimeout(ctx, forkFlushWait)
	defer cancel()
	for {
		next := c.changed.next()
		if now, err := c.live(ctx, ws.ID); err != nil {
			return ws, err
		} else if now == nil || now.ID != live.ID || c.flushed(live.ID) >= number {
			return c.cfg.Ledger.Workspace(ctx, string(ws.ID))
		}
		select {
		case <-next:
		case <-ctx.Done():
			return ws, errs.New(errs.Unavailable, "workspace %s was not saved in time", ws.Name).WithHint("see flush_error in: billet ws show %s --json", ws.Name)
		}
	}
}

// flushed is the newest wish that the instance's node has met.
func (c *Control) flushed(id model.InstanceID) uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.seen[id].flushed
}
