package control

import (
	"context"
	"time"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/model"
)

// DefaultMemoryKeep is the decay window of seed 002, decision 3: who comes back
// within a week, nearly always does; who does not, rarely.
const DefaultMemoryKeep = 7 * 24 * time.Hour

// MemoryPolicy says how long a memory image is kept. Past that, and where it is
// model.KeepNothing, a workspace resumes by a cold boot.
type MemoryPolicy struct {
	Keep    time.Duration                 // 0 is DefaultMemoryKeep
	Classes map[model.Class]time.Duration // what holds for a class instead
}

// keep is the window of a workspace: its tier's, else its class's, else the
// deployment's; 0 or less is none.
func (c *Control) keep(ws model.Workspace) time.Duration {
	if t, ok := c.tier(ws.Tier); ok && t.MemoryKeep != 0 {
		return t.MemoryKeep
	}
	if d, ok := c.cfg.Memory.Classes[ws.Class]; ok {
		return d
	}
	if c.cfg.Memory.Keep == 0 {
		return DefaultMemoryKeep
	}
	return c.cfg.Memory.Keep
}

// keptMemory is what goes into a snapshot of the memory that a node has stored.
func (c *Control) keptMemory(ctx context.Context, now time.Time, in model.Instance, req *api.CommitMemory) (model.Memory, error) {
	if req == nil {
		return model.Memory{}, nil
	}
	if err := req.Root.Check(); err != nil {
		return model.Memory{}, err
	}
	ws, err := c.cfg.Ledger.Workspace(ctx, in.Tenant, string(in.Subject))
	if errs.Is(err, errs.NotFound) {
		return model.Memory{}, errs.New(errs.Stale, "the workspace of instance %s is gone", in.ID)
	}
	if err != nil {
		return model.Memory{}, err
	}
	keep := c.keep(ws)
	if keep <= 0 {
		return model.Memory{}, nil
	}
	return model.Memory{Root: req.Root, Machine: req.Machine, Bytes: req.Bytes, Until: now.Add(keep)}, nil
}

// nextResume says how a workspace will come back: what people see before they
// connect.
func (c *Control) nextResume(ws model.Workspace) *api.NextResume {
	mem := ws.Memory
	switch {
	case ws.Desired == model.DesiredDeleted:
		return nil
	case mem.Root == "":
		why := "its newest snapshot has no memory image"
		if c.keep(ws) <= 0 {
			why = "memory is not kept for its tier or class"
		}
		return &api.NextResume{How: api.ResumeCold, Why: why}
	case !mem.Until.After(c.cfg.Clock.Now()):
		return &api.NextResume{How: api.ResumeCold, Why: "its memory image has expired"}
	case !c.canRestore(mem.Machine):
		return &api.NextResume{How: api.ResumeCold, Why: "no node that is there can restore its memory: another driver version or processor"}
	}
	return &api.NextResume{How: api.ResumeMemory, Until: &mem.Until, Bytes: mem.Bytes}
}

// canRestore reports whether a node that is there has the machine.
func (c *Control) canRestore(machine string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.cfg.Clock.Now()
	for _, v := range c.nodes {
		if v.machine == machine && (v.syncing > 0 || now.Sub(v.heard) <= silentAfter) {
			return true
		}
	}
	return false
}

// machineOf returns the machine of a node, "" while it has not called.
func (c *Control) machineOf(id model.NodeID) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if v := c.nodes[id]; v != nil {
		return v.machine
	}
	return ""
}
