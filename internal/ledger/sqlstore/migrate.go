package sqlstore

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"regexp"
	"strconv"

	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/ledger"
)

//go:embed migrations/*.sql
var migrations embed.FS

// migrationName is NNNN_what.sql; the numbers begin at 1 and have no gap.
var migrationName = regexp.MustCompile(`^([0-9]{4})_[a-z0-9_]+\.sql$`)

// embedded returns the migrations of this binary.
func embedded() fs.FS {
	sub, err := fs.Sub(migrations, "migrations")
	if err != nil {
		panic(err) // the directory is embedded above
	}
	return sub
}

// migration is one numbered file. Its checksum is over the text as written, so
// that it is the same for every database.
type migration struct {
	version  int64
	name     string
	text     string
	checksum string
}

// loadMigrations reads the files in order and refuses a gap in the numbers.
func loadMigrations(files fs.FS) ([]migration, error) {
	entries, err := fs.ReadDir(files, ".")
	if err != nil {
		return nil, errs.Wrap(errs.Internal, err, "read migrations")
	}
	var out []migration
	for _, e := range entries {
		match := migrationName.FindStringSubmatch(e.Name())
		if match == nil {
			return nil, errs.New(errs.Internal, "migration %q is not named NNNN_what.sql", e.Name())
		}
		version, _ := strconv.ParseInt(match[1], 10, 64) // four digits
		if version != int64(len(out)+1) {
			return nil, errs.New(errs.Internal, "migration %q has no predecessor", e.Name())
		}
		b, err := fs.ReadFile(files, e.Name())
		if err != nil {
			return nil, errs.Wrap(errs.Internal, err, "read migration %s", e.Name())
		}
		sum := sha256.Sum256(b)
		out = append(out, migration{version, e.Name(), string(b), hex.EncodeToString(sum[:])})
	}
	return out, nil
}

// migrate applies what is missing, each file in a transaction of its own.
// There is no way back: a new file undoes an old one. It refuses a ledger that
// a newer binary wrote, and one whose applied files are not this binary's.
func (s *Store) migrate(ctx context.Context, files fs.FS) error {
	wanted, err := loadMigrations(files)
	if err != nil {
		return err
	}
	for _, m := range wanted {
		fresh := false
		if err := s.write(ctx, ledger.Meta{}, "migrate ledger to "+m.name, func(t *tx) (err error) {
			fresh, err = t.migrate(m, wanted)
			return err
		}); err != nil {
			return err
		}
		if fresh {
			s.log.Info("ledger_migrated", "version", m.version, "file", m.name)
		}
	}
	return nil
}

// migrate applies m unless the ledger has it.
func (t *tx) migrate(m migration, wanted []migration) (fresh bool, err error) {
	applied, err := t.applied()
	if err != nil {
		return false, err
	}
	if err := checkApplied(applied, wanted); err != nil {
		return false, err
	}
	if int64(len(applied)) >= m.version {
		return false, nil
	}
	if err := t.exec(t.store.dialect.DDL.Replace(m.text)); err != nil {
		return false, err
	}
	return true, t.exec("INSERT INTO migrations (version, name, checksum) VALUES (?, ?, ?)", m.version, m.name, m.checksum)
}

// applied lists what the ledger already has, in order.
func (t *tx) applied() ([]migration, error) {
	if err := t.exec(t.store.dialect.DDL.Replace(`CREATE TABLE IF NOT EXISTS migrations (
		version BIGINT NOT NULL PRIMARY KEY, name TEXT NOT NULL, checksum TEXT NOT NULL)`)); err != nil {
		return nil, err
	}
	return all(t, func(r row) (m migration, err error) {
		err = r.Scan(&m.version, &m.name, &m.checksum)
		return m, err
	}, "SELECT version, name, checksum FROM migrations ORDER BY version")
}

func checkApplied(applied, wanted []migration) error {
	if len(applied) > len(wanted) {
		newest := applied[len(applied)-1]
		return errs.New(errs.Unsupported, "the ledger has schema version %d (%s), this billet knows %d", newest.version, newest.name, len(wanted)).
			WithHint("run the newer billet that wrote it, or restore a copy made before the upgrade; migrations only go forward")
	}
	for i, a := range applied {
		if w := wanted[i]; a.version != w.version || a.checksum != w.checksum {
			return errs.New(errs.Internal, "migration %s was applied with another text (%s, here %s)", a.name, short(a.checksum), short(w.checksum)).
				WithHint("this ledger was made by another build; run the build that made it, or start from an empty ledger and restore")
		}
	}
	return nil
}

// short abbreviates a checksum for people.
func short(sum string) string { return fmt.Sprintf("%.12s", sum) }
