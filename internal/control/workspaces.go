package control

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/failpoint"
	"github.com/billethq/billet/internal/ledger"
	"github.com/billethq/billet/internal/model"
)

// CreateWorkspace implements api.Service.
func (c *Control) CreateWorkspace(ctx context.Context, who model.Principal, key string, req api.CreateWorkspaceRequest) (api.Workspace, error) {
	m := c.meta(who.ID)
	ws, err := c.newWorkspace(ctx, who, m, req)
	if err != nil {
		return api.Workspace{}, err
	}
	return c.create(ctx, m, ws, idempotency(who, key, req))
}

func idempotency(who model.Principal, key string, req any) ledger.Idempotency {
	body, err := json.Marshal(req)
	if err != nil {
		panic("control: request without JSON: " + err.Error()) // our own wire types only
	}
	return ledger.Idempotency{Key: key, Principal: who.ID, Fingerprint: sha256.Sum256(body)}
}

// newWorkspace checks a request as a whole and makes the record.
func (c *Control) newWorkspace(ctx context.Context, who model.Principal, m ledger.Meta, req api.CreateWorkspaceRequest) (model.Workspace, error) {
	ws := model.Workspace{
		ID: model.WorkspaceID(model.NewID()), Tenant: who.Tenant, Region: model.DefaultRegion, Owner: who.ID,
		Name: req.Name, Class: req.Class, Desired: desiredAtFirst(req.Stopped), Created: m.Now, Updated: m.Now, HeadAt: m.Now,
	}
	if ws.Name == "" {
		ws.Name = generateName()
	}
	if err := model.CheckName("workspace", ws.Name); err != nil {
		return ws, err
	}
	tier, err := c.tierFor(who, req)
	if err != nil {
		return ws, err
	}
	ws.Tier, ws.Shape, ws.Image = tier.Name, tier.Shape, req.Image
	if ws.Class == "" {
		ws.Class = who.Class
	}
	if len(tier.Classes) > 0 && !slices.Contains(tier.Classes, ws.Class) {
		return ws, errs.New(errs.Denied, "tier %s is not for class %s", tier.Name, ws.Class).WithHint("choose another tier; see: billet tier ls")
	}
	if ws.Image == "" {
		ws.Image = tier.Image
	}
	if req.Disk != 0 {
		ws.Shape.Disk = req.Disk
	}
	return c.onImage(ctx, ws)
}

func desiredAtFirst(stopped bool) model.Desired {
	if stopped {
		return model.DesiredStopped
	}
	return model.DesiredRunning
}

func (c *Control) tierFor(who model.Principal, req api.CreateWorkspaceRequest) (model.Tier, error) {
	if req.Class != "" && req.Class != model.ClassHuman && req.Class != model.ClassAgent && req.Class != model.ClassCI {
		return model.Tier{}, errs.New(errs.Invalid, "class %q is not one of human, agent, ci", req.Class).WithHint("leave --class away to use your own (%s)", who.Class)
	}
	if req.Tier == "" {
		return c.cfg.Tiers[0], nil
	}
	t, ok := c.tier(req.Tier)
	if !ok {
		return t, errs.New(errs.NotFound, "tier %q is not configured", req.Tier).WithHint("see: billet tier ls")
	}
	return t, nil
}

// onImage puts the workspace on the newest generation of its image.
func (c *Control) onImage(ctx context.Context, ws model.Workspace) (model.Workspace, error) {
	rec, _, err := c.cfg.Ledger.Image(ctx, ws.Tenant, ws.Image)
	if errs.Is(err, errs.NotFound) {
		return ws, errs.New(errs.NotFound, "image %q is not there", ws.Image).WithHint("see: billet image ls; make one with: billet image import, billet image build debian")
	}
	if err != nil {
		return ws, err
	}
	ws.Image, ws.Base, ws.Head = rec.Image.Name, rec.Head.Root, rec.Head.Root
	switch {
	case ws.Shape.Disk <= 0:
		return ws, errs.New(errs.Invalid, "a disk of %s is no disk", model.Size(ws.Shape.Disk)).WithHint("leave --disk away to use the tier's")
	case ws.Shape.Disk < rec.Head.DiskBytes:
		return ws, errs.New(errs.Invalid, "a disk of %s is smaller than the image's %s", model.Size(ws.Shape.Disk), model.Size(rec.Head.DiskBytes)).
			WithHint("choose a disk of at least %s, or import the image with a smaller --disk", model.Size(rec.Head.DiskBytes))
	}
	return ws, nil
}

