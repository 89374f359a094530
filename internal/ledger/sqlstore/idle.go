package sqlstore

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/ledger"
	"github.com/billethq/billet/internal/model"
)

const selectSleep = "SELECT workspace, tenant, region, reason, slept, since, principal, detail FROM sleeps WHERE workspace = ? AND tenant = ?"

func scanSleep(r row) (s model.Sleep, err error) {
	err = r.Scan(&s.Workspace, &s.Tenant, &s.Region, &s.Reason, at{&s.At}, at{&s.Since}, &s.User, &s.Detail)
	return s, err
}

// Idleness implements ledger.Ledger.
func (s *Store) Idleness(ctx context.Context, m ledger.Meta, tenant model.TenantID, id model.WorkspaceID) (out model.Idleness, err error) {
	err = s.read(ctx, "read idleness", func(t *tx) error {
		if out.Hold, _, err = one(t, scanHold, selectHold, id, tenant, stamp(m.Now)); err != nil {
			return err
		}
		if out.Lent, err = t.lent(tenant, id); err != nil {
			return err
		}
		out.Sleep, _, err = one(t, scanSleep, selectSleep, id, tenant)
		return err
	})
	return out, err
}

// lent reports whether a workspace is on terms.
func (t *tx) lent(tenant model.TenantID, id model.WorkspaceID) (bool, error) {
	_, lent, err := one(t, scanTerms, selectTerms+" WHERE workspace = ? AND tenant = ?", id, tenant)
	return lent, err
}

// EndIdle implements ledger.Ledger.
func (s *Store) EndIdle(ctx context.Context, m ledger.Meta, tenant model.TenantID, id model.WorkspaceID, end model.IdleEnd) (ended bool, err error) {
	err = s.write(ctx, m, fmt.Sprintf("hibernate idle workspace %s", id), func(t *tx) error {
		w, err := t.workspace(tenant, id)
		if err != nil {
			return err
		}
		in, may, err := t.mayEndIdle(w, end)
		if err != nil || !may {
			return err
		}
		w.Desired, w.Updated = model.DesiredHibernated, t.meta.Now
		if err := t.putDesired(w); err != nil {
			return err
		}
		if err := t.exec("UPDATE instances SET desired = ?, updated = ? WHERE id = ?", model.InstanceHibernate, t.meta.Now, in.ID); err != nil {
			return err
		}
		if err := t.fellAsleep(w, model.Sleep{Reason: model.SleepIdle, Since: end.Since, User: end.User, Detail: end.Detail}); err != nil {
			return err
		}
		if err := t.judgeIdleEnd(w, end); err != nil {
			return err
		}
		data := maps.Clone(end.Inputs)
		if data == nil {
			data = map[string]string{}
		}
		data["since"], data["last"], data["instance"] = when(end.Since), end.Detail, string(in.ID)
		ended = true
		return t.emit(ledger.EventWorkspaceIdle, aboutWorkspace(w), data)
	})
	return ended && err == nil, err
}

// mayEndIdle looks at everything that may have changed since the node asked.
func (t *tx) mayEndIdle(w model.Workspace, end model.IdleEnd) (in model.Instance, may bool, err error) {
	if in, err = t.instance(end.Instance); err != nil {
		return in, false, err
	}
	switch {
	case model.WorkspaceID(in.Subject) != w.ID || in.Epoch != end.Epoch || w.Epoch != end.Epoch:
		return in, false, errs.New(errs.Stale, "instance %s is not its present one under epoch %d", in.ID, end.Epoch)
	case w.Desired != model.DesiredRunning || in.Desired != model.InstanceRun || in.State != model.StateRunning:
		return in, false, nil
	}
	if lent, err := t.lent(w.Tenant, w.ID); err != nil || lent {
		return in, false, err
	}
	_, held, err := one(t, scanHold, selectHold, w.ID, w.Tenant, t.meta.Now)
	return in, !held, err
}

// judgeIdleEnd counts what was wrong with it already.
func (t *tx) judgeIdleEnd(w model.Workspace, end model.IdleEnd) error {
	if end.Job {
		if err := t.count(w, model.CountFalse, model.FalseJob, 0); err != nil {
			return err
		}
	}
	_, err := t.stretch(w, end.Instance, end.Past)
	return err
}

// fellAsleep notes and counts a hibernation.
func (t *tx) fellAsleep(w model.Workspace, s model.Sleep) error {
	if s.Since.IsZero() {
		s.Since = t.meta.Now
	}
	if err := t.exec(`INSERT INTO sleeps (workspace, tenant, region, reason, slept, since, principal, detail) VALUES (?, ?, ?, ?, ?, ?, ?, ?)
			ON CONFLICT (workspace) DO UPDATE SET reason = excluded.reason, slept = excluded.slept, since = excluded.since,
			principal = excluded.principal, detail = excluded.detail`,
		w.ID, w.Tenant, w.Region, s.Reason, t.meta.Now, s.Since, s.User, s.Detail); err != nil {
		return err
	}
	return t.count(w, model.CountHibernations, string(s.Reason), 0)
}

