package sqlstore

import (
	"context"
	"fmt"

	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/ledger"
	"github.com/billethq/billet/internal/model"
)

const (
	holdColumns = "workspace, tenant, region, principal, reason, created, expires"
	selectHold  = "SELECT " + holdColumns + " FROM holds WHERE workspace = ? AND tenant = ? AND expires > ?"
)

func scanHold(r row) (h model.Hold, err error) {
	err = r.Scan(&h.Workspace, &h.Tenant, &h.Region, &h.Principal, &h.Reason, at{&h.Created}, at{&h.Expires})
	return h, err
}

// PutHold implements ledger.Ledger.
func (s *Store) PutHold(ctx context.Context, m ledger.Meta, hold model.Hold) (got model.Hold, err error) {
	err = s.write(ctx, m, fmt.Sprintf("hold workspace %s", hold.Workspace), func(t *tx) error {
		w, err := t.workspace(hold.Tenant, hold.Workspace)
		if err != nil {
			return err
		}
		if w.Desired == model.DesiredDeleted {
			return errs.New(errs.Conflict, "workspace %s is being deleted", w.Name)
		}
		if !stamp(hold.Expires).After(t.meta.Now) {
			return errs.New(errs.Invalid, "a hold that has expired already")
		}
		got = hold
		got.Tenant, got.Region, got.Principal = w.Tenant, w.Region, t.meta.Actor
		got.Reason, got.Created, got.Expires = cut(hold.Reason, model.MaxHoldReason), t.meta.Now, stamp(hold.Expires)
		if err := t.exec("INSERT INTO holds ("+holdColumns+") VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (workspace) DO UPDATE SET principal = excluded.principal, reason = excluded.reason, created = excluded.created, expires = excluded.expires",
			got.Workspace, got.Tenant, got.Region, got.Principal, got.Reason, got.Created, got.Expires); err != nil {
			return err
		}
		return t.emit(ledger.EventHoldPlaced, aboutWorkspace(w), map[string]string{"until": when(got.Expires), "reason": got.Reason})
	})
	if err != nil {
		return model.Hold{}, err
	}
	return got, nil
}

// DeleteHold implements ledger.Ledger.
func (s *Store) DeleteHold(ctx context.Context, m ledger.Meta, tenant model.TenantID, id model.WorkspaceID) error {
	return s.write(ctx, m, fmt.Sprintf("release the hold of workspace %s", id), func(t *tx) error {
		w, err := t.workspace(tenant, id)
		if err != nil {
			return err
		}
		n, err := t.execCount("DELETE FROM holds WHERE workspace = ? AND expires > ?", id, t.meta.Now)
		if err != nil {
			return err
		}
		if n == 0 {
			return errs.New(errs.NotFound, "workspace %s is not held", w.Name)
		}
		return t.emit(ledger.EventHoldReleased, aboutWorkspace(w), map[string]string{})
	})
}

// ExpireHolds implements ledger.Ledger. The event of the hold has said when.
func (s *Store) ExpireHolds(ctx context.Context, m ledger.Meta) error {
	return s.write(ctx, m, "expire holds", func(t *tx) error {
		return t.exec("DELETE FROM holds WHERE expires <= ?", t.meta.Now)
	})
}
