package control

import (
	"context"
	"time"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/failpoint"
	"github.com/billethq/billet/internal/ledger"
	"github.com/billethq/billet/internal/model"
)

// recordEvery bounds how often an unchanged node or observation is written
// again: often enough to renew leases, rarely enough to keep an idle fleet
// silent on the ledger's disk.
const recordEvery = leasePeriod / 4

// see takes in a report, unless a newer one of the same process was: a node
// gives a request up for the next, and the server may come to them in any order.
// Nobody waits for the answer of the older one.
func (c *Control) see(ctx context.Context, view *nodeView, req api.SyncRequest) error {
	view.seeing.Lock()
	defer view.seeing.Unlock()
	if req.Life == view.life && req.Report < view.report {
		return errs.New(errs.Stale, "report %d of node %s comes after its report %d", req.Report, req.Node, view.report)
	}
	view.life, view.report = req.Life, req.Report
	return c.record(ctx, view, req)
}

// record notes the node and what it observes.
func (c *Control) record(ctx context.Context, view *nodeView, req api.SyncRequest) error {
	m := c.meta("")
	c.mu.Lock()
	view.machine = req.Machine
	c.mu.Unlock()
	n := model.Node{
		ID: req.Node, Tenant: model.DefaultTenant, Region: model.DefaultRegion, Name: req.Name, Driver: req.Driver,
		BootID: req.BootID, Version: req.Version, Capacity: req.Capacity, LastSeen: m.Now, Created: m.Now,
	}
	same := n
	c.mu.Lock()
	known, recorded := view.node, view.recorded
	c.mu.Unlock()
	same.LastSeen, same.Created = known.LastSeen, known.Created
	if n.Name != known.Name {
		if err := c.ownName(ctx, n); err != nil {
			return err
		}
	}
	if same != known || m.Now.Sub(recorded) >= recordEvery {
		if err := c.cfg.Ledger.SeeNode(ctx, m, n); err != nil {
			return err
		}
		c.mu.Lock()
		view.node, view.recorded = n, m.Now
		c.mu.Unlock()
		c.arrived(n.ID) // placements may have waited for this node
	}
	c.mu.Lock()
	view.keep(req.Observed)
	c.mu.Unlock()
	moved := false
	for _, o := range req.Observed {
		changed, err := c.observe(ctx, m, view, req.Node, o)
		if err != nil {
			return err
		}
		moved = moved || changed
	}
	if moved {
		c.changed.broadcast()
	}
	return nil
}

// ownName refuses a node whose name another one bears that is there: people
// and programs mean one node by it. The name of a silent one is free, because
// a host that has lost its state comes back under a new id.
func (c *Control) ownName(ctx context.Context, n model.Node) error {
	all, err := c.cfg.Ledger.Nodes(ctx)
	if err != nil {
		return err
	}
	for _, other := range all {
		if other.Name == n.Name && other.ID != n.ID && !c.silent(other.ID, n.LastSeen) {
			return errs.New(errs.Conflict, "node name %s is taken by node %s", n.Name, other.ID).
				WithHint("give this node another name: node.name in the configuration")
		}
	}
	return nil
}

// durableSlack is how far the moment up to which everything is durable may vary
// from report to report, by the time that each took to come here, and be the
// same: whoever watches a workspace is not told of that.
const durableSlack = time.Second

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// observe records one observation; an instance that control does not know, or
// knows under another epoch, is no error: the answer fences it.
func (c *Control) observe(ctx context.Context, m ledger.Meta, view *nodeView, node model.NodeID, o api.ObservedInstance) (bool, error) {
	last, moved := c.note(m.Now, view, o)
	stable := o
	stable.UnsavedBytes, stable.DurableAge, stable.Flushed, stable.FlushError = 0, 0, 0, ""
	hash := hashOf(stable)
	if hash == last.hash && m.Now.Sub(last.at) < recordEvery {
		return moved, nil
	}
	changed, err := c.cfg.Ledger.Observe(ctx, m, ledger.Observation{
		Node: node, Instance: o.ID, Epoch: o.Epoch, State: o.State, Cause: o.Cause, Detail: o.Detail,
		Phases: o.Phases, LeaseUntil: m.Now.Add(leasePeriod),
	})
	if errs.Is(err, errs.NotFound) || errs.Is(err, errs.Stale) || errs.Is(err, errs.Conflict) {
		return moved, nil
	}
	if err != nil {
		return moved, err
	}
	if changed && o.State == model.StateEnded {
		failpoint.Reach(failpoint.StopReported)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if now, ok := view.observed[o.ID]; ok { // unless the node was removed meanwhile
		now.hash, now.at = hash, m.Now
		view.observed[o.ID] = now
	}
	return moved || changed, nil
}

// note keeps the volatile part of an observation and returns what was known
// before, and whether a watcher has anything new to see.
func (c *Control) note(at time.Time, view *nodeView, o api.ObservedInstance) (last observed, moved bool) {
	v := volatile{unsaved: o.UnsavedBytes, flushed: o.Flushed, flushError: o.FlushError}
	if o.DurableAge > 0 {
		v.durableAt = at.Add(-o.DurableAge)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	last, known := view.observed[o.ID]
	old := last.volatile
	if v.durableAt.Sub(old.durableAt).Abs() < durableSlack {
		v.durableAt = earlier(old.durableAt, v.durableAt)
		old.durableAt = v.durableAt
	}
	if view.observed == nil { // the node was removed meanwhile
		return last, false
	}
	view.observed[o.ID] = observed{volatile: v, hash: last.hash, at: last.at}
	return last, !known || old != v
}
