package postgres_test

import (
	"log/slog"
	"testing"

	"github.com/billethq/billet/internal/ledger"
	"github.com/billethq/billet/internal/ledger/ledgertest"
	"github.com/billethq/billet/internal/ledger/postgres"
	"github.com/billethq/billet/internal/ledger/sqlstore"
	"github.com/billethq/billet/internal/testenv"
)

func TestConformance(t *testing.T) { ledgertest.Run(t, fresh) }

func BenchmarkLife(b *testing.B)       { ledgertest.BenchmarkLife(b, fresh) }
func BenchmarkWorkspaces(b *testing.B) { ledgertest.BenchmarkWorkspaces(b, fresh) }

func fresh(t testing.TB) func() ledger.Ledger {
	dsn := testenv.NeedPostgres(t)
	return func() ledger.Ledger { return open(t, dsn) }
}

func open(t testing.TB, dsn string) *sqlstore.Store {
	t.Helper()
	l, err := postgres.Open(dsn, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}
