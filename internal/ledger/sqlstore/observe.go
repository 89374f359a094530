package sqlstore

import (
	"context"
	"fmt"
	"slices"

	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/ledger"
	"github.com/billethq/billet/internal/model"
)

// maxDetail bounds the words about an instance's end: they can be a guest's.
const maxDetail = 8 << 10

// Observe implements ledger.Ledger.
func (s *Store) Observe(ctx context.Context, m ledger.Meta, o ledger.Observation) (changed bool, err error) {
	err = s.write(ctx, m, fmt.Sprintf("observe instance %s as %s", o.Instance, o.State), func(t *tx) error {
		in, err := t.instance(o.Instance)
		if err != nil {
			return err
		}
		if err := checkObserver(in, o); err != nil {
			return err
		}
		if !in.State.Live() {
			changed, err = t.observeOver(in, o)
			return err
		}
		changed, err = t.observeLive(in, o)
		return err
	})
	return changed && err == nil, err
}

// checkObserver refuses an observation by another node or of another epoch,
// and one that no node can make.
func checkObserver(in model.Instance, o ledger.Observation) error {
	switch o.State {
	case model.StateStarting, model.StateRunning, model.StateStopping, model.StateEnded:
	case model.StateReserved, model.StateUnproven, model.StateFenced:
		return errs.New(errs.Invalid, "no node can see an instance %s", o.State)
	default:
		return errs.New(errs.Invalid, "instance state %q is unknown", o.State)
	}
	if in.Node != o.Node || in.Epoch != o.Epoch {
		return errs.New(errs.Stale, "it belongs to node %s under epoch %d, not to %s under %d", in.Node, in.Epoch, o.Node, o.Epoch)
	}
	return nil
}

// observeOver handles what has been overtaken: the one news is the proof that
// a fenced instance is gone.
func (t *tx) observeOver(in model.Instance, o ledger.Observation) (bool, error) {
	if in.State != model.StateFenced || o.State != model.StateEnded {
		return false, nil
	}
	if err := t.exec("UPDATE instances SET state = ?, updated = ? WHERE id = ?", o.State, t.meta.Now, in.ID); err != nil {
		return false, err
	}
	return true, t.emitMoved(in.State, in, o)
}

// observeLive applies an observation and renews the lease, which never gets
// shorter: observations may arrive out of order.
func (t *tx) observeLive(in model.Instance, o ledger.Observation) (changed bool, err error) {
	if err := model.CheckTransition(in.State, o.State); err != nil {
		return false, err
	}
	from := in.State
	o.Detail, o.Phases = cut(o.Detail, maxDetail), stampPhases(o.Phases)
	changed = from != o.State || in.Cause != o.Cause || in.Detail != o.Detail || !slices.Equal(in.Phases, o.Phases)
	if until := stamp(o.LeaseUntil); until.After(in.LeaseUntil) {
		in.LeaseUntil = until
	}
	if !changed {
		return false, t.exec("UPDATE instances SET lease_until = ? WHERE id = ?", in.LeaseUntil, in.ID)
	}
	phases, err := toJSON(o.Phases)
	if err != nil {
		return false, err
	}
	if err := t.exec("UPDATE instances SET state = ?, cause = ?, detail = ?, phases = ?, lease_until = ?, updated = ? WHERE id = ?",
		o.State, o.Cause, o.Detail, phases, in.LeaseUntil, t.meta.Now, in.ID); err != nil {
		return false, err
	}
	if err := t.emitMoved(from, in, o); err != nil {
		return false, err
	}
	// One that has hibernated was told to, and told to run on when it was too late.
	unasked := o.State == model.StateEnded && in.Desired == model.InstanceRun && o.Cause != model.CauseStopped
	// One whose last flush was refused has left work behind that nobody gave up.
	unasked = unasked || o.State == model.StateEnded && o.Cause == model.CauseFenced &&
		(in.Desired == model.InstanceStop || in.Desired == model.InstanceHibernate)
	if unasked && in.SubjectKind == model.SubjectWorkspace {
		return true, t.failWorkspace(in.Tenant, model.WorkspaceID(in.Subject), o.Cause)
	}
	return true, nil
}

// emitMoved tells of a new state, or of progress within one.
func (t *tx) emitMoved(from model.InstanceState, in model.Instance, o ledger.Observation) error {
	more := []string{"state", string(o.State)}
	if o.Cause != model.CauseNone {
		more = append(more, "cause", string(o.Cause))
	}
	if n := len(o.Phases); n > 0 {
		more = append(more, "phase", o.Phases[n-1].Name)
	}
	if from == o.State {
		return t.emitInstance(ledger.EventInstanceProgressed, in, more...)
	}
	return t.emitInstance(ledger.EventInstanceMoved, in, append(more, "from", string(from))...)
}

// MarkUnproven implements ledger.Ledger.
func (s *Store) MarkUnproven(ctx context.Context, m ledger.Meta) (silent []model.Instance, err error) {
	err = s.write(ctx, m, "mark silent instances unproven", func(t *tx) error {
		const lapsed = " WHERE " + isLive + " AND lease_until < ? AND state <> 'unproven'"
		if silent, err = all(t, scanInstance, selectInstances+lapsed+" ORDER BY created, id", t.meta.Now); err != nil || len(silent) == 0 {
			return err
		}
		if err := t.exec("UPDATE instances SET state = 'unproven', updated = ?"+lapsed, t.meta.Now, t.meta.Now); err != nil {
			return err
		}
		for i := range silent {
			in := &silent[i]
			if err := t.emitInstance(ledger.EventInstanceMoved, *in, "state", string(model.StateUnproven), "from", string(in.State)); err != nil {
				return err
			}
			in.State, in.Updated = model.StateUnproven, t.meta.Now
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return silent, nil
}
