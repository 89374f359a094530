// Package sqlite is the ledger in one SQLite file: the embedded default.
//
// What a method has acknowledged is on the disk: the file is in WAL mode with
// synchronous=FULL, so that each commit waits for the log. The file belongs to
// one server process; a second one waits and then gets errs.Unavailable.
package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/ledger/sqlstore"
)

const (
	// readers bounds the connections that read; each holds its own page cache.
	readers = 4
	// busyTimeout is how long a statement waits for another process's lock,
	// such as a copy being made with the sqlite3 tool.
	busyTimeout = 5 * time.Second
	// openTimeout bounds everything Open does but the check of the file.
	openTimeout = 30 * time.Second
	// checkTimeout bounds the check of the file at start: it reads all of it,
	// and a ledger too large for that must not keep a server from starting.
	checkTimeout = 10 * time.Second
	// journalLimit is what a checkpoint leaves of the log, in bytes.
	journalLimit = 64 << 20
)

// Open opens the ledger at path, making it with mode 0600 when there is none;
// its directory must exist. A file that is damaged, or is no ledger, is refused
// with errs.Internal and left as it is.
func Open(path string, log *slog.Logger) (*sqlstore.Store, error) {
	store, err := open(path, log)
	if err != nil {
		return nil, fmt.Errorf("open ledger %s: %w", path, err)
	}
	return store, nil
}

func open(path string, log *slog.Logger) (*sqlstore.Store, error) {
	ctx, cancel := context.WithTimeout(context.Background(), openTimeout+checkTimeout)
	defer cancel()
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, errs.Wrap(errs.Internal, err, "find the working directory")
	}
	exists, err := inspect(path)
	if err != nil {
		return nil, err
	}
	if exists {
		err = check(ctx, path, log)
	} else {
		err = create(ctx, path)
	}
	if err != nil {
		return nil, err
	}
	write, err := connect(path, 1, url.Values{"_journal_mode": {"WAL"}, "_txlock": {"immediate"}})
	if err != nil {
		return nil, err
	}
	read, err := connect(path, readers, url.Values{"_query_only": {"1"}})
	if err != nil {
		return nil, errors.Join(err, write.Close())
	}
	return sqlstore.New(ctx, sqlstore.Config{Write: write, Read: read, Dialect: dialect(), Log: log})
}

// connect returns a pool of at most n connections to an existing file.
func connect(path string, n int, more url.Values) (*sql.DB, error) {
	// mode=rw: nothing but create makes a file. _defensive and _dqs close ways to write
	// what no statement of ours writes.
	q := url.Values{
		"mode":          {"rw"},
		"_busy_timeout": {fmt.Sprint(busyTimeout.Milliseconds())},
		"_synchronous":  {"FULL"},
		"_foreign_keys": {"1"},
		"_defensive":    {"1"},
		"_dqs":          {"0"},
		"_pragma":       {fmt.Sprintf("journal_size_limit(%d)", journalLimit)},
	}
	for k, v := range more {
		q[k] = v
	}
	name := url.URL{Scheme: "file", Path: path, OmitHost: true, RawQuery: q.Encode()}
	connector, err := sqlite.NewConnector(name.String())
	if err != nil {
		return nil, errs.Wrap(errs.Internal, err, "name the ledger file")
	}
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(n)
	db.SetMaxIdleConns(n)
	return db, nil
}

func dialect() sqlstore.Dialect {
	return sqlstore.Dialect{Name: "sqlite", DDL: strings.NewReplacer(), Classify: classify}
}

// classify gives a kind and a hint to an error of the driver.
func classify(err error) (errs.Kind, string) {
	var e *sqlite.Error
	if !errors.As(err, &e) {
		return errs.Internal, ""
	}
	switch e.Code() & 0xff { // the primary code of an extended one
	case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB:
		return errs.Internal, damagedHint
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED:
		return errs.Unavailable, "another process holds the ledger's lock; only one server may use a state directory"
	case sqlite3.SQLITE_FULL:
		return errs.Exhausted, "make room on the disk that holds the ledger"
	case sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM:
		return errs.Internal, "check that the ledger and its directory belong to the user that runs billet and can be written"
	case sqlite3.SQLITE_IOERR:
		return errs.Internal, "the disk that holds the ledger reports errors; see the kernel's log"
	case sqlite3.SQLITE_INTERRUPT:
		return errs.Unavailable, ""
	case sqlite3.SQLITE_CONSTRAINT:
		if c := e.Code(); c == sqlite3.SQLITE_CONSTRAINT_UNIQUE || c == sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY {
			return errs.Conflict, "what is to be made exists already"
		}
	}
	return errs.Internal, ""
}
