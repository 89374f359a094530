package apitest

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/model"
)

// find finds by name or id; the lock is held.
func (f *Fake) find(ref string) (*workspace, error) {
	for _, ws := range f.workspaces {
		if ws.Name == ref || string(ws.ID) == ref {
			return ws, nil
		}
	}
	return nil, errs.New(errs.NotFound, "workspace %q is not there", ref).WithHint("see: billet ws ls")
}

// CreateWorkspace implements api.Service.
func (f *Fake) CreateWorkspace(_ context.Context, who model.Principal, key string, req api.CreateWorkspaceRequest) (api.Workspace, error) {
	defer f.mu.Unlock()
	body := mustJSON(req)
	if err := f.enter("CreateWorkspace", body); err != nil {
		return api.Workspace{}, err
	}
	if first, ok := f.keys[key]; ok && key != "" {
		if string(first.body) != body {
			return api.Workspace{}, errs.New(errs.Conflict, "this Idempotency-Key was used for another request").WithHint("use a new key")
		}
		ws, err := f.find(string(first.id))
		return ws.Workspace, err
	}
	ws, err := f.make(who, req)
	if err != nil {
		return api.Workspace{}, err
	}
	f.keys[key] = created{body: []byte(body), id: ws.ID}
	return ws.Workspace, nil
}

func (f *Fake) make(who model.Principal, req api.CreateWorkspaceRequest) (*workspace, error) {
	name := orDefault(req.Name, fmt.Sprintf("quiet-otter-%d", len(f.workspaces)+1))
	if err := model.CheckName("workspace", name); err != nil {
		return nil, err
	}
	if _, err := f.find(name); err == nil {
		return nil, errs.New(errs.Conflict, "workspace %s is there already", name).WithHint("choose another name")
	}
	tier, s := orDefault(req.Tier, "small"), shape(1)
	if tier != "small" {
		return nil, errs.New(errs.NotFound, "tier %q is not configured", tier).WithHint("see: billet tier ls")
	}
	if req.Disk != 0 {
		if req.Disk < 2<<30 {
			return nil, errs.New(errs.Invalid, "a disk of %d bytes is smaller than the image's 2 GiB", req.Disk).WithHint("choose a larger one")
		}
		s.Disk = req.Disk
	}
	ws := &workspace{Workspace: api.Workspace{
		ID: model.WorkspaceID(ID("w" + name)), Tenant: who.Tenant, Region: who.Region, Name: name, Class: orDefault(req.Class, who.Class),
		Tier: tier, Shape: s, Image: orDefault(req.Image, "base"), State: api.WorkspaceStopped, Desired: model.DesiredStopped,
		Head: Root("base"), DurableAt: now.Add(-90 * time.Second), DurableAge: 90, Created: now, Updated: now,
	}}
	f.workspaces = append(f.workspaces, ws)
	f.record(who.ID, "workspace.created", "workspace", string(ws.ID))
	if !req.Stopped {
		f.start(ws)
	}
	return ws, nil
}

func (f *Fake) start(ws *workspace) {
	ws.Desired, ws.State, ws.Failure, ws.Detail = model.DesiredRunning, api.WorkspaceStarting, "", ""
	ws.Epoch++
	ws.Phases = []model.Phase{{Name: "placed", At: now}}
	ws.Instance = &api.Instance{ID: model.InstanceID(ID("n" + ws.Name)), Node: "box", Driver: model.DriverGVisor, State: model.StateReserved, Epoch: ws.Epoch}
	ws.steps = []api.WorkspaceState{api.WorkspaceStarting, api.WorkspaceRunning}
	f.wake()
}

// step moves ws one state on; it reports whether it did.
func (f *Fake) step(ws *workspace) bool {
	if len(ws.steps) == 0 {
		return false
	}
	ws.State, ws.steps = ws.steps[0], ws.steps[1:]
	switch ws.State {
	case api.WorkspaceStarting:
		ws.Instance.State = model.StateStarting
		ws.Phases = append(slices.Clone(ws.Phases), model.Phase{Name: "mounted", At: now.Add(120 * time.Millisecond)})
	case api.WorkspaceRunning:
		in := *ws.Instance
		in.State = model.StateRunning
		ws.Instance = &in
		ws.Phases = append(slices.Clone(ws.Phases), model.Phase{Name: "attached", At: now.Add(300 * time.Millisecond)})
		ws.UnsavedBytes = 3 << 20
	case api.WorkspaceStopped:
		ws.Instance, ws.UnsavedBytes, ws.HeadSeq, ws.DurableAt = nil, 0, ws.HeadSeq+1, now
		ws.Head = Root(fmt.Sprintf("%s-%d", ws.Name, ws.HeadSeq))
	case api.WorkspaceStopping, api.WorkspaceUnproven, api.WorkspaceFailed, api.WorkspaceDeleting:
	}
	return true
}

