package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/ledger"
)

// tx is one transaction of one method. It ends before the method returns,
// which is why it may keep the method's context.
type tx struct {
	ctx   context.Context
	sql   *sql.Tx
	store *Store
	meta  ledger.Meta // Now is in UTC, to the microsecond
}

// write runs fn in a transaction that no other writer overlaps, and commits
// when it returns nil. Errors begin with what was being done.
func (s *Store) write(ctx context.Context, m ledger.Meta, doing string, fn func(*tx) error) error {
	m.Now = stamp(m.Now)
	return s.run(ctx, s.writer, s.dialect.Writing, doing, m, func(t *tx) error {
		if s.dialect.Lock != "" {
			if err := t.exec(s.dialect.Lock); err != nil {
				return err
			}
		}
		return fn(t)
	})
}

// read runs fn on one unchanging view of the ledger.
func (s *Store) read(ctx context.Context, doing string, fn func(*tx) error) error {
	return s.run(ctx, s.reader, s.dialect.Reading, doing, ledger.Meta{}, fn)
}

func (s *Store) run(ctx context.Context, db *sql.DB, options *sql.TxOptions, doing string, m ledger.Meta, fn func(*tx) error) error {
	s.statements.Add(2) // BEGIN and COMMIT
	begun, err := db.BeginTx(ctx, options)
	if err != nil {
		return fmt.Errorf("%s: %w", doing, s.classify(ctx, err))
	}
	if err := fn(&tx{ctx: ctx, sql: begun, store: s, meta: m}); err != nil {
		_ = begun.Rollback() // the error that led here is the one to report
		return fmt.Errorf("%s: %w", doing, err)
	}
	if err := begun.Commit(); err != nil {
		return fmt.Errorf("%s: %w", doing, s.classify(ctx, err))
	}
	return nil
}

// classify gives an error of the database a kind and a hint. Once the caller
// has gone, whatever the database says is its way of saying that: a rolled back
// transaction that is "done", an interrupt, a lost connection. Taken at its word
// it would be logged as a fault of ours.
func (s *Store) classify(ctx context.Context, err error) error {
	if ended := ctx.Err(); ended != nil {
		if !errors.Is(err, ended) {
			err = fmt.Errorf("%w: %w", ended, err)
		}
		return &errs.Error{Kind: errs.Unavailable, Message: "ledger call ended early", Cause: err}
	}
	kind, hint := s.dialect.Classify(err)
	return &errs.Error{Kind: kind, Message: s.dialect.Name, Hint: hint, Cause: err}
}

// exec runs a statement whose effect needs no count.
func (t *tx) exec(query string, args ...any) error {
	_, err := t.execCount(query, args...)
	return err
}

// execCount runs a statement and returns how many rows it changed.
func (t *tx) execCount(query string, args ...any) (int64, error) {
	t.store.statements.Add(1)
	res, err := t.sql.ExecContext(t.ctx, t.store.rebind(query), bind(args)...)
	if err != nil {
		return 0, t.store.classify(t.ctx, err)
	}
	n, err := res.RowsAffected()
	if err != nil {
		return 0, t.store.classify(t.ctx, err)
	}
	return n, nil
}

// row is what a scan function reads one record from.
type row interface{ Scan(dest ...any) error }

// all runs a query and scans every row of it.
func all[T any](t *tx, scan func(row) (T, error), query string, args ...any) ([]T, error) {
	t.store.statements.Add(1)
	rows, err := t.sql.QueryContext(t.ctx, t.store.rebind(query), bind(args)...)
	if err != nil {
		return nil, t.store.classify(t.ctx, err)
	}
	defer rows.Close()
	var out []T
	for rows.Next() {
		v, err := scan(rows)
		if err != nil {
			return nil, t.store.classify(t.ctx, err)
		}
		out = append(out, v)
	}
	if err := rows.Err(); err != nil {
		return nil, t.store.classify(t.ctx, err)
	}
	return out, nil
}

// one scans the first row of a query; found is false when there is none.
func one[T any](t *tx, scan func(row) (T, error), query string, args ...any) (v T, found bool, err error) {
	vs, err := all(t, scan, query, args...)
	if err != nil || len(vs) == 0 {
		return v, false, err
	}
	return vs[0], true, nil
}

// scalar scans a single column.
func scalar[T any](r row) (v T, err error) {
	err = r.Scan(&v)
	return v, err
}

// rebind turns ? into $1, $2 where the database wants that. No statement of
// ours has a question mark in a literal.
func (s *Store) rebind(query string) string {
	if !s.dialect.Numbered {
		return query
	}
	var b strings.Builder
	for n := 1; ; n++ {
		before, after, found := strings.Cut(query, "?")
		b.WriteString(before)
		if !found {
			return b.String()
		}
		b.WriteByte('$')
		b.WriteString(strconv.Itoa(n))
		query = after
	}
}

// stamp brings a time to what the ledger keeps: microseconds in UTC.
func stamp(t time.Time) time.Time { return time.UnixMicro(t.UnixMicro()).UTC() }
