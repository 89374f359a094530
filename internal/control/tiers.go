package control

import (
	"context"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/model"
)

// Tiers implements api.Service.
func (c *Control) Tiers(ctx context.Context, _ model.Principal) ([]api.Tier, error) {
	use, err := c.cfg.Ledger.TierUse(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]api.Tier, 0, len(c.cfg.Tiers))
	for _, t := range c.cfg.Tiers {
		out = append(out, api.Tier{Name: t.Name, Shape: t.Shape, Image: t.Image, Drivers: t.Drivers, Classes: t.Classes, Max: t.Max, Live: use[t.Name]})
	}
	return out, nil
}
