package sqlite

import (
	"log/slog"
	"net/url"
	"path/filepath"
	"testing"
)

// TestConnect_Pragmas pins what durability and the schema rest on: a kill does
// not show whether a commit waited for the disk.
func TestConnect_Pragmas(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger.db")
	l, err := Open(path, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	db, err := connect(path, 1, url.Values{})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for pragma, want := range map[string]string{
		"journal_mode": "wal", "synchronous": "2", "foreign_keys": "1", "busy_timeout": "5000",
		"application_id": "1651076204", "journal_size_limit": "67108864",
	} {
		var got string
		if err := db.QueryRow("PRAGMA " + pragma).Scan(&got); err != nil || got != want {
			t.Errorf("%s is %q (%v), want %q", pragma, got, err, want)
		}
	}
}