// Workspaces implements api.Service.
func (f *Fake) Workspaces(context.Context, model.Principal) ([]api.Workspace, error) {
	return f.list("Workspaces", false)
}

// Kill ends a workspace as for a client that it was lent to.
func (f *Fake) Kill(ref string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	ws, err := f.find(ref)
	if err != nil {
		panic("fake: " + err.Error())
	}
	at := now
	ws.Killed = &at
}

// KilledWorkspaces implements api.Service.
func (f *Fake) KilledWorkspaces(context.Context, model.Principal) ([]api.Workspace, error) {
	return f.list("KilledWorkspaces", true)
}

func (f *Fake) list(method string, killed bool) ([]api.Workspace, error) {
	defer f.mu.Unlock()
	err := f.enter(method)
	var out []api.Workspace
	for _, ws := range f.workspaces {
		if (ws.Killed != nil) == killed {
			out = append(out, ws.Workspace)
		}
	}
	return out, err
}

// RecoverWorkspace implements api.Service.
func (f *Fake) RecoverWorkspace(_ context.Context, _ model.Principal, ref string) (api.Workspace, error) {
	return f.with("RecoverWorkspace", ref, func(ws *workspace) error {
		if ws.Killed == nil {
			return errs.New(errs.Conflict, "workspace %s was not killed", ws.Name).WithHint("see: billet ws ls --killed")
		}
		ws.Killed = nil
		return nil
	})
}

// Workspace implements api.Service.
func (f *Fake) Workspace(_ context.Context, _ model.Principal, ref string) (api.Workspace, error) {
	return f.with("Workspace", ref, func(*workspace) error { return nil })
}

// UpdateWorkspace implements api.Service.
func (f *Fake) UpdateWorkspace(_ context.Context, who model.Principal, ref string, req api.UpdateWorkspaceRequest) (api.Workspace, error) {
	return f.with("UpdateWorkspace", ref, func(ws *workspace) error {
		if err := model.CheckName("workspace", req.Name); err != nil {
			return err
		}
		ws.Name = req.Name
		f.record(who.ID, "workspace.renamed", "workspace", string(ws.ID))
		return nil
	})
}

// StartWorkspace implements api.Service.
func (f *Fake) StartWorkspace(_ context.Context, who model.Principal, ref string, req api.StartWorkspaceRequest) (api.Workspace, error) {
	var lost *api.LostInstance
	v, err := f.with("StartWorkspace", ref, func(ws *workspace) error {
		if req.FromSnapshot && ws.Instance != nil && ws.State == api.WorkspaceRunning {
			if !req.Force {
				return errs.New(errs.Conflict, "workspace %s has instance %s, which is running", ws.Name, ws.Instance.ID).WithHint("save it first: billet ws stop %s", ws.Name)
			}
			lost = &api.LostInstance{ID: ws.Instance.ID, Node: ws.Instance.Node, Workspace: ws.Name, DurableAt: ws.DurableAt, UnsavedBytes: 12 << 20}
			f.start(ws)
		}
		if ws.State == api.WorkspaceStopped || ws.State == api.WorkspaceFailed {
			f.start(ws)
			f.record(who.ID, "workspace.started", "workspace", string(ws.ID))
		}
		return nil
	})
	v.GivenUp = lost
	return v, err
}

// StopWorkspace implements api.Service.
func (f *Fake) StopWorkspace(_ context.Context, who model.Principal, ref string, _ api.StopWorkspaceRequest) (api.Workspace, error) {
	return f.with("StopWorkspace", ref, func(ws *workspace) error {
		ws.Desired = model.DesiredStopped
		if ws.State != api.WorkspaceStopped && ws.State != api.WorkspaceFailed {
			ws.State, ws.steps = api.WorkspaceStopping, []api.WorkspaceState{api.WorkspaceStopped}
		}
		f.record(who.ID, "workspace.stopped", "workspace", string(ws.ID))
		return nil
	})
}

// ForkWorkspace implements api.Service.
func (f *Fake) ForkWorkspace(_ context.Context, who model.Principal, _ string, ref string, req api.ForkWorkspaceRequest) (api.Workspace, error) {
	var out api.Workspace
	_, err := f.with("ForkWorkspace", ref, func(ws *workspace) error {
		fork, err := f.make(who, api.CreateWorkspaceRequest{Name: req.Name, Stopped: req.Stopped})
		if err == nil {
			fork.Head = ws.Head
			out = fork.Workspace
		}
		return err
	})
	return out, err
}

