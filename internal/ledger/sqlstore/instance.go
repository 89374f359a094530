package sqlstore

import (
	"context"
	"fmt"
	"strings"

	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/ledger"
	"github.com/billethq/billet/internal/model"
)

// isLive is model.InstanceState.Live in SQL, word for word as in the partial
// indexes: SQLite uses those only for the same words. They keep the cost of a
// placement from growing with the history of ended instances.
const isLive = "state <> 'ended' AND state <> 'fenced'"

// isCharged is model.InstanceState.Charged in SQL.
const isCharged = "state <> 'ended'"

const selectInstances = `SELECT id, tenant, region, node, driver, vcpus, memory, disk, processes, open_files,
	subject_kind, subject, epoch, state, desired, cause, detail, phases, lease_until, created, updated FROM instances`

func scanInstance(r row) (in model.Instance, err error) {
	err = r.Scan(&in.ID, &in.Tenant, &in.Region, &in.Node, &in.Driver,
		&in.Shape.VCPUs, &in.Shape.Memory, &in.Shape.Disk, &in.Shape.Processes, &in.Shape.OpenFiles,
		&in.SubjectKind, &in.Subject, &in.Epoch, &in.State, &in.Desired, &in.Cause, &in.Detail,
		fromJSON{&in.Phases}, at{&in.LeaseUntil}, at{&in.Created}, at{&in.Updated})
	return in, err
}

// instance finds by id.
func (t *tx) instance(id model.InstanceID) (model.Instance, error) {
	in, found, err := one(t, scanInstance, selectInstances+" WHERE id = ?", id)
	if err == nil && !found {
		err = noInstance(id)
	}
	return in, err
}

func noInstance(id model.InstanceID) error {
	return errs.New(errs.NotFound, "there is no instance %s", id)
}

// emitInstance files an event about in under what it runs for.
func (t *tx) emitInstance(kind string, in model.Instance, more ...string) error {
	data := map[string]string{"instance": string(in.ID), "node": string(in.Node), "epoch": fmt.Sprint(in.Epoch)}
	for i := 0; i+1 < len(more); i += 2 {
		data[more[i]] = more[i+1]
	}
	return t.emit(kind, aboutInstance(in), data)
}

// noLive refuses when a live instance runs for the subject.
func (t *tx) noLive(tenant model.TenantID, kind model.SubjectKind, id model.SubjectID) error {
	live, found, err := one(t, scanInstance, selectInstances+" WHERE subject_kind = ? AND subject = ? AND tenant = ? AND "+isLive, kind, id, tenant)
	if err == nil && found {
		return errs.New(errs.Conflict, "instance %s of %s %s is %s on node %s", live.ID, kind, id, live.State, live.Node).
			WithHint("stop it, or wait until its node reports its end")
	}
	return err
}

// Place implements ledger.Ledger.
func (s *Store) Place(ctx context.Context, m ledger.Meta, in model.Instance, c ledger.Ceiling) (model.Instance, error) {
	err := s.write(ctx, m, fmt.Sprintf("place %s %s on node %s", in.SubjectKind, in.Subject, in.Node), func(t *tx) (err error) {
		if err := checkShape(in.Shape); err != nil {
			return err
		}
		if err := t.mayRun(in.Tenant, in.SubjectKind, in.Subject); err != nil {
			return err
		}
		if err := t.fits(in, c); err != nil {
			return err
		}
		if in.Epoch, err = t.nextEpoch(in); err != nil {
			return err
		}
		in.State, in.Desired = model.StateReserved, model.InstanceRun
		in.Cause, in.Detail, in.Phases = model.CauseNone, "", nil
		in.LeaseUntil, in.Created, in.Updated = stamp(c.LeaseUntil), t.meta.Now, t.meta.Now
		if err := t.insertInstance(in, c.Tier); err != nil {
			return err
		}
		return t.emitInstance(ledger.EventInstancePlaced, in, "driver", string(in.Driver), "tier", c.Tier)
	})
	if err != nil {
		return model.Instance{}, err
	}
	return in, nil
}

// checkShape refuses a shape that would give capacity back.
func checkShape(s model.Shape) error {
	if s.VCPUs < 0 || s.Memory < 0 || s.Disk < 0 || s.Processes < 0 || s.OpenFiles < 0 {
		return errs.New(errs.Invalid, "a shape cannot be negative: %+v", s)
	}
	return nil
}

// mayRun refuses a second live instance, and a workspace that nobody wants
// running any more: without that, a reconciler with an old view would restart
// what has just failed.
func (t *tx) mayRun(tenant model.TenantID, kind model.SubjectKind, id model.SubjectID) error {
	if kind == model.SubjectWorkspace {
		w, err := t.workspace(tenant, model.WorkspaceID(id))
		if err != nil {
			return err
		}
		if w.Desired != model.DesiredRunning {
			return errs.New(errs.Conflict, "workspace %s is desired %s, not running", w.Name, w.Desired).WithHint("`billet ws start %s`", w.Name)
		}
	}
	return t.noLive(tenant, kind, id)
}

