package sqlstore

import (
	"context"
	"fmt"
	"time"

	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/ledger"
	"github.com/billethq/billet/internal/model"
)

// Created implements ledger.Ledger.
func (s *Store) Created(ctx context.Context, tenant model.TenantID, idem ledger.Idempotency) (w model.Workspace, found bool, err error) {
	err = s.read(ctx, "find what an idempotency key made", func(t *tx) error {
		w, found, err = t.created(tenant, idem)
		return err
	})
	return w, found, err
}

// created returns the workspace that idem made before.
func (t *tx) created(tenant model.TenantID, idem ledger.Idempotency) (w model.Workspace, repeated bool, err error) {
	if idem.Key == "" {
		return w, false, nil
	}
	type use struct {
		fingerprint [32]byte
		workspace   model.WorkspaceID
	}
	u, found, err := one(t, func(r row) (u use, err error) {
		err = r.Scan(digest{&u.fingerprint}, &u.workspace)
		return u, err
	}, "SELECT fingerprint, workspace FROM idempotency WHERE principal = ? AND request_key = ? AND tenant = ?", idem.Principal, idem.Key, tenant)
	if err != nil || !found {
		return w, false, err
	}
	if u.fingerprint != idem.Fingerprint {
		return w, false, errs.New(errs.Conflict, "the idempotency key was used for another request").WithHint("use a new key for a new request")
	}
	w, found, err = one(t, scanWorkspace, selectWorkspaces+whereWorkspaceID, u.workspace, tenant)
	if err == nil && !found {
		err = errs.New(errs.Conflict, "the workspace made with this idempotency key is gone").WithHint("use a new key to make another one")
	}
	return w, err == nil, err
}

// noteCreation remembers what idem made.
func (t *tx) noteCreation(idem ledger.Idempotency, w model.Workspace) error {
	if idem.Key == "" {
		return nil
	}
	return t.exec("INSERT INTO idempotency (principal, request_key, tenant, region, fingerprint, workspace, used) VALUES (?, ?, ?, ?, ?, ?, ?)",
		idem.Principal, idem.Key, w.Tenant, w.Region, idem.Fingerprint, w.ID, t.meta.Now)
}

// TakeBack implements ledger.Ledger. The key goes with the workspace: left
// behind, it would answer that what it made is gone.
func (s *Store) TakeBack(ctx context.Context, m ledger.Meta, tenant model.TenantID, id model.WorkspaceID) error {
	return s.write(ctx, m, fmt.Sprintf("take back workspace %s", id), func(t *tx) error {
		w, err := t.workspace(tenant, id)
		if err != nil {
			return err
		}
		if w.Epoch > 0 {
			return errs.New(errs.Conflict, "workspace %s has had an instance", w.Name)
		}
		if err := t.exec("DELETE FROM idempotency WHERE workspace = ?", id); err != nil {
			return err
		}
		return t.removeWorkspace(w)
	})
}

// ExpireIdempotency implements ledger.Ledger.
func (s *Store) ExpireIdempotency(ctx context.Context, before time.Time) error {
	return s.write(ctx, ledger.Meta{}, fmt.Sprintf("expire idempotency keys before %s", before), func(t *tx) error {
		return t.exec("DELETE FROM idempotency WHERE used < ?", before)
	})
}
