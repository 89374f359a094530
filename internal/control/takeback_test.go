package control

import (
	"context"
	"testing"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/ledger"
	"github.com/billethq/billet/internal/model"
)

// fullLedger refuses placements, as when the fleet fills up between admission
// and placement. before runs in the middle of one.
type fullLedger struct {
	ledger.Ledger
	refuse int
	before func(model.Instance, ledger.Ceiling)
}

func (l *fullLedger) Place(ctx context.Context, m ledger.Meta, in model.Instance, c ledger.Ceiling) (model.Instance, error) {
	if l.refuse == 0 {
		return l.Ledger.Place(ctx, m, in, c)
	}
	l.refuse--
	if l.before != nil {
		l.before(in, c)
	}
	return in, errs.New(errs.Exhausted, "no room any more")
}

// invariant 7: a creation that was taken back can be asked for again.
func TestCreate_TakenBackIsRepeatable(t *testing.T) {
	w := newWorld(t)
	w.host("a")
	full := &fullLedger{Ledger: w.cfg.Ledger, refuse: 1}
	w.cfg.Ledger = full
	req := api.CreateWorkspaceRequest{Name: "one"}
	if _, err := w.CreateWorkspace(t.Context(), w.who, "key", req); !errs.Is(err, errs.Exhausted) || full.refuse != 0 {
		t.Fatalf("got %v, want the refusal of the placement", err)
	}
	if l, err := w.Workspaces(t.Context(), w.who); err != nil || len(l) != 0 {
		t.Fatalf("workspaces after the refusal: %+v, %v, want none", l, err)
	}
	ws, err := w.CreateWorkspace(t.Context(), w.who, "key", req)
	if err != nil || ws.Instance == nil {
		t.Fatalf("the same again: %+v, %v, want it placed", ws, err)
	}
	again, err := w.CreateWorkspace(t.Context(), w.who, "key", req)
	if err != nil || again.ID != ws.ID {
		t.Errorf("and again: %+v, %v, want the same workspace", again, err)
	}
}

// What the reconciler has placed meanwhile is not taken back.
func TestCreate_PlacedMeanwhileStays(t *testing.T) {
	w := newWorld(t)
	w.host("a")
	full := &fullLedger{Ledger: w.cfg.Ledger, refuse: 1}
	full.before = func(in model.Instance, c ledger.Ceiling) {
		if _, err := full.Ledger.Place(t.Context(), w.meta(""), in, c); err != nil {
			t.Error(err)
		}
	}
	w.cfg.Ledger = full
	ws, err := w.CreateWorkspace(t.Context(), w.who, "key", api.CreateWorkspaceRequest{Name: "one"})
	if err != nil || ws.Instance == nil || full.refuse != 0 {
		t.Errorf("got %+v, %v, want the instance that the reconciler placed", ws, err)
	}
}
