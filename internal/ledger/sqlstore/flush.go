package sqlstore

import (
	"context"
	"fmt"

	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/ledger"
	"github.com/billethq/billet/internal/model"
)

func scanIntent(r row) (in model.FlushIntent, err error) {
	err = r.Scan(&in.ID, &in.Tenant, &in.Region, &in.Instance, &in.Subject, &in.Epoch, &in.Base, &in.Seq, at{&in.Started}, at{&in.Expires})
	return in, err
}

const intentColumns = "id, tenant, region, instance, subject, epoch, base, seq, started, expires"

// stale is what every overtaken writer is told: it keeps its data and stops.
func stale(format string, args ...any) error {
	return errs.New(errs.Stale, format, args...).WithHint("another instance or commit has overtaken this one; keep its overlay, end its guest, never retry under another epoch")
}

// flusher returns an instance and the workspace it runs for, and refuses it
// when its epoch is not the one asked for and still the subject's.
func (t *tx) flusher(tenant model.TenantID, id model.InstanceID, epoch model.Epoch) (in model.Instance, w model.Workspace, err error) {
	if in, err = t.instance(id); err != nil {
		return in, w, err
	}
	if in.Tenant != tenant {
		return in, w, noInstance(id)
	}
	if in.SubjectKind != model.SubjectWorkspace {
		return in, w, errs.New(errs.Unsupported, "a %s has no head to flush to", in.SubjectKind)
	}
	if w, err = t.workspace(tenant, model.WorkspaceID(in.Subject)); err != nil {
		return in, w, err
	}
	if in.Epoch != epoch || w.Epoch != epoch {
		return in, w, stale("instance %s has epoch %d, its workspace %d, the caller %d", id, in.Epoch, w.Epoch, epoch)
	}
	return in, w, nil
}

// BeginFlush implements ledger.Ledger.
func (s *Store) BeginFlush(ctx context.Context, m ledger.Meta, in model.FlushIntent) (model.FlushIntent, error) {
	err := s.write(ctx, m, fmt.Sprintf("begin flush of instance %s", in.Instance), func(t *tx) error {
		inst, w, err := t.flusher(in.Tenant, in.Instance, in.Epoch)
		if err != nil {
			return err
		}
		if !inst.State.Live() {
			return stale("instance %s is %s", inst.ID, inst.State)
		}
		if in.Base != w.Head {
			return stale("the head is %s, not %s", w.Head.Short(), in.Base.Short())
		}
		in.Subject, in.Seq = inst.Subject, w.HeadSeq+1
		in.Started, in.Expires = t.meta.Now, stamp(in.Expires)
		if err := t.exec("INSERT INTO flush_intents ("+intentColumns+") VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
			in.ID, in.Tenant, in.Region, in.Instance, in.Subject, in.Epoch, in.Base, in.Seq, in.Started, in.Expires); err != nil {
			return err
		}
		return t.emitInstance(ledger.EventFlushBegun, inst, "intent", string(in.ID), "base", string(in.Base), "seq", fmt.Sprint(in.Seq))
	})
	if err != nil {
		return model.FlushIntent{}, err
	}
	return in, nil
}

const selectSnapshots = "SELECT id, tenant, region, workspace, root, parent, epoch, seq, consistency, stored_bytes, written_bytes, created, memory_root, memory_machine, memory_bytes, memory_until FROM snapshots WHERE workspace = ? AND tenant = ?"

func scanSnapshot(r row) (s model.Snapshot, err error) {
	err = r.Scan(&s.ID, &s.Tenant, &s.Region, &s.Workspace, &s.Root, &s.Parent, &s.Epoch, &s.Seq,
		&s.Consistency, &s.StoredBytes, &s.WrittenBytes, at{&s.Created},
		&s.Memory.Root, &s.Memory.Machine, &s.Memory.Bytes, at{&s.Memory.Until})
	return s, err
}

// CommitFlush implements ledger.Ledger.
func (s *Store) CommitFlush(ctx context.Context, m ledger.Meta, intent model.IntentID, instance model.InstanceID, snap model.Snapshot) (got model.Snapshot, err error) {
	err = s.write(ctx, m, fmt.Sprintf("commit flush of instance %s as root %s", instance, snap.Root.Short()), func(t *tx) error {
		// First, before any guard: the answer to the first commit may have been
		// lost, and what is durable stays durable whatever happened since.
		var repeated bool
		if got, repeated, err = one(t, scanSnapshot, selectSnapshots+
			" AND epoch = ? AND seq = ? AND root = ? AND EXISTS (SELECT 1 FROM workspaces w WHERE w.id = workspace AND w.head_seq = seq)",
			snap.Workspace, snap.Tenant, snap.Epoch, snap.Seq, snap.Root); err != nil || repeated {
			return err
		}
		in, w, err := t.flusher(snap.Tenant, instance, snap.Epoch)
		if err != nil {
			return err
		}
		if err := t.checkCommit(intent, in, w, snap); err != nil {
			return err
		}
		snap.Created = t.meta.Now
		if err := t.moveHead(intent, snap); err != nil {
			return err
		}
		got = snap
		return t.emitInstance(ledger.EventFlushCommitted, in, "intent", string(intent), "snapshot", string(snap.ID),
			"root", string(snap.Root), "seq", fmt.Sprint(snap.Seq))
	})
	if err != nil {
		return model.Snapshot{}, err
	}
	return got, nil
}

