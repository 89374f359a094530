package sqlstore

import (
	"database/sql"
	"io/fs"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	_ "modernc.org/sqlite"

	"github.com/billethq/billet/internal/errs"
)

// bare is a store on an empty SQLite file that has seen no migration.
func bare(t *testing.T) *Store {
	t.Helper()
	db, err := sql.Open("sqlite", filepath.Join(t.TempDir(), "test.db"))
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxOpenConns(1)
	t.Cleanup(func() { _ = db.Close() })
	return &Store{writer: db, reader: db, log: slog.New(slog.DiscardHandler), dialect: Dialect{
		Name: "test", DDL: strings.NewReplacer(), Classify: func(error) (errs.Kind, string) { return errs.Internal, "" },
	}}
}

func files(texts ...string) fs.FS {
	names := []string{"0001_first.sql", "0002_second.sql", "0003_third.sql"}
	out := fstest.MapFS{}
	for i, text := range texts {
		out[names[i]] = &fstest.MapFile{Data: []byte(text)}
	}
	return out
}

const (
	first  = "CREATE TABLE a (x BIGINT); INSERT INTO a VALUES (1);"
	second = "CREATE TABLE b (x BIGINT); INSERT INTO b VALUES (2);"
)

func (s *Store) count(t *testing.T, table string) (n int) {
	t.Helper()
	if err := s.reader.QueryRow("SELECT COUNT(*) FROM " + table).Scan(&n); err != nil {
		return -1
	}
	return n
}

func TestMigrate_Forward(t *testing.T) {
	s := bare(t)
	for _, step := range []struct {
		files   fs.FS
		a, b, n int // rows, -1 for no table
	}{{files(first), 1, -1, 1}, {files(first), 1, -1, 1}, {files(first, second), 1, 1, 2}, {files(first, second), 1, 1, 2}} {
		if err := s.migrate(t.Context(), step.files); err != nil {
			t.Fatal(err)
		}
		if a, b, n := s.count(t, "a"), s.count(t, "b"), s.count(t, "migrations"); a != step.a || b != step.b || n != step.n {
			t.Errorf("rows: a %d, b %d, migrations %d; want %d, %d, %d", a, b, n, step.a, step.b, step.n)
		}
	}
}

func TestMigrate_Refuses(t *testing.T) {
	for name, c := range map[string]struct {
		applied, wanted fs.FS
		kind            errs.Kind
		hint            string
	}{
		"a changed text":  {files(first, second), files(first+" ", second), errs.Internal, "run the build that made it"},
		"a newer ledger":  {files(first, second), files(first), errs.Unsupported, "newer billet"},
		"no predecessor":  {files(first), fstest.MapFS{"0002_x.sql": &fstest.MapFile{}}, errs.Internal, ""},
		"a strange name":  {files(first), fstest.MapFS{"1_x.sql": &fstest.MapFile{}}, errs.Internal, ""},
		"a strange file":  {files(first), fstest.MapFS{"README": &fstest.MapFile{}}, errs.Internal, ""},
		"a broken script": {files(first), files(first, "CREATE TABLE b (x BIGINT); CREATE TABL c (x BIGINT);"), errs.Internal, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := bare(t)
			if err := s.migrate(t.Context(), c.applied); err != nil {
				t.Fatal(err)
			}
			b, n := s.count(t, "b"), s.count(t, "migrations")
			err := s.migrate(t.Context(), c.wanted)
			if errs.KindOf(err) != c.kind || !strings.Contains(errs.HintOf(err), c.hint) {
				t.Errorf("got %v (kind %q, hint %q), want kind %q and a hint with %q", err, errs.KindOf(err), errs.HintOf(err), c.kind, c.hint)
			}
			if s.count(t, "b") != b || s.count(t, "migrations") != n {
				t.Error("the refused migration left something behind")
			}
		})
	}
}

// TestMigrations_AreFrozen fails when the text of a migration changes: every
// ledger that has it would be refused. Change the schema in a new file, and
// list it here.
func TestMigrations_AreFrozen(t *testing.T) {
	got, err := loadMigrations(embedded())
	if err != nil {
		t.Fatal(err)
	}
	frozen := map[string]string{
		"0001_records.sql":       "43b9a3608352b32e4de3dca59df0e7bda8b6c3b0c6b4284428f56be1c8d8e8db",
		"0002_owner_removed.sql": "0f842ca5632ccb0c0d090fc8cbf5bdff3481d5f94d6a4e37d59d758ff3acd075",
		"0003_memory.sql":        "edfc394f27db87d0e5c1468f8e4ee5f2902b0e531739f3fc14b6996593ae8b39",
		"0005_ssh_keys.sql":      "ea7e4446565ddf1ac8c7696d80c17eb0834753ad03f0a007bc2014427d237519",
		"0004_terms.sql":         "d658537a98fd223a402a3da0361476f44cfe8bb82d487a3fcfd6944030ff2443",
		"0006_shares.sql":        "cbf6d2a20d1048e8998a6578964ee56a7f58772c8aca5452a52a739079f4ae60",
		"0007_idleness.sql":      "d346ca4dcd38c69309977f266c98a1de990ce12cecfd4dbc0848d02f79d387e3",
	}
	for _, m := range got {
		if frozen[m.name] != m.checksum {
			t.Errorf("migration %s has checksum %s, here it is %q", m.name, m.checksum, frozen[m.name])
		}
	}
	if len(got) != len(frozen) {
		t.Errorf("%d migrations, %d are listed here", len(got), len(frozen))
	}
}
