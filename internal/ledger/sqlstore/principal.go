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
		found := false
		if got, found, err = one(t, scanPrincipal, "SELECT "+principalColumns+" FROM principals p WHERE p.name = ?", p.Name); err != nil {
			return err
		}
		if found && got.Tenant != p.Tenant {
			return errs.New(errs.Conflict, "the name is taken").WithHint("choose another name")
		}
		if found {
			if got.Class != p.Class || got.Role != p.Role {
				return errs.New(errs.Conflict, "it exists with class %s and role %s, asked for %s and %s", got.Class, got.Role, p.Class, p.Role).
					WithHint("choose another name, or ask for the class and role it has")
			}
			return nil
		}
		got, got.Created = p, t.meta.Now
		if err := t.exec("INSERT INTO principals (id, tenant, region, name, class, role, created) VALUES (?, ?, ?, ?, ?, ?, ?)",
			p.ID, p.Tenant, p.Region, p.Name, p.Class, p.Role, got.Created); err != nil {
			return err
		}
		return t.emit(ledger.EventPrincipalCreated, about{p.Tenant, p.Region, "principal", string(p.ID)},
			map[string]string{"name": p.Name, "class": string(p.Class), "role": string(p.Role)})
	})
	if err != nil {
		return model.Principal{}, err
	}
	return got, nil
}
