package control

import (
	"context"

	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/ledger"
	"github.com/billethq/billet/internal/model"
)

// maxKeptName bounds the name of a kept snapshot, which is the client's own.
const maxKeptName = 128

// KeepSnapshot saves a workspace that is lent and keeps that state, also when
// the workspace is gone.
func (c *Control) KeepSnapshot(ctx context.Context, who model.Principal, ref, name string) (model.KeptSnapshot, error) {
	if len(name) > maxKeptName {
		return model.KeptSnapshot{}, errs.New(errs.Invalid, "a snapshot name of %d bytes; at most %d are allowed", len(name), maxKeptName)
	}
	o, err := c.OnTerms(ctx, who, ref)
	if err != nil {
		return model.KeptSnapshot{}, err
	}
	ws, err := c.cfg.Ledger.Workspace(ctx, who.Tenant, string(o.Workspace.ID))
	if err != nil {
		return model.KeptSnapshot{}, err
	}
	if ws, err = c.saved(ctx, ws); err != nil {
		return model.KeptSnapshot{}, err
	}
	m := c.meta(who.ID)
	k := model.KeptSnapshot{
		ID: model.SnapshotID(model.NewID()), Tenant: ws.Tenant, Region: ws.Region, Name: name, Workspace: ws.ID, Class: ws.Class,
		Tier: ws.Tier, Shape: ws.Shape, Image: ws.Image, Root: ws.Head, Memory: ws.Memory,
		Terms: model.Terms{Template: o.Terms.Template, Envs: o.Terms.Envs}, Created: m.Now,
	}
	return k, c.cfg.Ledger.KeepSnapshot(ctx, m, k)
}

// KeptSnapshots lists what the caller's tenant has kept, oldest first.
func (c *Control) KeptSnapshots(ctx context.Context, who model.Principal) ([]model.KeptSnapshot, error) {
	all, err := c.cfg.Ledger.KeptSnapshots(ctx, who.Tenant)
	if err != nil {
		return nil, err
	}
	out := []model.KeptSnapshot{}
	for _, k := range all {
		if k.Tenant == who.Tenant {
			out = append(out, k)
		}
	}
	return out, nil
}

// ForgetSnapshot lets a kept snapshot go. What has begun from it goes on.
func (c *Control) ForgetSnapshot(ctx context.Context, who model.Principal, id model.SnapshotID) error {
	k, err := c.kept(ctx, who, id)
	if err != nil {
		return err
	}
	return c.cfg.Ledger.ForgetSnapshot(ctx, c.meta(who.ID), who.Tenant, k.ID)
}

// kept finds a kept snapshot by id or name.
func (c *Control) kept(ctx context.Context, who model.Principal, ref model.SnapshotID) (model.KeptSnapshot, error) {
	all, err := c.KeptSnapshots(ctx, who)
	if err != nil {
		return model.KeptSnapshot{}, err
	}
	for _, k := range all {
		if k.ID == ref || k.Name != "" && k.Name == string(ref) {
			return k, nil
		}
	}
	return model.KeptSnapshot{}, errs.New(errs.NotFound, "snapshot %q is not there", string(ref))
}

// beginFrom makes the record of a workspace on a kept snapshot, with its memory
// where that is still there.
func beginFrom(k model.KeptSnapshot, who model.Principal, m ledger.Meta) model.Workspace {
	ws := model.Workspace{
		ID: model.WorkspaceID(model.NewID()), Tenant: k.Tenant, Region: k.Region, Owner: who.ID, Class: model.ClassAgent, Tier: k.Tier,
		Shape: k.Shape, Image: k.Image, Base: k.Root, Head: k.Root, HeadAt: k.Created, Desired: model.DesiredRunning,
		Created: m.Now, Updated: m.Now,
	}
	if k.Memory.Until.After(m.Now) {
		ws.Memory = k.Memory
	}
	return ws
}
