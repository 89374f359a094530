package daemon

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/blob/dir"
	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/testenv"
)

// told is a server that answers this.
type told struct {
	stored bool
	err    error
}

func (s told) Info(context.Context) (api.Info, error) { return api.Info{Stored: s.stored}, s.err }

func TestOpenStore_IsMadeOnlyWhereNothingIsStored(t *testing.T) {
	for name, test := range map[string]struct {
		server told
		made   bool
	}{
		"a new deployment":           {told{}, true},
		"something is stored":        {told{stored: true}, false},
		"the server does not answer": {told{err: errs.New(errs.Unavailable, "nothing listens")}, false},
	} {
		path := filepath.Join(t.TempDir(), "objects")
		b, err := openStore(t.Context(), path, test.server)
		if err == nil {
			_ = b.Close()
		}
		if _, there := os.Stat(path); (err == nil) != test.made || (there == nil) != test.made {
			t.Errorf("%s: got %v, the directory %v; want made: %v", name, err, there, test.made)
		}
		if err != nil && (!errors.Is(err, dir.ErrNone) || errs.HintOf(err) == "") {
			t.Errorf("%s: got %v, want ErrNone with a hint", name, err)
		}
		made, err := dir.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		_ = made.Close()
		if b, err = openStore(t.Context(), path, test.server); err != nil {
			t.Errorf("%s: one that is there: %v", name, err)
			continue
		}
		_ = b.Close()
	}
}

// invariant 7
func TestUp_StoreThatIsGoneIsRefused(t *testing.T) {
	testenv.NeedRoot(t)
	testenv.NeedFUSE(t)
	testenv.NeedLoop(t)
	testenv.LeakCheck(t)
	cfg := home(t)
	cfg.StoreDir = filepath.Join(t.TempDir(), "objects")
	d := up(t, cfg)
	d.image("base")
	d.down()
	aside := cfg.StoreDir + ".unmounted"
	if err := os.Rename(cfg.StoreDir, aside); err != nil {
		t.Fatal(err)
	}
	for _, mountPoint := range []bool{false, true} {
		if mountPoint {
			if err := os.Mkdir(cfg.StoreDir, 0o700); err != nil {
				t.Fatal(err)
			}
		}
		err := Up(t.Context(), Options{Config: cfg, Out: io.Discard, Log: slog.New(slog.DiscardHandler)})
		if !errs.Is(err, errs.Unavailable) || !strings.Contains(err.Error(), cfg.StoreDir) || !strings.Contains(errs.HintOf(err), "store.dir") {
			t.Errorf("mount point %v: got %v (hint %q), want unavailable that says what to do", mountPoint, err, errs.HintOf(err))
		}
		if left, err := os.ReadDir(cfg.StoreDir); len(left) > 0 || mountPoint != (err == nil) {
			t.Errorf("mount point %v: left %v, %v", mountPoint, left, err)
		}
	}
	if err := errors.Join(os.Remove(cfg.StoreDir), os.Rename(aside, cfg.StoreDir)); err != nil {
		t.Fatal(err)
	}
	up(t, cfg).down()
}
