package apitest

import (
	"context"
	"slices"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/model"
)

// box is the one node.
func box() api.Node {
	return api.Node{
		ID: Node, Name: "box", Region: model.DefaultRegion, Driver: model.DriverGVisor, Version: "v0.0.0-fake", BootID: "b",
		Capacity: model.Capacity{VCPUs: 8, Memory: 32 << 30, Disk: 500 << 30}, Used: model.Capacity{VCPUs: 1, Memory: 1 << 30, Disk: 16 << 30},
		Instances: 1, LastSeen: now,
	}
}

// Join adds another node.
func (f *Fake) Join(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := box()
	n.ID, n.Name = model.NodeID(ID("n"+name)), name
	f.nodes = append(f.nodes, n)
}

// Silence makes a node silent.
func (f *Fake) Silence(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range f.nodes {
		f.nodes[i].Silent = f.nodes[i].Silent || f.nodes[i].Name == name
	}
}

// Nodes implements api.Service.
func (f *Fake) Nodes(context.Context, model.Principal) ([]api.Node, error) {
	defer f.mu.Unlock()
	err := f.enter("Nodes")
	return slices.Clone(f.nodes), err
}

// RemoveNode implements api.Service; Lost is nil when nothing was lost.
func (f *Fake) RemoveNode(_ context.Context, who model.Principal, ref string, force bool) (api.RemovedNode, error) {
	defer f.mu.Unlock()
	if err := f.enter("RemoveNode", ref, force); err != nil {
		return api.RemovedNode{}, err
	}
	i := slices.IndexFunc(f.nodes, func(n api.Node) bool { return n.Name == ref || string(n.ID) == ref })
	if i < 0 {
		return api.RemovedNode{}, errs.New(errs.NotFound, "node %q is not there", ref).WithHint("see: billet node ls")
	}
	n := f.nodes[i]
	if !n.Silent {
		return api.RemovedNode{}, errs.New(errs.Conflict, "node %s is heard: its host is not gone", n.Name).WithHint("end billet there first")
	}
	if n.Instances > 0 && !force {
		return api.RemovedNode{}, errs.New(errs.Conflict, "%d instances on node %s are not proved gone", n.Instances, n.Name).
			WithHint("if its host is gone for good: billet node rm %s --force", n.Name)
	}
	removed := api.RemovedNode{ID: n.ID, Name: n.Name}
	for _, ws := range f.workspaces {
		if ws.Instance == nil || ws.Instance.Node != n.Name {
			continue
		}
		removed.Lost = append(removed.Lost, api.LostInstance{
			ID: ws.Instance.ID, Workspace: ws.Name, Cause: model.CauseHostGone, DurableAt: ws.DurableAt, UnsavedBytes: ws.UnsavedBytes,
		})
		ws.State, ws.Desired, ws.Failure, ws.Instance, ws.steps = api.WorkspaceFailed, model.DesiredStopped, model.CauseHostGone, nil, nil
	}
	f.nodes = slices.Delete(f.nodes, i, i+1)
	f.record(who.ID, "node.removed", "node", string(n.ID))
	return removed, nil
}
