package sqlstore

import (
	"context"
	"time"

	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/ledger"
	"github.com/billethq/billet/internal/model"
)

const selectTerms = `SELECT workspace, tenant, region, template, metadata, envs, began, deadline,
	auto_pause, pause_cold, auto_resume, network, killed, created FROM terms`

func scanTerms(r row) (k model.Terms, err error) {
	err = r.Scan(&k.Workspace, &k.Tenant, &k.Region, &k.Template, fromJSON{&k.Metadata}, fromJSON{&k.Envs}, at{&k.Began}, at{&k.Deadline},
		&k.AutoPause, &k.PauseCold, &k.AutoResume, &k.Network, at{&k.Killed}, at{&k.Created})
	return k, err
}

func aboutTerms(k model.Terms) about {
	return about{k.Tenant, k.Region, string(model.SubjectWorkspace), string(k.Workspace)}
}

// terms finds those of a workspace.
func (t *tx) terms(tenant model.TenantID, id model.WorkspaceID) (model.Terms, error) {
	k, found, err := one(t, scanTerms, selectTerms+" WHERE workspace = ? AND tenant = ?", id, tenant)
	if err == nil && !found {
		err = errs.New(errs.NotFound, "workspace %s is on no terms", id)
	}
	return k, err
}

// CreateTerms implements ledger.Ledger.
func (s *Store) CreateTerms(ctx context.Context, m ledger.Meta, k model.Terms) error {
	return s.write(ctx, m, "create terms of workspace "+string(k.Workspace), func(t *tx) error {
		if _, taken, err := one(t, scanTerms, selectTerms+" WHERE workspace = ?", k.Workspace); err != nil {
			return err
		} else if taken {
			return errs.New(errs.Conflict, "workspace %s is on terms already", k.Workspace)
		}
		metadata, err := toJSON(k.Metadata)
		if err != nil {
			return err
		}
		envs, err := toJSON(k.Envs)
		if err != nil {
			return err
		}
		if err := t.exec(`INSERT INTO terms (workspace, tenant, region, template, metadata, envs, began, deadline,
				auto_pause, pause_cold, auto_resume, network, killed, created) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
			k.Workspace, k.Tenant, k.Region, k.Template, metadata, envs, k.Began, k.Deadline,
			k.AutoPause, k.PauseCold, k.AutoResume, k.Network, time.Time{}, t.meta.Now); err != nil {
			return err
		}
		return t.emit(ledger.EventTermsCreated, aboutTerms(k), map[string]string{"template": k.Template, "deadline": when(k.Deadline)})
	})
}

// when writes a time for people.
func when(t time.Time) string { return stamp(t).Format(time.RFC3339) }

// Terms implements ledger.Ledger.
func (s *Store) Terms(ctx context.Context, tenant model.TenantID) (terms []model.Terms, err error) {
	where, args := ofTenant("tenant", tenant)
	err = s.read(ctx, "list terms", func(t *tx) error {
		terms, err = all(t, scanTerms, selectTerms+" WHERE "+where+" ORDER BY created, workspace", args...)
		return err
	})
	return terms, err
}

// WorkspaceTerms implements ledger.Ledger.
func (s *Store) WorkspaceTerms(ctx context.Context, tenant model.TenantID, id model.WorkspaceID) (k model.Terms, err error) {
	err = s.read(ctx, "find terms", func(t *tx) error {
		k, err = t.terms(tenant, id)
		return err
	})
	return k, err
}

// SetDeadline implements ledger.Ledger.
func (s *Store) SetDeadline(ctx context.Context, m ledger.Meta, tenant model.TenantID, id model.WorkspaceID, deadline, began time.Time, extend bool) (k model.Terms, err error) {
	err = s.write(ctx, m, "set deadline of workspace "+string(id), func(t *tx) error {
		if k, err = t.terms(tenant, id); err != nil {
			return err
		}
		if !k.Killed.IsZero() {
			return errs.New(errs.NotFound, "workspace %s was killed", id)
		}
		deadline = stamp(deadline)
		if extend && !deadline.After(k.Deadline) {
			deadline = k.Deadline
		}
		if began.IsZero() {
			began = k.Began
		}
		began = stamp(began)
		if deadline.Equal(k.Deadline) && began.Equal(k.Began) {
			return nil
		}
		k.Deadline, k.Began = deadline, began
		if err := t.exec("UPDATE terms SET deadline = ?, began = ? WHERE workspace = ?", deadline, began, id); err != nil {
			return err
		}
		return t.emit(ledger.EventTermsDeadline, aboutTerms(k), map[string]string{"deadline": when(deadline)})
	})
	if err != nil {
		return model.Terms{}, err
	}
	return k, nil
}

// SetTermsNetwork implements ledger.Ledger.
func (s *Store) SetTermsNetwork(ctx context.Context, m ledger.Meta, tenant model.TenantID, id model.WorkspaceID, network string) error {
	return s.write(ctx, m, "set network of workspace "+string(id), func(t *tx) error {
		k, err := t.terms(tenant, id)
		if err != nil || k.Network == text(network) {
			return err
		}
		if err := t.exec("UPDATE terms SET network = ? WHERE workspace = ?", network, id); err != nil {
			return err
		}
		return t.emit(ledger.EventTermsNetwork, aboutTerms(k), map[string]string{})
	})
}

// EndTerms implements ledger.Ledger.
func (s *Store) EndTerms(ctx context.Context, m ledger.Meta, tenant model.TenantID, id model.WorkspaceID, end model.TermsEnd) (ended bool, err error) {
	err = s.write(ctx, m, "end terms of workspace "+string(id), func(t *tx) error {
		k, err := t.terms(tenant, id)
		if err != nil || !k.Killed.IsZero() || end.Due && k.Deadline.After(t.meta.Now) {
			return err
		}
		w, err := t.workspace(tenant, id)
		if err != nil {
			return err
		}
		if w.Desired == model.DesiredDeleted {
			return errs.New(errs.Conflict, "workspace %s is being deleted", w.Name)
		}
		if end.Kill {
			if err := t.exec("UPDATE terms SET killed = ? WHERE workspace = ?", t.meta.Now, id); err != nil {
				return err
			}
		}
		w.Desired, w.Updated = end.Desired, t.meta.Now
		if err := t.putDesired(w); err != nil {
			return err
		}
		if err := t.noteDesired(w, model.SleepDeadline); err != nil {
			return err
		}
		ended = true
		kind := ledger.EventTermsPaused
		if end.Kill {
			kind = ledger.EventTermsKilled
		}
		return t.emit(kind, aboutTerms(k), map[string]string{"desired": string(end.Desired)})
	})
	return ended, err
}

// RemoveTerms implements ledger.Ledger.
func (s *Store) RemoveTerms(ctx context.Context, m ledger.Meta, tenant model.TenantID, id model.WorkspaceID) error {
	return s.write(ctx, m, "remove terms of workspace "+string(id), func(t *tx) error {
		k, err := t.terms(tenant, id)
		if err != nil {
			return err
		}
		if err := t.exec("DELETE FROM terms WHERE workspace = ?", id); err != nil {
			return err
		}
		return t.emit(ledger.EventTermsRemoved, aboutTerms(k), map[string]string{})
	})
}
