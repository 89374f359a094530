package control

import (
	"context"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/ledger"
	"github.com/billethq/billet/internal/model"
)

// show turns a record into what people see of it.
func (c *Control) show(ctx context.Context, ws model.Workspace) (api.Workspace, error) {
	v := api.Workspace{
		ID: ws.ID, Tenant: ws.Tenant, Region: ws.Region, Name: ws.Name, Class: ws.Class, Tier: ws.Tier, Shape: ws.Shape,
		Image: ws.Image, Desired: ws.Desired, Failure: ws.Failure, Head: ws.Head, HeadSeq: ws.HeadSeq, DurableAt: ws.HeadAt,
		Epoch: ws.Epoch, Created: ws.Created, Updated: ws.Updated,
	}
	newest, err := c.newest(ctx, ws)
	if err != nil {
		return v, err
	}
	if newest != nil {
		v.Phases = newest.Phases
	}
	v.State = stateOf(ws, newest)
	c.mu.Lock()
	waiting := c.waiting[ws.ID]
	c.mu.Unlock()
	switch {
	case newest != nil && newest.State.Live():
		v.Instance = &api.Instance{ID: newest.ID, Node: c.nodeName(newest.Node), Driver: newest.Driver, State: newest.State, Epoch: newest.Epoch, Cause: newest.Cause}
		v.Detail = newest.Detail
		c.showVolatile(&v, *newest)
	case v.State == api.WorkspaceStarting:
		v.Detail, v.Phases = waiting, nil
	case v.State == api.WorkspaceFailed && newest != nil:
		v.Detail = newest.Detail
	}
	v.NextResume = c.nextResume(ws)
	v.DurableAge = c.cfg.Clock.Now().Sub(v.DurableAt).Seconds()
	return v, nil
}

func (c *Control) showVolatile(v *api.Workspace, in model.Instance) {
	seen, _ := c.seen(in)
	v.UnsavedBytes, v.FlushError = seen.unsaved, seen.flushError
	if seen.durableAt.After(v.DurableAt) {
		v.DurableAt = seen.durableAt
	}
}

// stateOf derives a workspace's state from its record and newest instance.
func stateOf(ws model.Workspace, newest *model.Instance) api.WorkspaceState {
	if ws.Desired == model.DesiredDeleted {
		return api.WorkspaceDeleting
	}
	if newest != nil && newest.State.Live() {
		switch newest.State {
		case model.StateUnproven:
			return api.WorkspaceUnproven
		case model.StateStopping:
			return api.WorkspaceStopping
		case model.StateRunning:
			if newest.Desired == model.InstanceRun {
				return api.WorkspaceRunning
			}
			return api.WorkspaceStopping
		case model.StateReserved, model.StateStarting:
			if newest.Desired == model.InstanceRun {
				return api.WorkspaceStarting
			}
			return api.WorkspaceStopping
		case model.StateFenced, model.StateEnded: // not live
		}
	}
	switch {
	case ws.Desired == model.DesiredRunning:
		return api.WorkspaceStarting
	case ws.Failure != model.CauseNone:
		return api.WorkspaceFailed
	}
	return api.WorkspaceStopped
}

// nodeName returns a node's name for people, or its id while it is unknown.
func (c *Control) nodeName(id model.NodeID) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if v := c.nodes[id]; v != nil && v.node.Name != "" {
		return v.node.Name
	}
	return string(id)
}

func imageView(r ledger.ImageRecord) api.Image {
	return api.Image{
		ID: r.Image.ID, Name: r.Image.Name, Generation: r.Head.ID, Root: r.Head.Root, Source: r.Head.Source,
		DiskBytes: r.Head.DiskBytes, UsedBytes: r.Head.UsedBytes, StoredBytes: r.Head.StoredBytes,
		Created: r.Image.Created, Updated: r.Image.Updated,
	}
}

func generationView(g model.ImageGeneration) api.Generation {
	return api.Generation{
		ID: g.ID, Root: g.Root, Source: g.Source, DiskBytes: g.DiskBytes, UsedBytes: g.UsedBytes,
		StoredBytes: g.StoredBytes, Created: g.Created,
	}
}
