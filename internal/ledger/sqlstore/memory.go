package sqlstore

import (
	"context"
	"time"

	"github.com/billethq/billet/internal/ledger"
	"github.com/billethq/billet/internal/model"
)

// dropMemory empties the columns of a memory image.
const dropMemory = " SET memory_root = '', memory_machine = '', memory_bytes = 0, memory_until = ?"

// ExpireMemory implements ledger.Ledger. The disk of a snapshot, and its id, are
// what they were.
func (s *Store) ExpireMemory(ctx context.Context, m ledger.Meta) (n int, err error) {
	err = s.write(ctx, m, "expire memory images", func(t *tx) error {
		const lapsed = " WHERE memory_root <> '' AND memory_until < ?"
		stale, err := all(t, scanWorkspace, selectWorkspaces+" WHERE w.memory_root <> '' AND w.memory_until < ? ORDER BY w.id", t.meta.Now)
		if err != nil {
			return err
		}
		for _, w := range stale {
			if err := t.emit(ledger.EventMemoryExpired, aboutWorkspace(w), map[string]string{"memory": string(w.Memory.Root), "head": string(w.Head)}); err != nil {
				return err
			}
		}
		if err := t.exec("UPDATE workspaces"+dropMemory+lapsed, time.Time{}, t.meta.Now); err != nil {
			return err
		}
		dropped, err := t.execCount("UPDATE snapshots"+dropMemory+lapsed, time.Time{}, t.meta.Now)
		n = int(dropped)
		return err
	})
	if err != nil {
		return 0, err
	}
	return n, nil
}

// forgetMemory empties what a workspace's head has; its snapshot keeps it.
func (t *tx) forgetMemory(w model.Workspace) error {
	if err := t.exec("UPDATE workspaces"+dropMemory+" WHERE id = ?", time.Time{}, w.ID); err != nil {
		return err
	}
	return t.emit(ledger.EventMemoryDropped, aboutWorkspace(w), map[string]string{"memory": string(w.Memory.Root)})
}

// DropMemory implements ledger.Ledger.
func (s *Store) DropMemory(ctx context.Context, m ledger.Meta, tenant model.TenantID, id model.WorkspaceID, root model.Root) error {
	return s.write(ctx, m, "drop memory of workspace "+string(id), func(t *tx) error {
		w, err := t.workspace(tenant, id)
		if err != nil {
			return err
		}
		if w.Memory.Root != root || root == "" {
			return nil // another one is there by now
		}
		if err := t.exec("UPDATE workspaces"+dropMemory+", updated = ? WHERE id = ?", time.Time{}, t.meta.Now, id); err != nil {
			return err
		}
		if err := t.exec("UPDATE snapshots"+dropMemory+" WHERE workspace = ? AND memory_root = ?", time.Time{}, id, root); err != nil {
			return err
		}
		return t.emit(ledger.EventMemoryDropped, aboutWorkspace(w), map[string]string{"memory": string(root)})
	})
}
