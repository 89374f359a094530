package sqlstore

import (
	"context"
	"fmt"

	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/ledger"
	"github.com/billethq/billet/internal/model"
)

const principalColumns = "p.id, p.tenant, p.region, p.name, p.class, p.role, p.created"

func principalDest(p *model.Principal) []any {
	return []any{&p.ID, &p.Tenant, &p.Region, &p.Name, &p.Class, &p.Role, at{&p.Created}}
}

func scanPrincipal(r row) (p model.Principal, err error) {
	err = r.Scan(principalDest(&p)...)
	return p, err
}

// EnsurePrincipal implements ledger.Ledger.
func (s *Store) EnsurePrincipal(ctx context.Context, m ledger.Meta, p model.Principal) (got model.Principal, err error) {
	err = s.write(ctx, m, fmt.Sprintf("ensure principal %q", p.Name), func(t *tx) error {
		got, err = t.ensurePrincipal(p)
		return err
	})
	if err != nil {
		return model.Principal{}, err
	}
	return got, nil
}

func (t *tx) ensurePrincipal(p model.Principal) (model.Principal, error) {
	got, found, err := one(t, scanPrincipal, "SELECT "+principalColumns+" FROM principals p WHERE p.name = ?", p.Name)
	switch {
	case err != nil:
		return got, err
	case found && got.Tenant != p.Tenant:
		return got, errs.New(errs.Conflict, "the name is taken").WithHint("choose another name")
	case found && (got.Class != p.Class || got.Role != p.Role):
		return got, errs.New(errs.Conflict, "it exists with class %s and role %s, asked for %s and %s", got.Class, got.Role, p.Class, p.Role).
			WithHint("choose another name, or delete its token first")
	case found:
		return got, nil
	}
	p.Created = t.meta.Now
	if err := t.exec("INSERT INTO principals (id, tenant, region, name, class, role, created) VALUES (?, ?, ?, ?, ?, ?, ?)",
		p.ID, p.Tenant, p.Region, p.Name, p.Class, p.Role, p.Created); err != nil {
		return p, err
	}
	return p, t.emit(ledger.EventPrincipalCreated, aboutPrincipal(p), map[string]string{"name": p.Name, "class": string(p.Class), "role": string(p.Role)})
}

func aboutPrincipal(p model.Principal) about {
	return about{p.Tenant, p.Region, "principal", string(p.ID)}
}

// removePrincipal ends a principal whose last token is gone. Were it kept, a
// later token of its name would lend its new role to whoever still has one of
// its keys or certificates.
func (t *tx) removePrincipal(p model.Principal) error {
	keys, err := all(t, scanSSHKey, selectSSHKeys+" WHERE k.principal = ? ORDER BY k.name", p.ID)
	if err != nil {
		return err
	}
	for _, k := range keys {
		if err := t.removeSSHKey(k.Key); err != nil {
			return err
		}
	}
	if err := t.exec("DELETE FROM principals WHERE id = ?", p.ID); err != nil {
		return err
	}
	return t.emit(ledger.EventPrincipalRemoved, aboutPrincipal(p), map[string]string{"name": p.Name})
}
