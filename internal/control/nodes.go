package control

import (
	"context"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/model"
)

// Nodes implements api.Service.
func (c *Control) Nodes(ctx context.Context, _ model.Principal) ([]api.Node, error) {
	cs, err := c.candidates(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]api.Node, 0, len(cs))
	for _, n := range cs {
		out = append(out, api.Node{
			ID: n.Node.ID, Name: n.Node.Name, Region: n.Node.Region, Driver: n.Node.Driver, Version: n.Node.Version,
			BootID: n.Node.BootID, Capacity: n.Node.Capacity, Used: n.Used, Instances: n.Live, LastSeen: n.Node.LastSeen, Silent: n.Silent,
		})
	}
	return out, nil
}
