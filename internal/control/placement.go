package control

import (
	"context"

	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/failpoint"
	"github.com/billethq/billet/internal/fleet"
	"github.com/billethq/billet/internal/ledger"
	"github.com/billethq/billet/internal/model"
)

// placement is what a workspace asks of the fleet: admission and placement have
// to look for the same.
type placement struct {
	tier string
	max  int // live instances of the tier; 0: no ceiling
	need fleet.Need
}

// wants resolves a workspace's tier. One that is configured no more keeps its
// workspaces: their shape is their own.
func (c *Control) wants(ws model.Workspace) placement {
	p := placement{tier: ws.Tier, need: fleet.Need{
		Region: ws.Region, Shape: ws.Shape, Drivers: []model.DriverName{model.DriverGVisor}, Machine: ws.Memory.Machine,
	}}
	if t, ok := c.tier(ws.Tier); ok {
		p.max, p.need.Drivers = t.Max, t.Drivers
	}
	return p
}

func (c *Control) tier(name string) (model.Tier, bool) {
	for _, t := range c.cfg.Tiers {
		if t.Name == name {
			return t, true
		}
	}
	return model.Tier{}, false
}

// admit refuses before anything is committed. It waits for the nodes that a
// server which has just started does not know yet.
func (c *Control) admit(ctx context.Context, ws model.Workspace) error {
	return c.admitBeside(ctx, ws, 0)
}

// admitBeside admits an instance before which ending others of its tier end.
func (c *Control) admitBeside(ctx context.Context, ws model.Workspace, ending int) error {
	p := c.wants(ws)
	return c.awaitNodes(ctx, func() error {
		if p.max > 0 {
			use, err := c.cfg.Ledger.TierUse(ctx)
			if err != nil {
				return err
			}
			if live := use[p.tier] - ending; live >= p.max {
				return errs.New(errs.Exhausted, "tier %s has %d of %d instances live", p.tier, live, p.max).WithHint("stop one of them, or raise the tier's max")
			}
		}
		_, _, err := c.choose(ctx, p.need)
		return err
	})
}

// place chooses a node and reserves an instance there. The choice is made on a
// view; the ledger checks it again as it commits.
func (c *Control) place(ctx context.Context, m ledger.Meta, ws model.Workspace) (model.Instance, error) {
	p := c.wants(ws)
	node, driver, err := c.choose(ctx, p.need)
	if err != nil {
		return model.Instance{}, err
	}
	until := m.Now.Add(leasePeriod)
	in, err := c.cfg.Ledger.Place(ctx, m, model.Instance{
		ID: model.InstanceID(model.NewID()), Tenant: ws.Tenant, Region: ws.Region, Node: node, Driver: driver, Shape: ws.Shape,
		SubjectKind: model.SubjectWorkspace, Subject: model.SubjectID(ws.ID), State: model.StateReserved,
		Desired: model.InstanceRun, Created: m.Now, Updated: m.Now, LeaseUntil: until,
	}, ledger.Ceiling{Tier: p.tier, Max: p.max, LeaseUntil: until})
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
