package sqlstore

import (
	"context"
	"fmt"

	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/ledger"
	"github.com/billethq/billet/internal/model"
)

// selectWorkspaces joins the epoch from the subject, its only home.
const (
	selectWorkspaces = `SELECT w.id, w.tenant, w.region, w.owner, w.name, w.class, w.tier,
		w.vcpus, w.memory, w.disk, w.processes, w.open_files, w.image, w.base, w.head, w.head_seq, w.head_at,
		w.memory_root, w.memory_machine, w.memory_bytes, w.memory_until, s.epoch, w.desired, w.failure, w.created, w.updated
		FROM workspaces w JOIN subjects s ON s.kind = 'workspace' AND s.id = w.id`
	whereWorkspaceRef = " WHERE w.tenant = ? AND (w.id = ? OR w.name = ?) ORDER BY (w.id = ?) DESC"
	whereWorkspaceID  = " WHERE w.id = ? AND w.tenant = ?"
)

func scanWorkspace(r row) (w model.Workspace, err error) {
	err = r.Scan(&w.ID, &w.Tenant, &w.Region, &w.Owner, &w.Name, &w.Class, &w.Tier,
		&w.Shape.VCPUs, &w.Shape.Memory, &w.Shape.Disk, &w.Shape.Processes, &w.Shape.OpenFiles,
		&w.Image, &w.Base, &w.Head, &w.HeadSeq, at{&w.HeadAt},
		&w.Memory.Root, &w.Memory.Machine, &w.Memory.Bytes, at{&w.Memory.Until}, &w.Epoch, &w.Desired, &w.Failure, at{&w.Created}, at{&w.Updated})
	return w, err
}

func noWorkspace(ref string) error {
	return errs.New(errs.NotFound, "there is no workspace %q", ref).WithHint("`billet ws ls` lists them")
}

// workspace finds by id.
func (t *tx) workspace(tenant model.TenantID, id model.WorkspaceID) (model.Workspace, error) {
	w, found, err := one(t, scanWorkspace, selectWorkspaces+whereWorkspaceID, id, tenant)
	if err == nil && !found {
		err = noWorkspace(string(id))
	}
	return w, err
}

// freeName refuses a name that another workspace has.
func (t *tx) freeName(name string) error {
	_, taken, err := one(t, scalar[string], "SELECT id FROM workspaces WHERE name = ?", name)
	if err == nil && taken {
		return errs.New(errs.Conflict, "the name %q is taken", name).WithHint("choose another name; `billet ws ls` lists them")
	}
	return err
}

// CreateWorkspace implements ledger.Ledger.
func (s *Store) CreateWorkspace(ctx context.Context, m ledger.Meta, w model.Workspace, idem ledger.Idempotency) (got model.Workspace, created bool, err error) {
	err = s.write(ctx, m, fmt.Sprintf("create workspace %q", w.Name), func(t *tx) error {
		var repeated bool
		if got, repeated, err = t.created(w.Tenant, idem); err != nil || repeated {
			return err
		}
		if w.Desired != model.DesiredRunning && w.Desired != model.DesiredHibernated && w.Desired != model.DesiredStopped {
			return errs.New(errs.Invalid, "a workspace cannot be made with desired %q", w.Desired)
		}
		if err := t.freeName(w.Name); err != nil {
			return err
		}
		if err := t.insertWorkspace(w); err != nil {
			return err
		}
		if err := t.noteCreation(idem, w); err != nil {
			return err
		}
		if err := t.emit(ledger.EventWorkspaceCreated, aboutWorkspace(w), map[string]string{
			"name": w.Name, "image": w.Image, "tier": w.Tier, "base": string(w.Base), "desired": string(w.Desired),
		}); err != nil {
			return err
		}
		created = true
		got, err = t.workspace(w.Tenant, w.ID)
		return err
	})
	if err != nil {
		return model.Workspace{}, false, err
	}
	return got, created, nil
}