// create records the workspace and, unless it is to stay stopped, reserves its
// first instance. A refusal comes before anything is recorded; should the
// fleet fill up in between, the record is taken back.
func (c *Control) create(ctx context.Context, m ledger.Meta, ws model.Workspace, idem ledger.Idempotency) (api.Workspace, error) {
	if earlier, found, err := c.cfg.Ledger.Created(ctx, ws.Tenant, idem); err != nil {
		return api.Workspace{}, err
	} else if found {
		return c.show(ctx, earlier)
	}
	if ws.Desired == model.DesiredRunning {
		if err := c.admit(ctx, ws); err != nil {
			return api.Workspace{}, err
		}
	}
	got, created, err := c.cfg.Ledger.CreateWorkspace(ctx, m, ws, idem)
	if err != nil {
		return api.Workspace{}, err
	}
	if !created {
		return c.show(ctx, got)
	}
	failpoint.Reach(failpoint.CreateCommitted)
	if got.Desired == model.DesiredRunning {
		if _, err := c.place(ctx, m, got); err != nil && !errs.Is(err, errs.Conflict) {
			if gone, err := c.takeBack(ctx, m, got, err); gone || err != nil {
				return api.Workspace{}, err
			}
		}
	}
	c.changed.broadcast()
	return c.show(ctx, got)
}

// takeBack undoes the creation of a workspace whose first placement was refused,
// so that the caller's refusal is the whole truth. gone is false when it has an
// instance after all: somebody else was quicker to place it.
func (c *Control) takeBack(ctx context.Context, m ledger.Meta, ws model.Workspace, cause error) (gone bool, err error) {
	if ctx.Err() != nil {
		return false, cause // no refusal: the caller has left, and may repeat its key
	}
	err = c.cfg.Ledger.TakeBack(ctx, m, ws.Tenant, ws.ID)
	switch {
	case errs.Is(err, errs.Conflict):
		return false, nil
	case err != nil && !errs.Is(err, errs.NotFound):
		return false, fmt.Errorf("%w (and take back workspace %s: %w)", cause, ws.Name, err)
	}
	return true, cause
}

// find returns a workspace of the caller's tenant.
func (c *Control) find(ctx context.Context, who model.Principal, ref string) (model.Workspace, error) {
	ws, err := c.cfg.Ledger.Workspace(ctx, who.Tenant, ref)
	if errs.Is(err, errs.NotFound) {
		return ws, errs.New(errs.NotFound, "workspace %q is not there", ref).WithHint("see: billet ws ls")
	}
	return ws, err
}

// Workspaces implements api.Service.
func (c *Control) Workspaces(ctx context.Context, who model.Principal) ([]api.Workspace, error) {
	return c.workspaces(ctx, who, false)
}

// KilledWorkspaces implements api.Service.
func (c *Control) KilledWorkspaces(ctx context.Context, who model.Principal) ([]api.Workspace, error) {
	return c.workspaces(ctx, who, true)
}

func (c *Control) workspaces(ctx context.Context, who model.Principal, ofKilled bool) ([]api.Workspace, error) {
	all, err := c.cfg.Ledger.Workspaces(ctx, who.Tenant)
	if err != nil {
		return nil, err
	}
	killed, err := c.killed(ctx)
	if err != nil {
		return nil, err
	}
	out := []api.Workspace{}
	for _, ws := range all {
		at, ended := killed[ws.ID]
		if ended != ofKilled {
			continue
		}
		v, err := c.show(ctx, ws)
		if err != nil {
			return nil, err
		}
		if ended {
			v.Killed = &at
		}
		out = append(out, v)
	}
	return out, nil
}

// Workspace implements api.Service.
func (c *Control) Workspace(ctx context.Context, who model.Principal, ref string) (api.Workspace, error) {
	ws, err := c.find(ctx, who, ref)
	if err != nil {
		return api.Workspace{}, err
	}
	return c.show(ctx, ws)
}

// UpdateWorkspace implements api.Service.
func (c *Control) UpdateWorkspace(ctx context.Context, who model.Principal, ref string, req api.UpdateWorkspaceRequest) (api.Workspace, error) {
	if err := model.CheckName("workspace", req.Name); err != nil {
		return api.Workspace{}, err
	}
	ws, err := c.find(ctx, who, ref)
	if err != nil {
		return api.Workspace{}, err
	}
	if err := c.cfg.Ledger.RenameWorkspace(ctx, c.meta(who.ID), ws.Tenant, ws.ID, req.Name); err != nil {
		return api.Workspace{}, err
	}
	c.changed.broadcast()
	return c.Workspace(ctx, who, string(ws.ID))
}

