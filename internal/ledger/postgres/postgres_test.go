package postgres_test

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/billethq/billet/internal/errs"
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

// TestOpen_Refused says what to do when there is no database behind the words.
func TestOpen_Refused(t *testing.T) {
	for dsn, kind := range map[string]errs.Kind{
		"host=" + t.TempDir() + " dbname=none": errs.Unavailable, // no socket
		"postgres://%zz":                       errs.Invalid,
		"port=many":                            errs.Invalid,
	} {
		l, err := postgres.Open(dsn, slog.New(slog.DiscardHandler))
		if err == nil {
			_ = l.Close()
		}
		if errs.KindOf(err) != kind || errs.HintOf(err) == "" {
			t.Errorf("%s: got %v (kind %q, hint %q), want kind %q and a hint", dsn, err, errs.KindOf(err), errs.HintOf(err), kind)
		}
	}
	const secret = "correct-horse"
	if _, err := postgres.Open("password="+secret+" port=many", slog.New(slog.DiscardHandler)); err == nil || strings.Contains(err.Error(), secret) {
		t.Errorf("error shows the password: %v", err)
	}
}

// TestLock_EndsWithItsHolder cuts the connection of a server in the middle of a
// transaction: the next writer gets the lock, and nothing is half written.
func TestLock_EndsWithItsHolder(t *testing.T) {
	dsn := testenv.NeedPostgres(t)
	l := open(t, dsn)
	ctx := t.Context()
	holder, err := pgx.Connect(ctx, dsn)
	if err != nil {
		t.Fatal(err)
	}
	admin, err := pgx.Connect(ctx, dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close(ctx)
	for _, statement := range []string{
		"BEGIN", fmt.Sprintf("SELECT pg_advisory_xact_lock(%d)", 0x62696c6c6574),
		"INSERT INTO tenants (tenant, region, created) VALUES ('half', 'written', 0)",
	} {
		if _, err := holder.Exec(ctx, statement); err != nil {
			t.Fatal(err)
		}
	}
	m := ledger.Meta{Now: time.Unix(1, 0)}
	ended := make(chan error, 1)
	go func() { _, err := l.EnsureDeployment(ctx, m, "dep"); ended <- err }()
	waiting := func() bool {
		var n int
		if err := admin.QueryRow(ctx, "SELECT COUNT(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n == 1
	}
	for !waiting() {
		select {
		case err := <-ended:
			t.Fatalf("the writer did not wait for the lock: %v", err)
		default:
		}
	}
	if _, err := admin.Exec(ctx, "SELECT pg_terminate_backend($1)", holder.PgConn().PID()); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	var half int
	if err := admin.QueryRow(ctx, "SELECT COUNT(*) FROM tenants WHERE tenant = 'half'").Scan(&half); err != nil || half != 0 {
		t.Errorf("%d rows of the transaction that was cut are there (%v)", half, err)
	}
}