// insertWorkspace makes the subject and the workspace on it. A subject that is
// there already had a workspace of this id once: the id is not used again.
func (t *tx) insertWorkspace(w model.Workspace) error {
	n, err := t.execCount("INSERT INTO subjects (kind, id, tenant, region, epoch) VALUES ('workspace', ?, ?, ?, 0) ON CONFLICT (kind, id) DO NOTHING",
		w.ID, w.Tenant, w.Region)
	if err != nil {
		return err
	}
	if n == 0 {
		return errs.New(errs.Conflict, "the id %s has been used before", w.ID)
	}
	return t.exec(`INSERT INTO workspaces (id, tenant, region, owner, name, class, tier, vcpus, memory, disk, processes, open_files,
			image, base, head, head_seq, head_at, memory_root, memory_machine, memory_bytes, memory_until, desired, failure, created, updated)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0, ?, ?, ?, ?, ?, ?, '', ?, ?)`,
		w.ID, w.Tenant, w.Region, w.Owner, w.Name, w.Class, w.Tier,
		w.Shape.VCPUs, w.Shape.Memory, w.Shape.Disk, w.Shape.Processes, w.Shape.OpenFiles,
		w.Image, w.Base, w.Base, t.meta.Now, w.Memory.Root, w.Memory.Machine, w.Memory.Bytes, w.Memory.Until, w.Desired, t.meta.Now, t.meta.Now)
}

// Workspace implements ledger.Ledger.
func (s *Store) Workspace(ctx context.Context, tenant model.TenantID, ref string) (w model.Workspace, err error) {
	err = s.read(ctx, "find workspace", func(t *tx) error {
		var found bool
		w, found, err = one(t, scanWorkspace, selectWorkspaces+whereWorkspaceRef, tenant, ref, ref, ref)
		if err == nil && !found {
			err = noWorkspace(ref)
		}
		return err
	})
	return w, err
}

// Workspaces implements ledger.Ledger.
func (s *Store) Workspaces(ctx context.Context, tenant model.TenantID) (workspaces []model.Workspace, err error) {
	where, args := ofTenant("w.tenant", tenant)
	err = s.read(ctx, "list workspaces", func(t *tx) error {
		workspaces, err = all(t, scanWorkspace, selectWorkspaces+" WHERE "+where+" ORDER BY w.name", args...)
		return err
	})
	return workspaces, err
}

// RenameWorkspace implements ledger.Ledger.
func (s *Store) RenameWorkspace(ctx context.Context, m ledger.Meta, tenant model.TenantID, id model.WorkspaceID, name string) error {
	return s.write(ctx, m, fmt.Sprintf("rename workspace %s", id), func(t *tx) error {
		w, err := t.workspace(tenant, id)
		if err != nil {
			return err
		}
		if w.Name == text(name) {
			return nil
		}
		if err := t.freeName(name); err != nil {
			return err
		}
		if err := t.exec("UPDATE workspaces SET name = ?, updated = ? WHERE id = ?", name, t.meta.Now, id); err != nil {
			return err
		}
		return t.emit(ledger.EventWorkspaceRenamed, aboutWorkspace(w), map[string]string{"from": w.Name, "to": name})
	})
}

// SetDesired implements ledger.Ledger.
func (s *Store) SetDesired(ctx context.Context, m ledger.Meta, tenant model.TenantID, id model.WorkspaceID, d model.Desired) (w model.Workspace, err error) {
	err = s.write(ctx, m, fmt.Sprintf("set desired of workspace %s to %s", id, d), func(t *tx) error {
		if w, err = t.workspace(tenant, id); err != nil {
			return err
		}
		w, err = t.setDesired(w, d)
		return err
	})
	if err != nil {
		return model.Workspace{}, err
	}
	return w, nil
}

