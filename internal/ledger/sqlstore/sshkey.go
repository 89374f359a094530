package sqlstore

import (
	"context"
	"fmt"

	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/ledger"
	"github.com/billethq/billet/internal/model"
)

const selectSSHKeys = "SELECT k.id, k.tenant, k.region, k.principal, k.name, k.fingerprint, k.public_key, k.created, " +
	principalColumns + " FROM ssh_keys k JOIN principals p ON p.id = k.principal"

func scanSSHKey(r row) (rec ledger.SSHKeyRecord, err error) {
	k := &rec.Key
	err = r.Scan(append([]any{&k.ID, &k.Tenant, &k.Region, &k.Principal, &k.Name, &k.Fingerprint, &k.PublicKey, at{&k.Created}},
		principalDest(&rec.Principal)...)...)
	return rec, err
}

func aboutSSHKey(k model.SSHKey) about {
	return about{k.Tenant, k.Region, "ssh_key", string(k.ID)}
}

// Principal implements ledger.Ledger.
func (s *Store) Principal(ctx context.Context, id model.PrincipalID) (p model.Principal, err error) {
	err = s.read(ctx, fmt.Sprintf("find principal %s", id), func(t *tx) error {
		found := false
		if p, found, err = one(t, scanPrincipal, "SELECT "+principalColumns+" FROM principals p WHERE p.id = ?", id); err != nil {
			return err
		}
		if !found {
			return errs.New(errs.NotFound, "there is no such principal")
		}
		return nil
	})
	return p, err
}

// AddSSHKey implements ledger.Ledger.
func (s *Store) AddSSHKey(ctx context.Context, m ledger.Meta, k model.SSHKey) error {
	return s.write(ctx, m, fmt.Sprintf("add ssh key %q", k.Name), func(t *tx) error {
		if _, found, err := one(t, scalar[string], "SELECT id FROM principals WHERE id = ? AND tenant = ?", k.Principal, k.Tenant); err != nil {
			return err
		} else if !found {
			return errs.New(errs.NotFound, "there is no principal %s", k.Principal)
		}
		if _, taken, err := one(t, scalar[string], "SELECT id FROM ssh_keys WHERE fingerprint = ?", k.Fingerprint); err != nil {
			return err
		} else if taken {
			return errs.New(errs.Conflict, "this key is known already").WithHint("a key is one principal's; `billet ssh-key ls` lists yours")
		}
		if _, taken, err := one(t, scalar[string], "SELECT id FROM ssh_keys WHERE principal = ? AND name = ?", k.Principal, k.Name); err != nil {
			return err
		} else if taken {
			return errs.New(errs.Conflict, "the name is taken").WithHint("choose another one with --name; `billet ssh-key ls` lists them")
		}
		if err := t.exec("INSERT INTO ssh_keys (id, tenant, region, principal, name, fingerprint, public_key, created) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
			k.ID, k.Tenant, k.Region, k.Principal, k.Name, k.Fingerprint, k.PublicKey, t.meta.Now); err != nil {
			return err
		}
		return t.emit(ledger.EventSSHKeyAdded, aboutSSHKey(k), map[string]string{"name": k.Name, "principal": string(k.Principal), "fingerprint": k.Fingerprint})
	})
}

// SSHKeys implements ledger.Ledger.
func (s *Store) SSHKeys(ctx context.Context, tenant model.TenantID) (keys []ledger.SSHKeyRecord, err error) {
	where, args := ofTenant("k.tenant", tenant)
	err = s.read(ctx, "list ssh keys", func(t *tx) error {
		keys, err = all(t, scanSSHKey, selectSSHKeys+" WHERE "+where+" ORDER BY p.name, k.name", args...)
		return err
	})
	return keys, err
}

// SSHKey implements ledger.Ledger.
func (s *Store) SSHKey(ctx context.Context, fingerprint string) (rec ledger.SSHKeyRecord, err error) {
	err = s.read(ctx, "find ssh key", func(t *tx) error {
		found := false
		if rec, found, err = one(t, scanSSHKey, selectSSHKeys+" WHERE k.fingerprint = ?", fingerprint); err != nil {
			return err
		}
		if !found {
			return errs.New(errs.Unauthenticated, "the key is not known").WithHint("tell billet of it with: billet ssh-key add")
		}
		return nil
	})
	return rec, err
}

// RemoveSSHKey implements ledger.Ledger.
func (s *Store) RemoveSSHKey(ctx context.Context, m ledger.Meta, tenant model.TenantID, id model.SSHKeyID) error {
	return s.write(ctx, m, fmt.Sprintf("remove ssh key %s", id), func(t *tx) error {
		rec, found, err := one(t, scanSSHKey, selectSSHKeys+" WHERE k.id = ? AND k.tenant = ?", id, tenant)
		if err != nil {
			return err
		}
		if !found {
			return errs.New(errs.NotFound, "there is no such key").WithHint("`billet ssh-key ls` lists them")
		}
		return t.removeSSHKey(rec.Key)
	})
}

func (t *tx) removeSSHKey(k model.SSHKey) error {
	if err := t.exec("DELETE FROM ssh_keys WHERE id = ?", k.ID); err != nil {
		return err
	}
	return t.emit(ledger.EventSSHKeyRemoved, aboutSSHKey(k), map[string]string{"name": k.Name})
}
