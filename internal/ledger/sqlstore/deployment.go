package sqlstore

import (
	"context"

	"github.com/billethq/billet/internal/ledger"
	"github.com/billethq/billet/internal/model"
)

func scanDeployment(r row) (d ledger.Deployment, err error) {
	err = r.Scan(&d.ID, at{&d.Created})
	return d, err
}

// EnsureDeployment implements ledger.Ledger.
func (s *Store) EnsureDeployment(ctx context.Context, m ledger.Meta, id string) (d ledger.Deployment, err error) {
	err = s.write(ctx, m, "ensure deployment", func(t *tx) error {
		found := false
		if d, found, err = one(t, scanDeployment, "SELECT id, created FROM deployments"); err != nil || found {
			return err
		}
		d = ledger.Deployment{ID: id, Created: t.meta.Now}
		if err := t.exec("INSERT INTO deployments (id, tenant, region, created) VALUES (?, ?, ?, ?)",
			d.ID, model.DefaultTenant, model.DefaultRegion, d.Created); err != nil {
			return err
		}
		if err := t.exec("INSERT INTO tenants (tenant, region, created) VALUES (?, ?, ?)",
			model.DefaultTenant, model.DefaultRegion, d.Created); err != nil {
			return err
		}
		return t.emit(ledger.EventDeploymentCreated, about{model.DefaultTenant, model.DefaultRegion, deployment, id}, nil)
	})
	return d, err
}