// DeleteWorkspace implements api.Service.
func (f *Fake) DeleteWorkspace(_ context.Context, who model.Principal, ref string, force bool) error {
	defer f.mu.Unlock()
	if err := f.enter("DeleteWorkspace", ref, force); err != nil {
		return err
	}
	ws, err := f.find(ref)
	if err != nil {
		return err
	}
	if ws.UnsavedBytes > 0 && !force {
		return errs.New(errs.Conflict, "workspace %s has %d KiB written since its last durable state of %s", ws.Name, ws.UnsavedBytes>>10, ws.DurableAt.Format(time.RFC3339)).
			WithHint("save it first: billet ws stop %s; or lose it: billet ws rm %s --force", ws.Name, ws.Name)
	}
	f.record(who.ID, "workspace.deleted", "workspace", string(ws.ID))
	f.workspaces = slices.DeleteFunc(f.workspaces, func(w *workspace) bool { return w == ws })
	return nil
}

// Snapshots implements api.Service.
func (f *Fake) Snapshots(_ context.Context, _ model.Principal, ref string) ([]api.Snapshot, error) {
	ws, err := f.with("Snapshots", ref, func(*workspace) error { return nil })
	var out []api.Snapshot
	for seq := ws.HeadSeq; seq > 0; seq-- {
		out = append(out, api.Snapshot{
			ID: model.SnapshotID(ID(fmt.Sprintf("s%s%d", ws.Name, seq))), Root: Root(fmt.Sprintf("%s-%d", ws.Name, seq)), Parent: Root("base"),
			Epoch: ws.Epoch, Seq: seq, Consistency: "frozen", StoredBytes: 1 << 20, WrittenBytes: 3 << 20, Created: now,
		})
	}
	return out, err
}

// Connect implements api.Service: what is stopped is started.
func (f *Fake) Connect(ctx context.Context, who model.Principal, ref string, _ api.ConnectRequest, tell func(api.ConnectPhase) error) (api.Attachment, error) {
	if _, err := f.with("Connect", ref, func(*workspace) error { return nil }); err != nil {
		return api.Attachment{}, err
	}
	for i, name := range []api.ConnectPhaseName{api.PhaseAuthorised, api.PhaseAttached} {
		if err := tell(api.ConnectPhase{Name: name, ElapsedMilli: int64(i)}); err != nil {
			return api.Attachment{}, err
		}
	}
	return f.Attach(ctx, who, ref)
}

// Attach implements api.Service.
func (f *Fake) Attach(_ context.Context, _ model.Principal, ref string) (api.Attachment, error) {
	var a api.Attachment
	_, err := f.with("Attach", ref, func(ws *workspace) error {
		if ws.State != api.WorkspaceRunning {
			return errs.New(errs.Conflict, "workspace %s is %s", ws.Name, ws.State).WithHint("start it with: billet ws start %s", ws.Name)
		}
		var err error
		a, err = f.attachment("agent", api.Attachment{Instance: ws.Instance.ID, Epoch: ws.Epoch})
		return err
	})
	return a, err
}

// Watch implements api.Service; each state comes twice.
func (f *Fake) Watch(ctx context.Context, _ model.Principal, ref string, fn func(api.Workspace) (bool, error)) error {
	if _, err := f.with("Watch", ref, func(*workspace) error { return nil }); err != nil {
		return err
	}
	for {
		f.mu.Lock()
		ws, err := f.find(ref)
		next := f.changed
		var view api.Workspace
		if err == nil {
			view = ws.Workspace
		}
		f.mu.Unlock()
		if err != nil {
			return err
		}
		for range 2 {
			if more, err := fn(view); err != nil || !more {
				return err
			}
		}
		f.mu.Lock()
		moved := f.step(ws)
		f.mu.Unlock()
		if moved {
			continue
		}
		select {
		case <-next:
		case <-ctx.Done():
			return nil
		}
	}
}

// with calls fn on a workspace under the lock and returns it afterwards.
func (f *Fake) with(method, ref string, fn func(*workspace) error) (api.Workspace, error) {
	defer f.mu.Unlock()
	if err := f.enter(method, ref); err != nil {
		return api.Workspace{}, err
	}
	ws, err := f.find(ref)
	if err != nil {
		return api.Workspace{}, err
	}
	err = fn(ws)
	return ws.Workspace, err
}
