// Package sqlstore is the ledger in SQL that SQLite and PostgreSQL both run.
//
// Each method of the port is one transaction. Writers run one after another:
// SQLite by BEGIN IMMEDIATE, PostgreSQL by a lock that a writer takes first
// (Dialect.Lock). So a method reads what it decides upon, decides, and writes,
// and nothing changes in between; the sequence numbers of events are the order
// of commits, so a reader that follows them misses none. Readers never wait.
// docs/decisions/0006-ledger-sql.md has the reasons and the price.
package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"

	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/ledger"
	"github.com/billethq/billet/internal/model"
)

// Dialect is everything in which one database differs from another.
type Dialect struct {
	Name string
	// Lock makes a writer wait until the writer before it has ended; "" when
	// beginning the transaction does.
	Lock string
	// Writing and Reading begin transactions. Each statement of a writer must
	// see what was committed before it took the lock; all statements of a
	// reader must see the same.
	Writing, Reading *sql.TxOptions
	// Numbered placeholders are $1, $2 instead of ?.
	Numbered bool
	// DDL turns the types of the migrations, which are SQLite's, into this
	// database's.
	DDL *strings.Replacer
	// Classify says what an error of the driver means to a caller.
	Classify func(error) (kind errs.Kind, hint string)
}

// Config is what New needs. The Store closes both pools.
type Config struct {
	Write   *sql.DB
	Read    *sql.DB
	Dialect Dialect
	Log     *slog.Logger
}

// Store implements ledger.Ledger.
type Store struct {
	writer, reader *sql.DB
	dialect        Dialect
	log            *slog.Logger
	statements     atomic.Int64
}

var _ ledger.Ledger = (*Store)(nil)

// New brings the schema up to date and returns the store. When that fails it
// closes the pools.
func New(ctx context.Context, c Config) (*Store, error) {
	if c.Write == nil || c.Read == nil || c.Dialect.Classify == nil || c.Log == nil {
		return nil, errs.New(errs.Internal, "ledger store without database, dialect or log")
	}
	s := &Store{writer: c.Write, reader: c.Read, dialect: c.Dialect, log: c.Log}
	if err := s.migrate(ctx, embedded()); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// ofTenant is the condition that selects a tenant's rows, or every tenant's.
func ofTenant(column string, tenant model.TenantID) (where string, args []any) {
	if tenant == ledger.AllTenants {
		return "true", nil
	}
	return column + " = ?", []any{tenant}
}

// Close ends both pools; methods running meanwhile fail.
func (s *Store) Close() error {
	if err := errors.Join(s.reader.Close(), s.writer.Close()); err != nil {
		return fmt.Errorf("close ledger: %w", err)
	}
	return nil
}

// Statements returns how many statements the store has sent to its database,
// BEGIN and COMMIT included.
func (s *Store) Statements() int64 { return s.statements.Load() }