// setDesired changes what the owner wants of w, and returns w as it is then.
func (t *tx) setDesired(w model.Workspace, d model.Desired) (model.Workspace, error) {
	failure := w.Failure
	switch d {
	case model.DesiredRunning:
		failure = model.CauseNone
	case model.DesiredHibernated, model.DesiredStopped, model.DesiredDeleted:
	default:
		return w, errs.New(errs.Invalid, "no workspace can be desired %q", d)
	}
	if d == w.Desired && failure == w.Failure {
		return w, nil
	}
	if w.Desired == model.DesiredDeleted {
		return w, errs.New(errs.Conflict, "workspace %s is being deleted", w.Name).WithHint("make a new one; its name is free when the deletion is done")
	}
	w.Desired, w.Failure, w.Updated = d, failure, t.meta.Now
	if err := t.putDesired(w); err != nil {
		return w, err
	}
	if err := t.noteDesired(w, model.SleepAsked); err != nil {
		return w, err
	}
	if d == model.DesiredStopped {
		w.Memory = model.Memory{}
	}
	return w, t.emit(ledger.EventWorkspaceDesired, aboutWorkspace(w), map[string]string{"desired": string(d)})
}

// putDesired records what is wanted. One that is to be stopped, or has failed,
// boots when it comes back: its memory would bring back what was ended.
func (t *tx) putDesired(w model.Workspace) error {
	if w.Desired == model.DesiredStopped && w.Memory.Root != "" {
		if err := t.forgetMemory(w); err != nil {
			return err
		}
	}
	return t.exec("UPDATE workspaces SET desired = ?, failure = ?, updated = ? WHERE id = ?", w.Desired, w.Failure, w.Updated, w.ID)
}

// failWorkspace records an unasked end: the cause, and that nobody but a person
// starts it again. A deletion goes on.
func (t *tx) failWorkspace(tenant model.TenantID, id model.WorkspaceID, cause model.Cause) error {
	w, found, err := one(t, scanWorkspace, selectWorkspaces+whereWorkspaceID, id, tenant)
	if err != nil || !found {
		return err
	}
	if w.Desired != model.DesiredDeleted {
		w.Desired = model.DesiredStopped
	}
	w.Failure, w.Updated = cause, t.meta.Now
	if err := t.putDesired(w); err != nil {
		return err
	}
	return t.emit(ledger.EventWorkspaceFailed, aboutWorkspace(w), map[string]string{"cause": string(cause)})
}

// RemoveWorkspace implements ledger.Ledger.
func (s *Store) RemoveWorkspace(ctx context.Context, m ledger.Meta, tenant model.TenantID, id model.WorkspaceID) error {
	return s.write(ctx, m, fmt.Sprintf("remove workspace %s", id), func(t *tx) error {
		w, err := t.workspace(tenant, id)
		if err != nil {
			return err
		}
		if w.Desired != model.DesiredDeleted {
			return errs.New(errs.Conflict, "workspace %s is desired %s, not deleted", w.Name, w.Desired)
		}
		if err := t.noLive(tenant, model.SubjectWorkspace, model.SubjectID(id)); err != nil {
			return err
		}
		return t.removeWorkspace(w)
	})
}

// removeWorkspace deletes the record, and with it what pinned its roots, so that
// their bytes can go too.
func (t *tx) removeWorkspace(w model.Workspace) error {
	for _, table := range []string{
		"DELETE FROM flush_intents WHERE subject = ?",
		"DELETE FROM snapshots WHERE workspace = ?",
		"DELETE FROM terms WHERE workspace = ?",
		"DELETE FROM shares WHERE workspace = ?",
		"DELETE FROM holds WHERE workspace = ?",
		"DELETE FROM sleeps WHERE workspace = ?",
		"DELETE FROM workspaces WHERE id = ?",
	} {
		if err := t.exec(table, w.ID); err != nil {
			return err
		}
	}
	return t.emit(ledger.EventWorkspaceRemoved, aboutWorkspace(w), map[string]string{"name": w.Name, "head": string(w.Head)})
}
