package sqlstore

import (
	"context"

	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/ledger"
	"github.com/billethq/billet/internal/model"
)

const selectKept = "SELECT id, tenant, region, name, workspace, root, detail, created FROM kept_snapshots"

func scanKept(r row) (k model.KeptSnapshot, err error) {
	var detail model.KeptSnapshot
	if err = r.Scan(&k.ID, &k.Tenant, &k.Region, &k.Name, &k.Workspace, &k.Root, fromJSON{&detail}, at{&k.Created}); err != nil {
		return k, err
	}
	k.Class, k.Tier, k.Shape, k.Image, k.Memory, k.Terms = detail.Class, detail.Tier, detail.Shape, detail.Image, detail.Memory, detail.Terms
	return k, nil
}

func aboutKept(k model.KeptSnapshot) about {
	return about{k.Tenant, k.Region, string(model.SubjectWorkspace), string(k.Workspace)}
}

// KeepSnapshot implements ledger.Ledger.
func (s *Store) KeepSnapshot(ctx context.Context, m ledger.Meta, k model.KeptSnapshot) error {
	return s.write(ctx, m, "keep snapshot "+string(k.ID), func(t *tx) error {
		detail, err := toJSON(k)
		if err != nil {
			return err
		}
		if k.Name != "" {
			if _, taken, err := one(t, scalar[string], "SELECT id FROM kept_snapshots WHERE name = ?", k.Name); err != nil {
				return err
			} else if taken {
				return errs.New(errs.Conflict, "the name %q is taken", k.Name).WithHint("choose another name, or delete that snapshot first")
			}
		}
		if err := t.exec("INSERT INTO kept_snapshots (id, tenant, region, name, workspace, root, detail, created) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
			k.ID, k.Tenant, k.Region, k.Name, k.Workspace, k.Root, detail, t.meta.Now); err != nil {
			return err
		}
		return t.emit(ledger.EventSnapshotKept, aboutKept(k), map[string]string{"snapshot": string(k.ID), "name": k.Name, "root": string(k.Root)})
	})
}

// KeptSnapshots implements ledger.Ledger.
func (s *Store) KeptSnapshots(ctx context.Context, tenant model.TenantID) (kept []model.KeptSnapshot, err error) {
	where, args := ofTenant("tenant", tenant)
	err = s.read(ctx, "list kept snapshots", func(t *tx) error {
		kept, err = all(t, scanKept, selectKept+" WHERE "+where+" ORDER BY created, id", args...)
		return err
	})
	return kept, err
}

// ForgetSnapshot implements ledger.Ledger.
func (s *Store) ForgetSnapshot(ctx context.Context, m ledger.Meta, tenant model.TenantID, id model.SnapshotID) error {
	return s.write(ctx, m, "forget snapshot "+string(id), func(t *tx) error {
		k, found, err := one(t, scanKept, selectKept+" WHERE id = ? AND tenant = ?", id, tenant)
		if err != nil {
			return err
		}
		if !found {
			return errs.New(errs.NotFound, "no snapshot %s is kept", id)
		}
		if err := t.exec("DELETE FROM kept_snapshots WHERE id = ?", id); err != nil {
			return err
		}
		return t.emit(ledger.EventSnapshotForgotten, aboutKept(k), map[string]string{"snapshot": string(id)})
	})
}
