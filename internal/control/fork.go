package control

import (
	"context"
	"time"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/ledger"
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
	fork := forkOf(ws, who, m, req)
	if err := model.CheckName("workspace", fork.Name); err != nil {
		return api.Workspace{}, err
	}
	return c.create(ctx, m, fork, idempotency(who, key, struct {
		Ref string
		Req api.ForkWorkspaceRequest
	}{string(ws.ID), req}))
}

// forkOf makes the record of a workspace that begins where ws is.
func forkOf(ws model.Workspace, who model.Principal, m ledger.Meta, req api.ForkWorkspaceRequest) model.Workspace {
	fork := ws
	fork.ID, fork.Owner, fork.Name = model.WorkspaceID(model.NewID()), who.ID, req.Name
	fork.Base, fork.HeadSeq, fork.Epoch, fork.Failure = ws.Head, 0, 0, model.CauseNone
	fork.Desired, fork.Created, fork.Updated = desiredAtFirst(req.Stopped), m.Now, m.Now
	if req.Stopped && fork.Memory.Root != "" {
		fork.Desired = model.DesiredHibernated
	}
	if fork.Name == "" {
		fork.Name = generateName()
	}
	return fork
}

// flushWish is a flush that somebody waits for. Numbers only rise, and are
// compared with nothing but the node's echo.
type flushWish struct {
	number uint64
	memory bool // with the guest's memory
}

// wish asks for a flush of what an instance writes until now; 0 says that its
// node has to be heard first. After a restart of the server the node still has
// the wishes of the earlier life, and its echo of one must not pass for that of
// ours: numbers begin at the microseconds since 1970, and beyond what the node
// has met, for a clock may have been set back.
func (c *Control) wish(in model.Instance, memory bool) uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	seen, heard := c.seenLocked(in)
	if !heard {
		return 0
	}
	n := max(uint64(c.cfg.Clock.Now().UnixMicro()), c.flushes[in.ID].number+1, seen.flushed+1)
	c.flushes[in.ID] = flushWish{number: n, memory: memory}
	c.changed.broadcast()
	return n
}

// saved returns the workspace once everything that it has written until the
// call is durable, and its memory with it where that is kept.
func (c *Control) saved(ctx context.Context, ws model.Workspace) (model.Workspace, error) {
	first, err := c.live(ctx, ws)
	if err != nil {
		return ws, err
	}
	ctx, cancel := context.WithTimeout(ctx, forkFlushWait)
	defer cancel()
	var number uint64
	for live := first; live != nil && live.ID == first.ID; {
		next := c.changed.next()
		switch {
		case number == 0 && live.State == model.StateUnproven:
			return ws, errs.New(errs.Conflict, "node %s is silent: what workspace %s wrote since %s cannot be saved now", c.nodeName(live.Node), ws.Name, ws.HeadAt.Format(time.RFC3339)).
				WithHint("wait for the node; see: billet node ls")
		case number == 0:
			number = c.wish(*live, c.keep(ws) > 0)
		case c.flushed(*live) >= number:
			return c.cfg.Ledger.Workspace(ctx, ws.Tenant, string(ws.ID))
		}
		select {
		case <-next:
		case <-ctx.Done():
			return ws, errs.New(errs.Unavailable, "workspace %s was not saved in time", ws.Name).WithHint("see flush_error in: billet ws show %s --json", ws.Name)
		}
		if live, err = c.live(ctx, ws); err != nil {
			return ws, err
		}
	}
	return c.atRest(ctx, ws, first != nil)
}

// atRest returns a workspace whose instance is over. One that was waited for
// may have ended without saving what the fork was to begin with.
func (c *Control) atRest(ctx context.Context, ws model.Workspace, waited bool) (model.Workspace, error) {
	ws, err := c.cfg.Ledger.Workspace(ctx, ws.Tenant, string(ws.ID))
	if err == nil && waited && (ws.Failure == model.CauseFenced || ws.Failure == model.CauseHostGone) {
		return ws, errs.New(errs.Conflict, "workspace %s ended as %s before it was saved", ws.Name, ws.Failure).
			WithHint("fork again to begin with what it had saved at %s", ws.HeadAt.Format(time.RFC3339))
	}
	return ws, err
}

// flushed is the newest wish that the instance's node has met.
func (c *Control) flushed(in model.Instance) uint64 {
	v, _ := c.seen(in)
	return v.flushed
}
