package control

import (
	"context"
	"maps"
	"slices"

	"github.com/billethq/billet/internal/ledger"
	"github.com/billethq/billet/internal/model"
)

// memories are the keys of what is kept in memory beside the records, and has to
// leave with them. What nodes say leaves with their reports.
type memories struct {
	waiting []model.WorkspaceID
	flushes []model.InstanceID
}

func (c *Control) remembered() memories {
	c.mu.Lock()
	defer c.mu.Unlock()
	return memories{waiting: slices.Collect(maps.Keys(c.waiting)), flushes: slices.Collect(maps.Keys(c.flushes))}
}

// prune forgets what has no record to belong to any more: why a workspace waits
// that nobody wants running, and flushes of an instance that is not live.
func (c *Control) prune(ctx context.Context, known memories, all []model.Workspace) error {
	wanted := map[model.WorkspaceID]bool{}
	for _, ws := range all {
		wanted[ws.ID] = ws.Desired == model.DesiredRunning
	}
	live := map[model.InstanceID]bool{}
	if len(known.flushes) > 0 {
		ins, err := c.cfg.Ledger.Instances(ctx, ledger.InstanceFilter{Tenant: ledger.AllTenants, Live: true})
		if err != nil {
			return err
		}
		for _, in := range ins {
			live[in.ID] = true
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range known.waiting {
		if !wanted[id] {
			delete(c.waiting, id)
		}
	}
	for _, id := range known.flushes {
		if !live[id] {
			delete(c.flushes, id)
		}
	}
	return nil
}
