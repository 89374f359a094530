package control

import (
	"context"
	"time"

	"github.com/billethq/billet/internal/clock"
	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/failpoint"
	"github.com/billethq/billet/internal/fleet"
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
	all, err := c.cfg.Ledger.Workspaces(ctx, ledger.AllTenants)
	if err != nil {
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

// place chooses a node and reserves an instance there. The choice is made on a
// view; the ledger checks it again as it commits.
func (c *Control) place(ctx context.Context, m ledger.Meta, ws model.Workspace) (model.Instance, error) {
	drivers, ceiling := []model.DriverName{model.DriverGVisor}, 0
	if t, ok := c.tier(ws.Tier); ok {
		drivers, ceiling = t.Drivers, t.Max
	}
	node, driver, err := c.choose(ctx, fleet.Need{Region: ws.Region, Shape: ws.Shape, Drivers: drivers, Machine: ws.Memory.Machine})
	if err != nil {
		return model.Instance{}, err
	}
	in, err := c.cfg.Ledger.Place(ctx, m, model.Instance{
		ID: model.InstanceID(model.NewID()), Tenant: ws.Tenant, Region: ws.Region, Node: node, Driver: driver, Shape: ws.Shape,
		SubjectKind: model.SubjectWorkspace, Subject: model.SubjectID(ws.ID), State: model.StateReserved,
		Desired: model.InstanceRun, Created: m.Now, Updated: m.Now, LeaseUntil: m.Now.Add(leasePeriod),
	}, ledger.Ceiling{Tier: ws.Tier, Max: ceiling, LeaseUntil: m.Now.Add(leasePeriod)})
	if err != nil {
		return in, err
	}
	failpoint.Reach(failpoint.CreatePlaced)
	c.changed.broadcast()
	return in, nil
}

func (c *Control) choose(ctx context.Context, need fleet.Need) (model.NodeID, model.DriverName, error) {
	cs, err := c.candidates(ctx)
	if err != nil {
		return "", "", err
	}
	id, err := fleet.Choose(cs, need)
	if err != nil {
		return "", "", err
	}
	for _, cand := range cs {
		if cand.Node.ID == id {
			return id, cand.Node.Driver, nil
		}
	}
	return "", "", errs.New(errs.Internal, "chosen node %s is not a candidate", id)
}

// candidates reads the fleet: nodes with what is charged to them.
func (c *Control) candidates(ctx context.Context) ([]fleet.Candidate, error) {
	nodes, err := c.cfg.Ledger.Nodes(ctx)
	if err != nil {
		return nil, err
	}
	charged, err := c.cfg.Ledger.Instances(ctx, ledger.InstanceFilter{Tenant: ledger.AllTenants, Charged: true})
	if err != nil {
		return nil, err
	}
	now := c.cfg.Clock.Now()
	cs := make([]fleet.Candidate, len(nodes))
	for i, n := range nodes {
		cs[i] = fleet.Candidate{Node: n, Silent: c.silent(n.ID, now), Machine: c.machineOf(n.ID)}
		for _, in := range charged {
			if in.Node == n.ID {
				cs[i].Used.VCPUs += in.Shape.VCPUs
				cs[i].Used.Memory += in.Shape.Memory
				cs[i].Used.Disk += in.Shape.Disk
				cs[i].Live++
			}
		}
	}
	return cs, nil
}

func (c *Control) tier(name string) (model.Tier, bool) {
	for _, t := range c.cfg.Tiers {
		if t.Name == name {
			return t, true
		}
	}
	return model.Tier{}, false
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
