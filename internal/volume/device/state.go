package device

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/billethq/billet/internal/atomicfile"
	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/model"
	"github.com/billethq/billet/internal/volume"
)

// state is the record of which overlays count, in state.json. It is replaced
// as a whole and synced: it decides, and an overlay's file that it does not
// name is a leftover of a step that did not happen.
type state struct {
	Version int        `json:"version"`
	Base    model.Root `json:"base"`
	Active  uint64     `json:"active"`           // number of the active overlay
	Sealed  uint64     `json:"sealed,omitempty"` // 0: none
	// Fresh: no guest has written yet, the active overlay holds what preparing
	// the file system wrote. It is thrown away by a reopen: preparing may have
	// been cut off half way.
	Fresh bool `json:"fresh,omitempty"`
	// Consistency of the sealed overlay.
	Consistency volume.Consistency `json:"consistency,omitempty"`
	// Upload is the newest upload of the sealed overlay that was begun. A
	// repetition under the same epoch and number keeps its time, so that it
	// gives the same root.
	Upload *upload `json:"upload,omitempty"`
	// Pending is the root that the upload stored; the ledger may have
	// committed it.
	Pending *Pending `json:"pending,omitempty"`
}

type upload struct {
	Epoch   model.Epoch `json:"epoch"`
	Seq     model.Seq   `json:"seq"`
	Started time.Time   `json:"started"`
}

// Pending is an upload that is stored and that nobody has reported committed.
type Pending struct {
	Root   model.Root     `json:"root"`
	Intent model.IntentID `json:"intent"`
	Seq    model.Seq      `json:"seq"`
}

const (
	stateVersion = 1
	stateFile    = "state.json"
)

// committed is the state after Pending has become the head.
func (s state) committed() state {
	return state{Version: s.Version, Base: s.Pending.Root, Active: s.Active}
}

func loadState(dir string) (state, error) {
	raw, err := os.ReadFile(filepath.Join(dir, stateFile))
	if err != nil {
		return state{}, fmt.Errorf("read volume state: %w", err)
	}
	var s state
	if err := json.Unmarshal(raw, &s); err != nil {
		return state{}, errs.Wrap(errs.Internal, err, "volume state in %s is damaged", dir)
	}
	if s.Version != stateVersion {
		return state{}, errs.New(errs.Unsupported, "volume state has version %d, this build knows %d", s.Version, stateVersion)
	}
	if s.Active == 0 {
		return state{}, errs.New(errs.Internal, "volume state in %s names no overlay", dir)
	}
	return s, nil
}

// save makes s, and the names of the files made in dir before, durable.
func (s state) save(dir string) error {
	raw, err := json.Marshal(s)
	if err != nil {
		return err
	}
	if err := atomicfile.Write(filepath.Join(dir, stateFile), append(raw, '\n'), 0o600); err != nil {
		return fmt.Errorf("write volume state: %w", err)
	}
	return syncDir(dir)
}

func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = f.Sync()
	return errors.Join(err, f.Close())
}

const overlayPrefix = "overlay-"

func overlayName(n uint64) string { return fmt.Sprintf("%s%06d", overlayPrefix, n) }

// removeOthers deletes the overlays that s does not name.
func removeOthers(dir string, s state) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		digits, ok := strings.CutPrefix(e.Name(), overlayPrefix)
		if !ok {
			continue
		}
		n, err := strconv.ParseUint(strings.TrimSuffix(digits, filepath.Ext(digits)), 10, 64)
		if err != nil || n == s.Active || n == s.Sealed {
			continue
		}
		if err := os.Remove(filepath.Join(dir, e.Name())); err != nil {
			return fmt.Errorf("remove leftover overlay: %w", err)
		}
	}
	return nil
}