// checkCommit guards the head by instance, parent and an unexpired intent;
// flusher has guarded it by epoch.
func (t *tx) checkCommit(id model.IntentID, in model.Instance, w model.Workspace, snap model.Snapshot) error {
	if err := t.mayCommit(in); err != nil {
		return err
	}
	if snap.Workspace != w.ID {
		return errs.New(errs.Invalid, "instance %s runs for workspace %s, the snapshot is of %s", in.ID, w.ID, snap.Workspace)
	}
	if snap.Parent != w.Head {
		return stale("the head is %s, the new root stands on %s", w.Head.Short(), snap.Parent.Short())
	}
	intent, found, err := one(t, scanIntent, "SELECT "+intentColumns+" FROM flush_intents WHERE id = ?", id)
	if err != nil {
		return err
	}
	switch {
	case !found || intent.Instance != in.ID:
		return stale("instance %s has no flush intent %s", in.ID, id)
	case intent.Expires.Before(t.meta.Now):
		// Past its expiry the blocks it pinned may have been collected.
		return stale("flush intent %s expired at %s", id, intent.Expires)
	case intent.Base != snap.Parent || intent.Seq != snap.Seq || intent.Seq != w.HeadSeq+1:
		return stale("flush intent %s is for number %d on %s, the new root has number %d on %s",
			id, intent.Seq, intent.Base.Short(), snap.Seq, snap.Parent.Short())
	}
	return nil
}

// mayCommit refuses an instance that is over, whose node has nothing more to
// say, and one whose lease has ended. The last flush comes while the instance
// is stopping, and the first may come before the report that it runs. A lease
// that has ended is no proof that another owns the subject: were that refused
// as stale, the node would end the guest of a rightful owner. It commits as soon
// as it has been heard.
func (t *tx) mayCommit(in model.Instance) error {
	switch in.State {
	case model.StateReserved, model.StateStarting, model.StateRunning, model.StateStopping:
		if !in.LeaseUntil.Before(t.meta.Now) {
			return nil
		}
	case model.StateUnproven:
	case model.StateFenced, model.StateEnded:
		return stale("instance %s is %s", in.ID, in.State)
	}
	return errs.New(errs.Unavailable, "the lease of instance %s ended at %s", in.ID, in.LeaseUntil).
		WithHint("commit again once its node has reported it: that renews the lease")
}

// moveHead inserts the snapshot, makes it the head, and ends the intent.
func (t *tx) moveHead(intent model.IntentID, s model.Snapshot) error {
	if err := t.exec(`INSERT INTO snapshots (id, tenant, region, workspace, root, parent, epoch, seq, consistency, stored_bytes, written_bytes, created,
			memory_root, memory_machine, memory_bytes, memory_until)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		s.ID, s.Tenant, s.Region, s.Workspace, s.Root, s.Parent, s.Epoch, s.Seq, s.Consistency, s.StoredBytes, s.WrittenBytes, s.Created,
		s.Memory.Root, s.Memory.Machine, s.Memory.Bytes, s.Memory.Until); err != nil {
		return err
	}
	// The memory with it, also when it is none: that of the old head is of
	// another disk.
	if err := t.exec(`UPDATE workspaces SET head = ?, head_seq = ?, head_at = ?, updated = ?,
			memory_root = ?, memory_machine = ?, memory_bytes = ?, memory_until = ? WHERE id = ?`,
		s.Root, s.Seq, s.Created, s.Created, s.Memory.Root, s.Memory.Machine, s.Memory.Bytes, s.Memory.Until, s.Workspace); err != nil {
		return err
	}
	return t.exec("DELETE FROM flush_intents WHERE id = ?", intent)
}

// ExpireIntents implements ledger.Ledger.
func (s *Store) ExpireIntents(ctx context.Context, m ledger.Meta) (n int, err error) {
	err = s.write(ctx, m, "expire flush intents", func(t *tx) error {
		expired, err := all(t, scanIntent, "SELECT "+intentColumns+" FROM flush_intents WHERE expires < ? ORDER BY expires, id", t.meta.Now)
		if err != nil || len(expired) == 0 {
			return err
		}
		if err := t.exec("DELETE FROM flush_intents WHERE expires < ?", t.meta.Now); err != nil {
			return err
		}
		for _, in := range expired {
			if err := t.emit(ledger.EventFlushExpired, about{in.Tenant, in.Region, string(model.SubjectWorkspace), string(in.Subject)},
				map[string]string{"intent": string(in.ID), "instance": string(in.Instance), "seq": fmt.Sprint(in.Seq)}); err != nil {
				return err
			}
		}
		n = len(expired)
		return nil
	})
	if err != nil {
		return 0, err
	}
	return n, nil
}

// Snapshots implements ledger.Ledger.
func (s *Store) Snapshots(ctx context.Context, tenant model.TenantID, ws model.WorkspaceID) (snapshots []model.Snapshot, err error) {
	err = s.read(ctx, "list snapshots", func(t *tx) error {
		snapshots, err = all(t, scanSnapshot, selectSnapshots+" ORDER BY seq DESC", ws, tenant)
		return err
	})
	return snapshots, err
}
