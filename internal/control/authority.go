package control

import (
	"context"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/ledger"
	"github.com/billethq/billet/internal/model"
)

// Who may make, replace and remove which image. An admin may everything. What
// others begin on is not a user's to change: neither an image that a tier
// names, nor one that somebody else made. Bootstrapping runs packages' scripts
// as root on the node, and is an admin's. The ledger holds the rule about
// owners once more, as it commits.

// baseImage is the image that `billet up` makes, an admin's in every
// configuration.
const baseImage = "base"

// imageOwner is who will own what a principal makes: a user itself; an admin's
// images are every admin's.
func imageOwner(who model.Principal) model.PrincipalID {
	if who.Role == model.RoleAdmin {
		return ""
	}
	return who.ID
}

func (c *Control) mayMake(ctx context.Context, who model.Principal, req api.AttachImagesRequest) error {
	if err := model.CheckName("image", req.Name); err != nil {
		return err
	}
	switch req.Kind {
	case api.ImageStream, api.ImageOCI, api.ImageDebian:
	default:
		return errs.New(errs.Invalid, "kind %q is not one of stream, oci, debian", string(req.Kind))
	}
	if who.Role == model.RoleAdmin {
		return nil
	}
	if req.Kind == api.ImageDebian {
		return errs.New(errs.Denied, "%s is a %s and may not build images: packages' scripts run as root on the node", who.Name, who.Role).
			WithHint("import one instead, or ask an admin")
	}
	if c.begunWith(req.Name) {
		return tierImage(who, req.Name)
	}
	rec, _, err := c.cfg.Ledger.Image(ctx, who.Tenant, req.Name)
	if errs.Is(err, errs.NotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	return c.mayReplace(who, rec)
}

// mayReplace refuses to give an image another generation, or to remove it.
func (c *Control) mayReplace(who model.Principal, rec ledger.ImageRecord) error {
	switch {
	case who.Role == model.RoleAdmin:
		return nil
	case c.begunWith(rec.Image.Name):
		return tierImage(who, rec.Image.Name)
	case rec.Image.Owner != who.ID:
		return errs.New(errs.Denied, "image %s was made by another principal", rec.Image.Name).WithHint("choose another name, or ask an admin")
	}
	return nil
}

func tierImage(who model.Principal, name string) error {
	return errs.New(errs.Denied, "image %s is what workspaces of a tier begin with; %s is a %s and may not change it", name, who.Name, who.Role).
		WithHint("choose another name, or ask an admin")
}

// begunWith reports whether somebody may get the image without naming it.
func (c *Control) begunWith(name string) bool {
	for _, t := range c.cfg.Tiers {
		if t.Image == name {
			return true
		}
	}
	return name == baseImage
}