// wokeUp forgets why a workspace slept. Whoever was in it last, and is back so
// soon, had not gone.
func (t *tx) wokeUp(w model.Workspace) error {
	s, slept, err := one(t, scanSleep, selectSleep, w.ID, w.Tenant)
	if err != nil || !slept {
		return err
	}
	back := s.Reason == model.SleepIdle && t.meta.Actor != "" && t.meta.Actor == s.User && t.meta.Now.Sub(s.At) <= model.FalseWithin
	if back {
		if err := t.count(w, model.CountFalse, model.FalseResumed, 0); err != nil {
			return err
		}
	}
	return t.exec("DELETE FROM sleeps WHERE workspace = ?", w.ID)
}

// noteDesired keeps why a workspace sleeps with what is wanted of it.
func (t *tx) noteDesired(w model.Workspace, reason model.SleepReason) error {
	if w.Desired == model.DesiredHibernated {
		return t.fellAsleep(w, model.Sleep{Reason: reason, User: t.meta.Actor})
	}
	return t.wokeUp(w)
}

// WakeIdle implements ledger.Ledger.
func (s *Store) WakeIdle(ctx context.Context, m ledger.Meta, tenant model.TenantID, id model.WorkspaceID, instance model.InstanceID, why string) (woken bool, err error) {
	err = s.write(ctx, m, fmt.Sprintf("take back the hibernation of workspace %s", id), func(t *tx) error {
		w, err := t.workspace(tenant, id)
		if err != nil {
			return err
		}
		in, err := t.instance(instance)
		if err != nil {
			return err
		}
		slept, found, err := one(t, scanSleep, selectSleep, id, tenant)
		if err != nil || !found || slept.Reason != model.SleepIdle || w.Desired != model.DesiredHibernated ||
			model.WorkspaceID(in.Subject) != w.ID || in.Epoch != w.Epoch || !in.State.Live() || in.Desired != model.InstanceHibernate {
			return err
		}
		w.Desired, w.Updated = model.DesiredRunning, t.meta.Now
		if err := t.putDesired(w); err != nil {
			return err
		}
		if err := t.exec("UPDATE instances SET desired = ?, updated = ? WHERE id = ?", model.InstanceRun, t.meta.Now, in.ID); err != nil {
			return err
		}
		if err := t.exec("DELETE FROM sleeps WHERE workspace = ?", w.ID); err != nil {
			return err
		}
		if err := t.count(w, model.CountFailed, "", 0); err != nil {
			return err
		}
		woken = true
		return t.emit(ledger.EventWorkspaceAwake, aboutWorkspace(w), map[string]string{"instance": string(in.ID), "cause": cut(why, maxDetail)})
	})
	return woken && err == nil, err
}

// NoteStretch implements ledger.Ledger.
func (s *Store) NoteStretch(ctx context.Context, m ledger.Meta, instance model.InstanceID, epoch model.Epoch, stretch model.IdleStretch) (counted bool, err error) {
	err = s.write(ctx, m, "count missed idleness of instance "+string(instance), func(t *tx) error {
		in, err := t.instance(instance)
		if err != nil {
			return err
		}
		if in.Epoch != epoch || in.SubjectKind != model.SubjectWorkspace {
			return errs.New(errs.Stale, "it is under epoch %d, not %d", in.Epoch, epoch)
		}
		w, err := t.workspace(in.Tenant, model.WorkspaceID(in.Subject))
		if err != nil {
			return err
		}
		counted, err = t.stretch(w, instance, stretch)
		return err
	})
	return counted && err == nil, err
}

// stretch counts a time past the window, once.
func (t *tx) stretch(w model.Workspace, instance model.InstanceID, s model.IdleStretch) (bool, error) {
	if s.Number <= 0 || s.Took <= 0 {
		return false, nil
	}
	n, err := t.execCount("UPDATE instances SET idle_stretch = ? WHERE id = ? AND idle_stretch < ?", s.Number, instance, s.Number)
	if err != nil || n == 0 {
		return false, err
	}
	return true, t.count(w, model.CountMissed, s.Keep, s.Took)
}

// count adds one.
func (t *tx) count(w model.Workspace, name model.CountName, reason string, took time.Duration) error {
	return t.exec(`INSERT INTO idle_counts (tenant, region, name, class, reason, n, took) VALUES (?, ?, ?, ?, ?, 1, ?)
		ON CONFLICT (tenant, region, name, class, reason) DO UPDATE SET n = idle_counts.n + 1, took = idle_counts.took + excluded.took`,
		w.Tenant, w.Region, name, w.Class, reason, took.Microseconds())
}

// IdleCounts implements ledger.Ledger.
func (s *Store) IdleCounts(ctx context.Context, tenant model.TenantID) (counts []model.IdleCount, err error) {
	where, args := ofTenant("tenant", tenant)
	err = s.read(ctx, "list idle counts", func(t *tx) error {
		counts, err = all(t, scanIdleCount, "SELECT name, class, reason, SUM(n), SUM(took) FROM idle_counts WHERE "+where+
			" GROUP BY name, class, reason ORDER BY name, class, reason", args...)
		return err
	})
	return counts, err
}

func scanIdleCount(r row) (c model.IdleCount, err error) {
	var us int64
	err = r.Scan(&c.Name, &c.Class, &c.Reason, &c.Count, &us)
	c.Took = time.Duration(us) * time.Microsecond
	return c, err
}
