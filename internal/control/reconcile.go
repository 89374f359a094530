package control

import (
	"context"
	"time"

	"github.com/billethq/billet/internal/clock"
	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/ledger"
	"github.com/billethq/billet/internal/model"
)

// reconcileEvery is the timer beside the signal: what a lost wake-up costs.
const reconcileEvery = 10 * time.Second

// idempotencyTTL is how long a client may repeat a creation by its key.
const idempotencyTTL = 24 * time.Hour

// Run reconciles until ctx ends: woken by a change and by a timer, it reads
// the present state and moves each workspace one step towards what is wanted.
func (c *Control) Run(ctx context.Context) {
	for ctx.Err() == nil {
		next := c.changed.next()
		if err := c.reconcile(ctx); err != nil && ctx.Err() == nil {
			c.cfg.Log.Error("reconcile failed", "err", err)
		}
		timer := time.NewTimer(c.untilDue(clock.Jitter(reconcileEvery)))
		select {
		case <-next:
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

func (c *Control) reconcile(ctx context.Context) error {
	if err := c.expire(ctx); err != nil {
		return err
	}
	known := c.remembered() // before the records are read: what comes later is newer than they are
	all, err := c.cfg.Ledger.Workspaces(ctx, ledger.AllTenants)
	if err != nil {
		return err
	}
	if err := c.prune(ctx, known, all); err != nil {
		return err
	}
	due, moved, err := c.lapse(ctx, all)
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.due = due
	c.mu.Unlock()
	for _, ws := range all {
		m, err := c.step(ctx, ws)
		if ctx.Err() != nil {
			return err
		}
		if err != nil {
			c.cfg.Log.Error("workspace step failed", "workspace", ws.ID, "err", err)
		}
		moved = moved || m
	}
	if moved {
		c.changed.broadcast()
	}
	return nil
}

// untilDue is how long the reconciler may wait: until the next deadline of
// terms, and no longer than the timer.
func (c *Control) untilDue(timer time.Duration) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.due.IsZero() {
		return timer
	}
	return max(0, min(timer, c.due.Sub(c.cfg.Clock.Now())))
}

// expire lets go of what time has ended: leases become unproven, never free;
// intents and idempotency keys are forgotten.
func (c *Control) expire(ctx context.Context) error {
	m := c.meta("")
	if m.Now.Sub(c.began) > leasePeriod { // after an outage of our own, nodes get one whole period to be heard
		lost, err := c.cfg.Ledger.MarkUnproven(ctx, m)
		if err != nil {
			return err
		}
		for _, in := range lost {
			c.cfg.Log.Warn("instance unproven: its node is silent", "instance", in.ID, "node", in.Node)
			c.changed.broadcast()
		}
	}
	if _, err := c.cfg.Ledger.ExpireIntents(ctx, m); err != nil {
		return err
	}
	if n, err := c.cfg.Ledger.ExpireMemory(ctx, m); err != nil {
		return err
	} else if n > 0 {
		c.cfg.Log.Info("memory images expired", "snapshots", n)
		c.changed.broadcast()
	}
	if err := c.cfg.Ledger.ExpireShares(ctx, m); err != nil {
		return err
	}
	return c.cfg.Ledger.ExpireIdempotency(ctx, m.Now.Add(-idempotencyTTL))
}

// step moves one workspace towards its desired state and reports whether
// anything moved. It may be run any number of times, and is at once by the
// reconciler and by who has just asked for something: whoever comes second
// finds it done, which is no error.
func (c *Control) step(ctx context.Context, ws model.Workspace) (bool, error) {
	moved, err := c.move(ctx, ws)
	if errs.Is(err, errs.Conflict) || errs.Is(err, errs.NotFound) {
		return false, nil
	}
	return moved, err
}

func (c *Control) move(ctx context.Context, ws model.Workspace) (bool, error) {
	live, err := c.live(ctx, ws)
	if err != nil {
		return false, err
	}
	switch ws.Desired {
	case model.DesiredRunning:
		if live != nil {
			if live.Desired == model.InstanceHibernate {
				return c.tell(ctx, live, model.InstanceRun) // it goes on at once, unless it is committed
			}
			return false, nil
		}
		_, err := c.place(ctx, c.meta(""), ws)
		c.noteWait(ws.ID, err)
		if errs.Is(err, errs.Exhausted) || errs.Is(err, errs.Unavailable) {
			return false, nil // shown to who looks; the next change tries again
		}
		return err == nil, err
	case model.DesiredHibernated:
		if live != nil && live.Desired == model.InstanceStop {
			return false, nil // on its way down, and further than that
		}
		return c.tell(ctx, live, model.InstanceHibernate)
	case model.DesiredStopped:
		return c.tell(ctx, live, model.InstanceStop)
	case model.DesiredDeleted:
		if live != nil {
			return c.tell(ctx, live, model.InstanceDestroy)
		}
		return true, c.cfg.Ledger.RemoveWorkspace(ctx, c.meta(""), ws.Tenant, ws.ID)
	}
	return false, nil
}

// live returns the live instance of a workspace, or nil.
func (c *Control) live(ctx context.Context, ws model.Workspace) (*model.Instance, error) {
	in, err := c.newest(ctx, ws)
	if err != nil || in == nil || !in.State.Live() {
		return nil, err
	}
	return in, nil
}

// newest returns the newest instance of a workspace, or nil.
func (c *Control) newest(ctx context.Context, ws model.Workspace) (*model.Instance, error) {
	in, found, err := c.cfg.Ledger.NewestInstance(ctx, ws.Tenant, model.SubjectWorkspace, model.SubjectID(ws.ID))
	if err != nil || !found {
		return nil, err
	}
	return &in, nil
}

func (c *Control) tell(ctx context.Context, in *model.Instance, d model.InstanceDesired) (bool, error) {
	if in == nil || in.Desired == d || in.Desired == model.InstanceDestroy {
		return false, nil
	}
	return true, c.cfg.Ledger.SetInstanceDesired(ctx, c.meta(""), in.Tenant, in.ID, d)
}

// noteWait keeps why a wanted start has no instance, for whoever asks. One
// that somebody else was quicker to place waits for nothing.
func (c *Control) noteWait(id model.WorkspaceID, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil || errs.Is(err, errs.Conflict) {
		delete(c.waiting, id)
		return
	}
	c.waiting[id] = err.Error()
}
