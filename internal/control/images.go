package control

import (
	"context"
	"slices"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/fleet"
	"github.com/billethq/billet/internal/model"
	"github.com/billethq/billet/internal/road"
)

// AttachImages implements api.Service.
func (c *Control) AttachImages(ctx context.Context, who model.Principal, req api.AttachImagesRequest) (api.Attachment, error) {
	if err := c.mayMake(ctx, who, req); err != nil {
		return api.Attachment{}, err
	}
	t := road.Ticket{Target: road.TargetImages, Tenant: who.Tenant, Image: req.Name, Kind: req.Kind, Owner: imageOwner(who)}
	err := c.awaitNodes(ctx, func() error {
		cs, err := c.candidates(ctx)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(cs, func(n fleet.Candidate) bool { return !n.Silent })
		if i < 0 {
			return errs.New(errs.Unavailable, "no node answers that could build an image").WithHint("see: billet node ls")
		}
		t.Node = cs[i].Node.ID
		return nil
	})
	if err != nil {
		return api.Attachment{}, err
	}
	return c.attachment(who, t)
}

// Images implements api.Service.
func (c *Control) Images(ctx context.Context, who model.Principal) ([]api.Image, error) {
	recs, err := c.cfg.Ledger.Images(ctx, who.Tenant)
	if err != nil {
		return nil, err
	}
	out := make([]api.Image, 0, len(recs))
	for _, r := range recs {
		out = append(out, imageView(r))
	}
	return out, nil
}

// Image implements api.Service.
func (c *Control) Image(ctx context.Context, who model.Principal, ref string) (api.Image, error) {
	rec, gens, err := c.cfg.Ledger.Image(ctx, who.Tenant, ref)
	if errs.Is(err, errs.NotFound) {
		return api.Image{}, errs.New(errs.NotFound, "image %q is not there", ref).WithHint("see: billet image ls")
	}
	if err != nil {
		return api.Image{}, err
	}
	v := imageView(rec)
	for _, g := range gens {
		v.Generations = append(v.Generations, generationView(g))
	}
	return v, nil
}

// DeleteImage implements api.Service.
func (c *Control) DeleteImage(ctx context.Context, who model.Principal, ref string) error {
	rec, _, err := c.cfg.Ledger.Image(ctx, who.Tenant, ref)
	if err == nil {
		if err := c.mayReplace(who, rec); err != nil {
			return err
		}
		// By its id: another image may take the name meanwhile.
		err = c.cfg.Ledger.DeleteImage(ctx, c.meta(who.ID), who.Tenant, string(rec.Image.ID))
	}
	if errs.Is(err, errs.NotFound) {
		return errs.New(errs.NotFound, "image %q is not there", ref).WithHint("see: billet image ls")
	}
	c.changed.broadcast()
	return err
}