// StopWorkspace implements api.Service.
func (c *Control) StopWorkspace(ctx context.Context, who model.Principal, ref string, req api.StopWorkspaceRequest) (api.Workspace, error) {
	ws, err := c.find(ctx, who, ref)
	if err != nil {
		return api.Workspace{}, err
	}
	desired := model.DesiredHibernated
	if req.Cold || c.keep(ws) <= 0 {
		desired = model.DesiredStopped
	}
	ws, err = c.cfg.Ledger.SetDesired(ctx, c.meta(who.ID), ws.Tenant, ws.ID, desired)
	if err != nil {
		return api.Workspace{}, err
	}
	failpoint.Reach(failpoint.StopRecorded)
	if _, err := c.step(ctx, ws); err != nil {
		return api.Workspace{}, err
	}
	c.changed.broadcast()
	return c.show(ctx, ws)
}

// DeleteWorkspace implements api.Service.
func (c *Control) DeleteWorkspace(ctx context.Context, who model.Principal, ref string, force bool) error {
	ws, err := c.find(ctx, who, ref)
	if err != nil {
		return err
	}
	live, err := c.live(ctx, ws)
	if err != nil {
		return err
	}
	if !force {
		if err := c.refuseLoss(ws, live); err != nil {
			return err
		}
	}
	ws, err = c.cfg.Ledger.SetDesired(ctx, c.meta(who.ID), ws.Tenant, ws.ID, model.DesiredDeleted)
	if err != nil {
		return err
	}
	_, err = c.step(ctx, ws)
	c.changed.broadcast()
	return err
}

// refuseLoss names what a deletion would lose beyond the durable snapshots
// that the person knows of. A live instance always has something to lose: what
// it wrote a moment ago has not been counted yet.
func (c *Control) refuseLoss(ws model.Workspace, live *model.Instance) error {
	if live == nil {
		return nil
	}
	hint := fmt.Sprintf("save it first: billet ws stop %s; or lose it: billet ws rm %s --force", ws.Name, ws.Name)
	v, _ := c.seen(*live)
	since := ws.HeadAt.Format(time.RFC3339)
	if live.State == model.StateUnproven {
		return errs.New(errs.Conflict, "node %s is silent: what workspace %s wrote since %s may still be there", c.nodeName(live.Node), ws.Name, since).WithHint("%s", hint)
	}
	return errs.New(errs.Conflict, "workspace %s is %s: what it wrote since %s (at least %s) would be lost", ws.Name, live.State, since, model.Size(v.unsaved)).WithHint("%s", hint)
}

// Snapshots implements api.Service.
func (c *Control) Snapshots(ctx context.Context, who model.Principal, ref string) ([]api.Snapshot, error) {
	ws, err := c.find(ctx, who, ref)
	if err != nil {
		return nil, err
	}
	snaps, err := c.cfg.Ledger.Snapshots(ctx, ws.Tenant, ws.ID)
	if err != nil {
		return nil, err
	}
	out := make([]api.Snapshot, 0, len(snaps))
	for _, s := range snaps {
		out = append(out, api.Snapshot{
			ID: s.ID, Root: s.Root, Parent: s.Parent, Epoch: s.Epoch, Seq: s.Seq, Consistency: s.Consistency,
			StoredBytes: s.StoredBytes, WrittenBytes: s.WrittenBytes, Created: s.Created, Memory: s.Memory.Root, MemoryBytes: s.Memory.Bytes,
		})
	}
	return out, nil
}

// Watch implements api.Service.
func (c *Control) Watch(ctx context.Context, who model.Principal, ref string, fn func(api.Workspace) (bool, error)) error {
	ws, err := c.find(ctx, who, ref)
	if err != nil {
		return err
	}
	var last [32]byte
	for {
		next := c.changed.next()
		v, err := c.Workspace(ctx, who, string(ws.ID))
		if err != nil {
			return err
		}
		stable := v
		stable.DurableAge = 0
		if h := hashOf(stable); h != last {
			last = h
			if more, err := fn(v); err != nil || !more {
				return err
			}
		}
		select {
		case <-next:
		case <-ctx.Done():
			return nil
		}
	}
}
