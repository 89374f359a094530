// Package postgres is the ledger in a PostgreSQL database, for a control plane
// of more than one server.
//
// Writers of all servers take one lock, so that they run one after another
// exactly as in SQLite; readers take none. The lock ends with its transaction,
// whatever becomes of the server that held it.
package postgres

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/ledger/sqlstore"
)

const (
	// readers bounds the connections that read.
	readers = 8
	// writers is small, since only one of them ever writes; the others wait
	// for it at the lock, which costs less than connecting in turn.
	writers = 2
	// idleTimeout ends the transaction, and with it the lock, of a server that
	// has stopped in the middle of one.
	idleTimeout = 30 * time.Second
	// openTimeout bounds Open, migrations included.
	openTimeout = time.Minute
	// writerLock is the advisory lock of the ledger: "billet" as a number.
	writerLock = 0x62696c6c6574
)

// Open connects to the database that dsn names (a URL, or words such as
// "host=/run/postgresql dbname=billet") and brings its schema up to date.
// errs.Unavailable when it does not answer.
func Open(dsn string, log *slog.Logger) (*sqlstore.Store, error) {
	store, err := open(dsn, log)
	if err != nil {
		return nil, fmt.Errorf("open ledger in postgres: %w", err)
	}
	return store, nil
}

func open(dsn string, log *slog.Logger) (*sqlstore.Store, error) {
	ctx, cancel := context.WithTimeout(context.Background(), openTimeout)
	defer cancel()
	cfg, err := pgx.ParseConfig(dsn)
	if err != nil {
		// The driver's message leaves passwords out.
		return nil, errs.New(errs.Invalid, "%v", err).WithHint("give a URL such as postgres://user@host/billet, or words such as host=/run/postgresql dbname=billet")
	}
	cfg.RuntimeParams["application_name"] = "billet"
	cfg.RuntimeParams["idle_in_transaction_session_timeout"] = fmt.Sprint(idleTimeout.Milliseconds())
	// Acknowledged is durable, whatever the server's default says.
	cfg.RuntimeParams["synchronous_commit"] = "on"
	return sqlstore.New(ctx, sqlstore.Config{
		Write: pool(cfg, writers), Read: pool(cfg, readers), Dialect: dialect(), Log: log,
	})
}

func pool(cfg *pgx.ConnConfig, n int) *sql.DB {
	db := stdlib.OpenDB(*cfg)
	db.SetMaxOpenConns(n)
	db.SetMaxIdleConns(n)
	return db
}

func dialect() sqlstore.Dialect {
	return sqlstore.Dialect{
		Name: "postgres",
		Lock: fmt.Sprintf("SELECT pg_advisory_xact_lock(%d)", int64(writerLock)),
		// A snapshot of the whole transaction would be taken before the lock
		// is, and miss what the writer before it did.
		Writing:  &sql.TxOptions{Isolation: sql.LevelReadCommitted},
		Reading:  &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true},
		Numbered: true,
		// Names sort by bytes, as in SQLite, whatever the database's locale.
		DDL: strings.NewReplacer(
			"INTEGER PRIMARY KEY AUTOINCREMENT", "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
			"BLOB", "BYTEA",
			"TEXT", `TEXT COLLATE "C"`,
		),
		Classify: classify,
	}
}

// classify gives a kind and a hint to an error of the driver, by the classes of
// SQLSTATE (PostgreSQL manual, appendix A).
func classify(err error) (errs.Kind, string) {
	var e *pgconn.PgError
	if !errors.As(err, &e) {
		if lost(err) {
			return errs.Unavailable, "check that the database runs and that the DSN names it"
		}
		return errs.Internal, ""
	}
	switch {
	case e.Code == "23505": // unique_violation
		return errs.Conflict, "what is to be made exists already"
	case e.Code == "25P03": // idle_in_transaction_session_timeout
		return errs.Unavailable, ""
	case strings.HasPrefix(e.Code, "08"), strings.HasPrefix(e.Code, "57P"): // connection, shutdown
		return errs.Unavailable, "check that the database runs"
	case strings.HasPrefix(e.Code, "40"): // rolled back: deadlock, serialization
		return errs.Unavailable, "try again"
	case strings.HasPrefix(e.Code, "53"): // disk full, too many connections
		return errs.Exhausted, "the database server is out of a resource; see its log"
	case strings.HasPrefix(e.Code, "XX"): // data corrupted
		return errs.Internal, "the database is damaged; restore a backup: nothing makes a ledger of the object store"
	}
	return errs.Internal, ""
}

// lost reports whether the connection is what failed.
func lost(err error) bool {
	var connect *pgconn.ConnectError
	var network net.Error
	return errors.As(err, &connect) || errors.As(err, &network) || pgconn.Timeout(err) ||
		errors.Is(err, driver.ErrBadConn) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}
