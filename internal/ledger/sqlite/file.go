package sqlite

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"

	"github.com/billethq/billet/internal/errs"
)

// damagedHint is what to do about a ledger that cannot be trusted. Nothing of
// ours repairs one: a repaired ledger could run a workspace twice.
const damagedHint = "stop billet, move the ledger and its -wal and -shm files aside together, and put a copy of the ledger in their place; " +
	"without a copy its names and heads are lost: nothing makes a ledger of the object store, so keep both, and begin anew with an empty --state directory"

const (
	// applicationID marks a file as a billet ledger: "bill" in the header.
	applicationID = 0x62696c6c
	// headerSize is SQLite's file header; the mark is a big-endian word in it.
	headerSize      = 100
	applicationIDAt = 68
)

// inspect looks at the file before SQLite does, since SQLite takes an empty
// file for a new database and a log beside a missing one for its content.
func inspect(path string) (exists bool, err error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, inspectAbsence(path)
	}
	if err != nil {
		return false, errs.New(errs.Internal, "%v", err).WithHint("check that it belongs to the user that runs billet")
	}
	defer f.Close()
	header := make([]byte, headerSize)
	if _, err := io.ReadFull(f, header); err != nil {
		return false, errs.New(errs.Internal, "the file is damaged: it has no complete header").WithHint(damagedHint)
	}
	if string(header[:16]) != "SQLite format 3\x00" {
		return false, errs.New(errs.Internal, "the file is damaged, or is no ledger: it does not begin as one").WithHint(damagedHint)
	}
	if id := binary.BigEndian.Uint32(header[applicationIDAt:]); id != applicationID {
		return false, errs.New(errs.Internal, "the file is a database of another application, or is damaged (mark %08x)", id).WithHint(damagedHint)
	}
	return true, nil
}

func inspectAbsence(path string) error {
	if info, err := os.Stat(filepath.Dir(path)); err != nil || !info.IsDir() {
		return errs.New(errs.NotFound, "there is no directory %s", filepath.Dir(path)).WithHint("make the directory first")
	}
	if _, err := os.Lstat(path + "-wal"); err == nil {
		return errs.New(errs.Internal, "the ledger is gone, its log is still there").
			WithHint("put the ledger back, or move its -wal and -shm files aside too")
	}
	return nil
}

// create makes an empty, marked database and gives it its name only when it is
// on the disk: a ledger that exists is whole, so one that is empty is damaged.
func create(ctx context.Context, path string) error {
	dir, err := os.MkdirTemp(filepath.Dir(path), ".ledger-") // mode 0700
	if err != nil {
		return errs.New(errs.Internal, "%v", err).WithHint("check that the directory belongs to the user that runs billet and can be written")
	}
	defer os.RemoveAll(dir)
	fresh := filepath.Join(dir, "new")
	f, err := os.OpenFile(fresh, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return errs.Wrap(errs.Internal, err, "make the file")
	}
	defer f.Close()
	if err := mark(ctx, fresh); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return errs.Wrap(errs.Internal, err, "sync the file")
	}
	// A link, unlike a rename, never replaces a ledger made meanwhile.
	if err := os.Link(fresh, path); err != nil {
		return errs.Wrap(errs.Internal, err, "name the file")
	}
	return syncDir(filepath.Dir(path))
}

func mark(ctx context.Context, path string) error {
	db, err := connect(path, 1, url.Values{"_journal_mode": {"DELETE"}})
	if err != nil {
		return err
	}
	if _, err := db.ExecContext(ctx, fmt.Sprintf("PRAGMA application_id = %d", applicationID)); err != nil {
		kind, hint := classify(err)
		return errors.Join(&errs.Error{Kind: kind, Message: "mark the file", Hint: hint, Cause: err}, db.Close())
	}
	if err := db.Close(); err != nil {
		return errs.Wrap(errs.Internal, err, "close the new file")
	}
	return nil
}

func syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return errs.Wrap(errs.Internal, err, "sync the directory")
	}
	defer d.Close()
	return errs.Wrap(errs.Internal, d.Sync(), "sync the directory")
}

// check reads the whole file and its log and refuses them when their structure
// is damaged. It gives up, and says so, when that takes too long. It opens them
// for reading only: the last writer to close would copy the log into a file
// that is to be left as it is.
func check(ctx context.Context, path string, log *slog.Logger) error {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	db, err := connect(path, 1, url.Values{"mode": {"ro"}})
	if err != nil {
		return err
	}
	defer db.Close()
	var first string
	err = db.QueryRowContext(ctx, "PRAGMA quick_check(1)").Scan(&first)
	switch {
	case ctx.Err() != nil:
		log.Warn("ledger_check_unfinished", "after", checkTimeout)
		return nil
	case err != nil:
		kind, hint := classify(err)
		return &errs.Error{Kind: kind, Message: "check the file", Hint: hint, Cause: err}
	case first != "ok":
		return errs.New(errs.Internal, "the file is damaged: %s", first).WithHint(damagedHint)
	}
	return nil
}
