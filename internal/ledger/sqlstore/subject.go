package sqlstore

import (
	"context"
	"fmt"

	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/ledger"
	"github.com/billethq/billet/internal/model"
)

// nextEpoch raises the epoch of what in runs for, making the subject when it
// is a job's, prebuild's or probe's first.
func (t *tx) nextEpoch(in model.Instance) (model.Epoch, error) {
	e, found, err := one(t, scalar[model.Epoch], `INSERT INTO subjects (kind, id, tenant, region, epoch) VALUES (?, ?, ?, ?, 1)
		ON CONFLICT (kind, id) DO UPDATE SET epoch = subjects.epoch + 1 WHERE subjects.tenant = excluded.tenant RETURNING epoch`,
		in.SubjectKind, in.Subject, in.Tenant, in.Region)
	if err == nil && !found {
		err = errs.New(errs.NotFound, "there is no %s %s", in.SubjectKind, in.Subject)
	}
	return e, err
}

// Fence implements ledger.Ledger.
func (s *Store) Fence(ctx context.Context, m ledger.Meta, tenant model.TenantID, kind model.SubjectKind, id model.SubjectID) error {
	return s.write(ctx, m, fmt.Sprintf("fence %s %s", kind, id), func(t *tx) error {
		if err := t.raiseEpoch(tenant, kind, id); err != nil {
			return err
		}
		return t.fenceInstances(kind, id)
	})
}

// GiveUp implements ledger.Ledger.
func (s *Store) GiveUp(ctx context.Context, m ledger.Meta, tenant model.TenantID, id model.WorkspaceID, in model.InstanceID) (w model.Workspace, err error) {
	err = s.write(ctx, m, fmt.Sprintf("give up instance %s of workspace %s", in, id), func(t *tx) error {
		if w, err = t.workspace(tenant, id); err != nil {
			return err
		}
		subject := model.SubjectID(id)
		live, found, err := one(t, scanInstance, selectInstances+" WHERE subject_kind = ? AND subject = ? AND "+isLive, model.SubjectWorkspace, subject)
		if err != nil {
			return err
		}
		if !found || live.ID != in {
			return errs.New(errs.Conflict, "instance %s of workspace %s is not live any more", in, w.Name).WithHint("see: billet ws show %s", w.Name)
		}
		if err := t.raiseEpoch(tenant, model.SubjectWorkspace, subject); err != nil {
			return err
		}
		if err := t.fenceInstances(model.SubjectWorkspace, subject); err != nil {
			return err
		}
		if w, err = t.setDesired(w, model.DesiredRunning); err != nil {
			return err
		}
		w, err = t.workspace(tenant, id) // with its epoch
		return err
	})
	if err != nil {
		return model.Workspace{}, err
	}
	return w, nil
}

// raiseEpoch makes what has run for a subject until now stale.
func (t *tx) raiseEpoch(tenant model.TenantID, kind model.SubjectKind, id model.SubjectID) error {
	type counter struct {
		about
		epoch model.Epoch
	}
	c, found, err := one(t, func(r row) (c counter, err error) {
		c.kind, c.id = string(kind), string(id)
		err = r.Scan(&c.tenant, &c.region, &c.epoch)
		return c, err
	}, "UPDATE subjects SET epoch = epoch + 1 WHERE kind = ? AND id = ? AND tenant = ? RETURNING tenant, region, epoch", kind, id, tenant)
	if err != nil {
		return err
	}
	if !found {
		return errs.New(errs.NotFound, "there is no %s %s", kind, id)
	}
	return t.emit(ledger.EventSubjectFenced, c.about, map[string]string{"epoch": fmt.Sprint(c.epoch)})
}

// fenceInstances marks what ran under an older epoch. It is told so as well:
// whoever lists it must not tell its node to go on.
func (t *tx) fenceInstances(kind model.SubjectKind, id model.SubjectID) error {
	live, err := all(t, scanInstance, selectInstances+" WHERE subject_kind = ? AND subject = ? AND "+isLive, kind, id)
	if err != nil {
		return err
	}
	for _, in := range live {
		if err := t.exec("UPDATE instances SET state = ?, desired = ?, cause = ?, updated = ? WHERE id = ?",
			model.StateFenced, model.InstanceFence, model.CauseFenced, t.meta.Now, in.ID); err != nil {
			return err
		}
		if err := t.emitInstance(ledger.EventInstanceFenced, in, "was", string(in.State)); err != nil {
			return err
		}
	}
	return nil
}
