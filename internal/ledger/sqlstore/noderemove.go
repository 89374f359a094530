package sqlstore

import (
	"context"
	"fmt"

	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/ledger"
	"github.com/billethq/billet/internal/model"
)

// hostGone is the detail of what ended with its node; the event has who said so.
const hostGone = "its node was removed: a person said that the host is gone"

// RemoveNode implements ledger.Ledger.
func (s *Store) RemoveNode(ctx context.Context, m ledger.Meta, id model.NodeID, gone bool) (lost []model.Instance, err error) {
	err = s.write(ctx, m, fmt.Sprintf("remove node %s", id), func(t *tx) error {
		n, found, err := one(t, scanNode, selectNodes+" AND id = ?", id)
		if err != nil {
			return err
		}
		if !found {
			return errs.New(errs.NotFound, "there is no node %s", id).WithHint("`billet node ls` lists them")
		}
		if lost, err = all(t, scanInstance, selectInstances+" WHERE node = ? AND "+isCharged+" ORDER BY created, id", id); err != nil {
			return err
		}
		if len(lost) > 0 && !gone {
			return errs.New(errs.Conflict, "%d instances on it are not proved gone", len(lost)).
				WithHint("wait for its node; if the host is gone for good, remove it with --force")
		}
		for i := range lost {
			if err := t.endWithHost(&lost[i]); err != nil {
				return err
			}
		}
		if err := t.exec("UPDATE nodes SET removed = ? WHERE id = ?", t.meta.Now, id); err != nil {
			return err
		}
		return t.emit(ledger.EventNodeRemoved, about{n.Tenant, n.Region, "node", string(id)},
			map[string]string{"name": n.Name, "lost": fmt.Sprint(len(lost))})
	})
	if err != nil {
		return nil, err
	}
	return lost, nil
}

// endWithHost ends an instance by a person's word. Its subject gets a new
// epoch: should the word be wrong, the node that comes back has nothing but
// stale instances. One that is fenced has been overtaken before.
func (t *tx) endWithHost(in *model.Instance) error {
	from, overtaken := in.State, !in.State.Live()
	if !overtaken {
		if err := t.raiseEpoch(in.Tenant, in.SubjectKind, in.Subject); err != nil {
			return err
		}
		in.Cause, in.Detail = model.CauseHostGone, hostGone
	}
	in.State, in.Updated = model.StateEnded, t.meta.Now
	if err := t.exec("UPDATE instances SET state = ?, cause = ?, detail = ?, updated = ? WHERE id = ?",
		in.State, in.Cause, in.Detail, in.Updated, in.ID); err != nil {
		return err
	}
	if err := t.emitInstance(ledger.EventInstanceMoved, *in, "state", string(in.State), "from", string(from), "cause", string(in.Cause)); err != nil {
		return err
	}
	if overtaken || in.SubjectKind != model.SubjectWorkspace || in.Desired == model.InstanceDestroy {
		return nil
	}
	return t.failWorkspace(in.Tenant, model.WorkspaceID(in.Subject), in.Cause)
}
