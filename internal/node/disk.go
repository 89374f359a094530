package node

import (
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/atomicfile"
	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/model"
)

// The node's files. All are replaced atomically and of mode 0600: the answer
// holds the domain keys.
const (
	identityFile = "node.json"
	desiredFile  = "desired.json"
	recordFile   = "instance.json"
)

// answerFile is the last answer with the boot of the host it was given in.
type answerFile struct {
	BootID string `json:"boot_id"`
	api.SyncResponse
}

// record is what a node keeps of one instance.
type record struct {
	Desired api.DesiredInstance `json:"desired"`
	BootID  string              `json:"boot_id"` // of the host when the record was made
	// Started: the guest has been up in this life of the volume, so that its
	// absence means that it ended. Cleared before a start after volume_lost.
	Started bool          `json:"started"`
	Ended   bool          `json:"ended"`
	Cause   model.Cause   `json:"cause,omitempty"`
	Detail  string        `json:"detail,omitempty"`
	Phases  []model.Phase `json:"phases,omitempty"`
	// MountNS is the mount namespace that the guest was started in. A volume in
	// another one is not the volume under this guest.
	MountNS string `json:"mount_ns,omitempty"`
	// Paused: the guest was paused to take its memory, and goes on as soon as
	// somebody sees that.
	Paused bool `json:"paused,omitempty"`
	// Woken: a guest may have run from the memory of its snapshot. Restored: the
	// present one does.
	Woken    bool `json:"woken,omitempty"`
	Restored bool `json:"restored,omitempty"`
	// Cold says why the guest is not started from the memory of its snapshot,
	// "" as long as it may be.
	Cold string `json:"cold,omitempty"`
	// Aside is the name under which the overlay is kept when the instance is
	// fenced, chosen once so that a repetition finds what it has moved.
	Aside string `json:"aside,omitempty"`
	// Lost counts volume processes that died under this instance.
	Lost int `json:"lost,omitempty"`
}

// saveJSON replaces a file so that it survives a power cut.
func saveJSON(path string, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return errs.Wrap(errs.Internal, err, "encode %s", filepath.Base(path))
	}
	if err := atomicfile.Write(path, b, 0o600); err != nil {
		return errs.Wrap(errs.Internal, err, "write %s", path)
	}
	return nil
}

// noteJSON replaces a file so that it survives the node, and not a power cut:
// after one the host has booted anew, and what a record says of the guest
// counts no longer. It spares the way up the disk's flushes.
func noteJSON(path string, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return errs.Wrap(errs.Internal, err, "encode %s", filepath.Base(path))
	}
	tmp := path + ".new"
	if err := os.WriteFile(tmp, b, 0o600); err != nil {
		return errs.Wrap(errs.Internal, err, "write %s", path)
	}
	if err := os.Rename(tmp, path); err != nil {
		return errs.Wrap(errs.Internal, err, "write %s", path)
	}
	return nil
}

func loadJSON(path string, v any) (found bool, err error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, errs.Wrap(errs.Internal, err, "read %s", path)
	}
	if err := json.Unmarshal(b, v); err != nil {
		return false, errs.New(errs.Internal, "%s is damaged: %v", path, err).WithHint("move the file aside and start the node again: it asks the control plane anew")
	}
	return true, nil
}

func saveAnswer(dir string, a answerFile) error { return saveJSON(filepath.Join(dir, desiredFile), a) }

func loadAnswer(dir string) (answerFile, error) {
	var a answerFile
	_, err := loadJSON(filepath.Join(dir, desiredFile), &a)
	return a, err
}

// loadIdentity reads the node's id, making one at the first start.
func loadIdentity(dir string) (model.NodeID, error) {
	var id struct {
		ID model.NodeID `json:"id"`
	}
	path := filepath.Join(dir, identityFile)
	found, err := loadJSON(path, &id)
	if err != nil {
		return "", err
	}
	if found && model.IsID(string(id.ID)) {
		return id.ID, nil
	}
	id.ID = model.NodeID(model.NewID())
	return id.ID, saveJSON(path, id)
}

// loadRecords reads every instance's record. A directory without a readable
// record is left alone and named: an overlay in it may hold somebody's work.
func loadRecords(dir string, log *slog.Logger) ([]record, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, errs.Wrap(errs.Internal, err, "list instances")
	}
	var out []record
	for _, e := range entries {
		var r record
		path := filepath.Join(dir, e.Name(), recordFile)
		found, err := loadJSON(path, &r)
		if err == nil && !found && os.Remove(filepath.Dir(path)) == nil {
			continue // empty: the record is the last that a removal takes away
		}
		if err != nil || !found || string(r.Desired.ID) != e.Name() {
			log.Error("instance directory without a readable record, left alone", "dir", filepath.Dir(path), "err", err)
			continue
		}
		out = append(out, r)
	}
	return out, nil
}

// hostBootID identifies this boot of the host's kernel.
func hostBootID() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", errs.Wrap(errs.Unsupported, err, "read the host's boot id")
	}
	return strings.TrimSpace(string(b)), nil
}
