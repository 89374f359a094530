package sqlstore

import (
	"context"
	"fmt"
	"strconv"

	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/ledger"
	"github.com/billethq/billet/internal/model"
)

const (
	shareColumns = "workspace, port, tenant, region, principal, created, expires"
	selectShares = "SELECT " + shareColumns + " FROM shares WHERE workspace = ? AND tenant = ? AND expires > ?"
	selectShared = "SELECT " + shareColumns + " FROM shares WHERE workspace = (SELECT id FROM workspaces WHERE name = ?) AND port = ? AND expires > ?"
)

func scanShare(r row) (s model.Share, err error) {
	err = r.Scan(&s.Workspace, &s.Port, &s.Tenant, &s.Region, &s.Principal, at{&s.Created}, at{&s.Expires})
	return s, err
}

// PutShare implements ledger.Ledger.
func (s *Store) PutShare(ctx context.Context, m ledger.Meta, share model.Share) (got model.Share, err error) {
	err = s.write(ctx, m, fmt.Sprintf("share port %d of workspace %s", share.Port, share.Workspace), func(t *tx) error {
		w, err := t.workspace(share.Tenant, share.Workspace)
		if err != nil {
			return err
		}
		if w.Desired == model.DesiredDeleted {
			return errs.New(errs.Conflict, "workspace %s is being deleted", w.Name)
		}
		if !stamp(share.Expires).After(t.meta.Now) {
			return errs.New(errs.Invalid, "a share that has expired already")
		}
		if err := t.roomForShare(share); err != nil {
			return err
		}
		got = share
		got.Tenant, got.Region, got.Principal = w.Tenant, w.Region, t.meta.Actor
		got.Created, got.Expires = t.meta.Now, stamp(share.Expires)
		if err := t.exec("INSERT INTO shares ("+shareColumns+") VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (workspace, port) DO UPDATE SET principal = excluded.principal, created = excluded.created, expires = excluded.expires",
			got.Workspace, got.Port, got.Tenant, got.Region, got.Principal, got.Created, got.Expires); err != nil {
			return err
		}
		return t.emit(ledger.EventPortShared, aboutWorkspace(w), map[string]string{
			"port": strconv.Itoa(got.Port), "expires": got.Expires.Format(timeFormat),
		})
	})
	if err != nil {
		return model.Share{}, err
	}
	return got, nil
}

// timeFormat is RFC 3339 to the second: what an event says to people.
const timeFormat = "2006-01-02T15:04:05Z07:00"

// roomForShare bounds the ports of one workspace that are public at once.
func (t *tx) roomForShare(share model.Share) error {
	n, _, err := one(t, scalar[int64], "SELECT COUNT(*) FROM shares WHERE workspace = ? AND expires > ? AND port <> ?", share.Workspace, t.meta.Now, share.Port)
	if err == nil && n >= ledger.MaxShares {
		return errs.New(errs.Exhausted, "%d ports of the workspace are public already", n).WithHint("end one with: billet ws unshare")
	}
	return err
}

// Shares implements ledger.Ledger.
func (s *Store) Shares(ctx context.Context, m ledger.Meta, tenant model.TenantID, ws model.WorkspaceID) (shares []model.Share, err error) {
	err = s.read(ctx, "list shares", func(t *tx) error {
		shares, err = all(t, scanShare, selectShares+" ORDER BY port", ws, tenant, stamp(m.Now))
		return err
	})
	return shares, err
}

// SharedPort implements ledger.Ledger.
func (s *Store) SharedPort(ctx context.Context, m ledger.Meta, name string, port int) (share model.Share, err error) {
	err = s.read(ctx, "find share", func(t *tx) error {
		var found bool
		share, found, err = one(t, scanShare, selectShared, name, port, stamp(m.Now))
		if err == nil && !found {
			err = errs.New(errs.NotFound, "port %d of workspace %q is not shared", port, name)
		}
		return err
	})
	return share, err
}

// DeleteShare implements ledger.Ledger.
func (s *Store) DeleteShare(ctx context.Context, m ledger.Meta, tenant model.TenantID, ws model.WorkspaceID, port int) error {
	return s.write(ctx, m, fmt.Sprintf("unshare port %d of workspace %s", port, ws), func(t *tx) error {
		w, err := t.workspace(tenant, ws)
		if err != nil {
			return err
		}
		n, err := t.execCount("DELETE FROM shares WHERE workspace = ? AND port = ? AND expires > ?", ws, port, t.meta.Now)
		if err != nil {
			return err
		}
		if n == 0 {
			return errs.New(errs.NotFound, "port %d of workspace %s is not shared", port, w.Name).WithHint("see: billet ws shares %s", w.Name)
		}
		return t.emit(ledger.EventPortUnshared, aboutWorkspace(w), map[string]string{"port": strconv.Itoa(port)})
	})
}

// ExpireShares implements ledger.Ledger. The event of the share has said when.
func (s *Store) ExpireShares(ctx context.Context, m ledger.Meta) error {
	return s.write(ctx, m, "expire shares", func(t *tx) error {
		return t.exec("DELETE FROM shares WHERE expires <= ?", t.meta.Now)
	})
}