// fits refuses what the node or the tier has no room for.
func (t *tx) fits(in model.Instance, c ledger.Ceiling) error {
	free, err := t.headroom(in.Node)
	if err != nil {
		return err
	}
	if in.Shape.VCPUs > free.VCPUs || in.Shape.Memory > free.Memory || in.Shape.Disk > free.Disk {
		return errs.New(errs.Exhausted, "node %s has %d vCPUs, %s of memory and %s of disk free; %d, %s and %s are asked for",
			in.Node, free.VCPUs, model.Size(free.Memory), model.Size(free.Disk), in.Shape.VCPUs, model.Size(in.Shape.Memory), model.Size(in.Shape.Disk)).
			WithHint("stop something, add a node, or ask for a smaller tier")
	}
	if c.Max <= 0 {
		return nil
	}
	live, _, err := one(t, scalar[int], "SELECT COUNT(*) FROM instances WHERE tier = ? AND "+isLive, c.Tier)
	if err == nil && live >= c.Max {
		return errs.New(errs.Exhausted, "tier %s has %d live instances, at most %d are allowed", c.Tier, live, c.Max).
			WithHint("stop one of them, or raise the tier's max")
	}
	return err
}

func (t *tx) insertInstance(in model.Instance, tier string) error {
	return t.exec(`INSERT INTO instances (id, tenant, region, node, driver, tier, vcpus, memory, disk, processes, open_files,
			subject_kind, subject, epoch, state, desired, cause, detail, phases, lease_until, created, updated)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, '', '', 'null', ?, ?, ?)`,
		in.ID, in.Tenant, in.Region, in.Node, in.Driver, tier,
		in.Shape.VCPUs, in.Shape.Memory, in.Shape.Disk, in.Shape.Processes, in.Shape.OpenFiles,
		in.SubjectKind, in.Subject, in.Epoch, in.State, in.Desired, in.LeaseUntil, in.Created, in.Updated)
}

// Instance implements ledger.Ledger.
func (s *Store) Instance(ctx context.Context, id model.InstanceID) (in model.Instance, err error) {
	err = s.read(ctx, "find instance", func(t *tx) error {
		in, err = t.instance(id)
		return err
	})
	return in, err
}

// Instances implements ledger.Ledger.
func (s *Store) Instances(ctx context.Context, f ledger.InstanceFilter) (instances []model.Instance, err error) {
	tenant, args := ofTenant("tenant", f.Tenant)
	where := []string{tenant}
	if f.Node != "" {
		where, args = append(where, "node = ?"), append(args, f.Node)
	}
	if f.Subject != "" {
		where, args = append(where, "subject = ?"), append(args, f.Subject)
	}
	if f.Charged {
		where = append(where, isCharged)
	}
	if f.Live {
		where = append(where, isLive)
	}
	query := selectInstances + " WHERE " + strings.Join(where, " AND ") + " ORDER BY created, id"
	if f.Limit > 0 {
		query, args = query+" LIMIT ?", append(args, f.Limit)
	}
	err = s.read(ctx, "list instances", func(t *tx) error {
		instances, err = all(t, scanInstance, query, args...)
		return err
	})
	return instances, err
}

const newestInstance = " WHERE subject_kind = ? AND subject = ? AND tenant = ? ORDER BY epoch DESC LIMIT 1"

// NewestInstance implements ledger.Ledger. By the epoch: a clock can be set back.
func (s *Store) NewestInstance(ctx context.Context, tenant model.TenantID, kind model.SubjectKind, id model.SubjectID) (in model.Instance, found bool, err error) {
	err = s.read(ctx, "find newest instance", func(t *tx) error {
		in, found, err = one(t, scanInstance, selectInstances+newestInstance, kind, id, tenant)
		return err
	})
	return in, found, err
}

// SetInstanceDesired implements ledger.Ledger.
func (s *Store) SetInstanceDesired(ctx context.Context, m ledger.Meta, tenant model.TenantID, id model.InstanceID, d model.InstanceDesired) error {
	return s.write(ctx, m, fmt.Sprintf("tell instance %s to %s", id, d), func(t *tx) error {
		switch d {
		case model.InstanceRun, model.InstanceStop, model.InstanceHibernate, model.InstanceDestroy, model.InstanceFence:
		default:
			return errs.New(errs.Invalid, "no instance can be told to %q", d)
		}
		in, err := t.instance(id)
		if err != nil {
			return err
		}
		if in.Tenant != tenant {
			return noInstance(id)
		}
		if !in.State.Live() {
			return errs.New(errs.Conflict, "it is %s", in.State)
		}
		if in.Desired == d {
			return nil
		}
		if err := t.exec("UPDATE instances SET desired = ?, updated = ? WHERE id = ?", d, t.meta.Now, id); err != nil {
			return err
		}
		return t.emitInstance(ledger.EventInstanceDesired, in, "desired", string(d))
	})
}

// TierUse implements ledger.Ledger.
func (s *Store) TierUse(ctx context.Context) (map[string]int, error) {
	use := map[string]int{}
	err := s.read(ctx, "count instances by tier", func(t *tx) error {
		_, err := all(t, func(r row) (_ struct{}, err error) {
			var tier string
			var n int
			err = r.Scan(&tier, &n)
			use[tier] = n
			return struct{}{}, err
		}, "SELECT tier, COUNT(*) FROM instances WHERE "+isLive+" GROUP BY tier")
		return err
	})
	return use, err
}
