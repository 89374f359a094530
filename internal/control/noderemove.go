package control

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/fleet"
	"github.com/billethq/billet/internal/ledger"
	"github.com/billethq/billet/internal/model"
)

// maxNamed bounds the instances that a refusal names: a message is read by a
// person.
const maxNamed = 10

// RemoveNode implements api.Service. That a host is gone is for a person to
// say; what contradicts it is refused whatever they say.
func (c *Control) RemoveNode(ctx context.Context, who model.Principal, ref string, force bool) (api.RemovedNode, error) {
	n, err := c.goneNode(ctx, ref)
	if err != nil {
		return api.RemovedNode{}, err
	}
	if !force {
		if err := c.refuseRemoval(ctx, n); err != nil {
			return api.RemovedNode{}, err
		}
	}
	ended, err := c.cfg.Ledger.RemoveNode(ctx, c.meta(who.ID), n.ID, force)
	if err != nil {
		return api.RemovedNode{}, err
	}
	c.cfg.Log.Warn("node removed", "node", n.ID, "name", n.Name, "principal", who.ID, "lost", len(ended))
	defer func() { // once it is said what was lost: that is known of the node alone
		c.forget(n.ID)
		c.changed.broadcast()
	}()
	out := api.RemovedNode{ID: n.ID, Name: n.Name, Lost: make([]api.LostInstance, 0, len(ended))}
	for _, in := range ended {
		lost, err := c.lost(ctx, in)
		if err != nil {
			return api.RemovedNode{}, err
		}
		out.Lost = append(out.Lost, lost)
	}
	return out, nil
}

// goneNode finds the node that is meant: by its id, or the one of that name
// which is silent, since a host that lost its state comes back under its old
// name. It refuses a node that is heard, and a server that has not listened for
// long enough to tell.
func (c *Control) goneNode(ctx context.Context, ref string) (model.Node, error) {
	all, err := c.candidates(ctx)
	if err != nil {
		return model.Node{}, err
	}
	var heard, silent []fleet.Candidate
	for _, n := range all {
		switch {
		case string(n.Node.ID) != ref && n.Node.Name != ref:
		case n.Silent:
			silent = append(silent, n)
		default:
			heard = append(heard, n)
		}
	}
	switch {
	case len(heard)+len(silent) == 0:
		return model.Node{}, errs.New(errs.NotFound, "node %q is not there", ref).WithHint("see: billet node ls")
	case len(silent) == 0:
		n := heard[0]
		return model.Node{}, errs.New(errs.Conflict, "node %s is heard, with %d instances on it: its host is not gone", n.Node.Name, n.Live).
			WithHint("stop its workspaces and end billet on that host, then remove it")
	case len(silent) > 1:
		ids := make([]string, len(silent))
		for i, n := range silent {
			ids[i] = string(n.Node.ID)
		}
		return model.Node{}, errs.New(errs.Conflict, "%d silent nodes are named %s: %s", len(silent), ref, strings.Join(ids, ", ")).
			WithHint("name the one that is gone by its id")
	}
	if up := c.cfg.Clock.Now().Sub(c.began); up < leasePeriod {
		return model.Node{}, errs.New(errs.Unavailable, "the server started %s ago: node %s may not have had time to call", up.Round(time.Second), ref).
			WithHint("try again in a minute")
	}
	return silent[0].Node, nil
}

// refuseRemoval names what stands on a node: the capacity is charged, and
// nobody has said that it is free.
func (c *Control) refuseRemoval(ctx context.Context, n model.Node) error {
	charged, err := c.cfg.Ledger.Instances(ctx, ledger.InstanceFilter{Tenant: ledger.AllTenants, Node: n.ID, Charged: true})
	if err != nil || len(charged) == 0 {
		return err
	}
	var named []string
	for _, in := range charged[:min(len(charged), maxNamed)] {
		lost, err := c.lost(ctx, in)
		if err != nil {
			return err
		}
		named = append(named, fmt.Sprintf("%s (%s, durable until %s)", lost.Workspace, in.State, lost.DurableAt.Format(time.RFC3339)))
	}
	if more := len(charged) - len(named); more > 0 {
		named = append(named, fmt.Sprintf("%d more", more))
	}
	return errs.New(errs.Conflict, "%d instances on node %s are not proved gone: %s", len(charged), n.Name, strings.Join(named, ", ")).
		WithHint("wait for the node; if its host is gone for good, with everything that is not durable: billet node rm %s --force", n.Name)
}

// lost says what an instance had beyond what is durable. Its workspace may be
// gone already, which then misses nothing.
func (c *Control) lost(ctx context.Context, in model.Instance) (api.LostInstance, error) {
	out := api.LostInstance{ID: in.ID, Node: c.nodeName(in.Node), Cause: in.Cause}
	ws, err := c.cfg.Ledger.Workspace(ctx, in.Tenant, string(in.Subject))
	if errs.Is(err, errs.NotFound) {
		return out, nil
	}
	if err != nil {
		return out, err
	}
	out.Workspace, out.DurableAt = ws.Name, ws.HeadAt
	seen, _ := c.seen(in)
	out.UnsavedBytes = seen.unsaved
	if seen.durableAt.After(out.DurableAt) {
		out.DurableAt = seen.durableAt
	}
	return out, nil
}
