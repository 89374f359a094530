package control

import (
	"context"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/model"
)

// maxEvents bounds one page of events.
const maxEvents = 1000

// Events implements api.Service.
func (c *Control) Events(ctx context.Context, who model.Principal, ref string, after int64, limit int) ([]api.Event, error) {
	subject := ""
	if ref != "" {
		ws, err := c.find(ctx, who, ref)
		if err != nil {
			return nil, err
		}
		subject = string(ws.ID)
	}
	if limit <= 0 || limit > maxEvents {
		limit = maxEvents
	}
	evs, err := c.cfg.Ledger.Events(ctx, who.Tenant, subject, after, limit)
	if err != nil {
		return nil, err
	}
	out := make([]api.Event, 0, len(evs))
	for _, e := range evs {
		out = append(out, api.Event{Seq: e.Seq, At: e.At, Actor: string(e.Actor), Kind: e.Kind, SubjectKind: e.SubjectKind, Subject: e.Subject, Data: e.Data})
	}
	return out, nil
}

// WaitEvents implements api.Service.
func (c *Control) WaitEvents(ctx context.Context, who model.Principal, after int64) error {
	for {
		next := c.changed.next()
		evs, err := c.cfg.Ledger.Events(ctx, who.Tenant, "", after, 1)
		if err != nil || len(evs) > 0 {
			return err
		}
		select {
		case <-next:
		case <-ctx.Done():
			return nil
		}
	}
}
