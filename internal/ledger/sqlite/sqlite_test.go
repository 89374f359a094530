package sqlite_test

import (
	"log/slog"
	"path/filepath"
	"testing"

	"github.com/billethq/billet/internal/ledger"
	"github.com/billethq/billet/internal/ledger/ledgertest"
	"github.com/billethq/billet/internal/ledger/sqlite"
	"github.com/billethq/billet/internal/ledger/sqlstore"
)

func TestConformance(t *testing.T) { ledgertest.Run(t, fresh) }

func BenchmarkLife(b *testing.B)       { ledgertest.BenchmarkLife(b, fresh) }
func BenchmarkWorkspaces(b *testing.B) { ledgertest.BenchmarkWorkspaces(b, fresh) }

func fresh(t testing.TB) func() ledger.Ledger {
	path := filepath.Join(t.TempDir(), "ledger.db")
	return func() ledger.Ledger { return open(t, path) }
}

func open(t testing.TB, path string) *sqlstore.Store {
	t.Helper()
	l, err := sqlite.Open(path, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}
