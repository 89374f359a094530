package sqlstore

import (
	"context"

	"github.com/billethq/billet/internal/ledger"
	"github.com/billethq/billet/internal/model"
)

// about says whose history an event belongs to.
type about struct {
	tenant model.TenantID
	region model.RegionID
	kind   string // of the subject
	id     string
}

// deployment is the subject of what concerns no other noun.
const deployment = "deployment"

func aboutWorkspace(w model.Workspace) about {
	return about{w.Tenant, w.Region, string(model.SubjectWorkspace), string(w.ID)}
}

func aboutInstance(in model.Instance) about {
	return about{in.Tenant, in.Region, string(in.SubjectKind), string(in.Subject)}
}

// emit appends one event to the transaction that made it true.
func (t *tx) emit(kind string, a about, data map[string]string) error {
	text, err := toJSON(data)
	if err != nil {
		return err
	}
	return t.exec(`INSERT INTO events (tenant, region, at, actor, kind, subject_kind, subject, data)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?)`,
		a.tenant, a.region, t.meta.Now, t.meta.Actor, kind, a.kind, a.id, text)
}

func scanEvent(r row) (e model.Event, err error) {
	err = r.Scan(&e.Seq, &e.Tenant, &e.Region, at{&e.At}, &e.Actor, &e.Kind, &e.SubjectKind, &e.Subject, fromJSON{&e.Data})
	return e, err
}

// Events implements ledger.Ledger.
func (s *Store) Events(ctx context.Context, tenant model.TenantID, subject string, after int64, limit int) (events []model.Event, err error) {
	if limit <= 0 || limit > ledger.MaxEvents {
		limit = ledger.MaxEvents
	}
	query := "SELECT seq, tenant, region, at, actor, kind, subject_kind, subject, data FROM events WHERE seq > ? AND "
	where, args := ofTenant("tenant", tenant)
	query, args = query+where, append([]any{after}, args...)
	if subject != "" {
		query += " AND subject = ?"
		args = append(args, subject)
	}
	err = s.read(ctx, "list events", func(t *tx) error {
		events, err = all(t, scanEvent, query+" ORDER BY seq LIMIT ?", append(args, limit)...)
		return err
	})
	return events, err
}
