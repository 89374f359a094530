package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"runtime"
	"testing"

	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/ledger"
)

// TestRun_CallerGone has the caller go in the middle of a transaction, which
// database/sql then rolls back behind its back: what follows says only that the
// transaction is done.
func TestRun_CallerGone(t *testing.T) {
	s := bare(t)
	hidden := 0 // errors that do not say by themselves that the caller has gone
	for what, next := range map[string]func(*tx) error{
		"commit":    func(*tx) error { return nil },
		"statement": func(t *tx) error { return t.exec("CREATE TABLE kept (x BIGINT)") },
		"query":     func(t *tx) error { _, _, err := one(t, scalar[int], "SELECT 1"); return err },
	} {
		ctx, cancel := context.WithCancel(t.Context())
		err := s.write(ctx, ledger.Meta{}, "work", func(tx *tx) error {
			cancel()
			for { // until it is rolled back
				if _, err := tx.sql.ExecContext(context.Background(), "SELECT 1"); errors.Is(err, sql.ErrTxDone) {
					return next(tx)
				}
				runtime.Gosched()
			}
		})
		if !errs.Is(err, errs.Unavailable) || !errors.Is(err, context.Canceled) {
			t.Errorf("%s: got %v (kind %s), want unavailable because the caller has gone", what, err, errs.KindOf(err))
		}
		if errors.Is(err, sql.ErrTxDone) {
			hidden++
		}
	}
	if hidden == 0 {
		t.Error("no call met a transaction that was done behind its back")
	}
}

// A database that fails by itself is not excused.
func TestRun_FailureOfTheDatabase(t *testing.T) {
	s := bare(t)
	if err := s.write(t.Context(), ledger.Meta{}, "work", func(tx *tx) error { return tx.exec("NONSENSE") }); !errs.Is(err, errs.Internal) {
		t.Errorf("got %v (kind %s), want internal", err, errs.KindOf(err))
	}
}
