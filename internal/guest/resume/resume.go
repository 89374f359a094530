// Package resume is what the guest agent does around a pause: it writes out
// the disk before, and afterwards tells the guest's programs that time has
// passed and that they may be one of several copies.
package resume

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/billethq/billet/internal/guest"
	"github.com/billethq/billet/internal/guest/reaper"
)

const (
	// maxRequest bounds the node's request.
	maxRequest = 4 << 10
	// randomBytes is the sample of the kernel's random numbers.
	randomBytes = 32
)

// Config is what a Service needs.
type Config struct {
	Root   string         // "" is "/"; tests have another
	Reaper *reaper.Reaper // runs for as long as the Service is used
	Log    *slog.Logger
}

// Service answers the node.
type Service struct {
	cfg  Config
	sync func() // unix.Sync, but in tests
}

// New returns a Service.
func New(c Config) (*Service, error) {
	if c.Log == nil || c.Reaper == nil {
		return nil, errors.New("resume: Log and Reaper are needed")
	}
	return &Service{cfg: c, sync: unix.Sync}, nil
}

// Register adds the calls to mux.
func (s *Service) Register(mux *http.ServeMux) {
	mux.HandleFunc("POST "+guest.SyncPath, func(w http.ResponseWriter, _ *http.Request) {
		s.sync()
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("POST "+guest.ResumedPath, s.resumed)
}

func (s *Service) resumed(w http.ResponseWriter, r *http.Request) {
	var in guest.Resumed
	if err := json.NewDecoder(io.LimitReader(r.Body, maxRequest)).Decode(&in); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	out, err := s.Resumed(r.Context(), in)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	out.Now = time.Now() // as late as can be: the node measures its skew
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(out) // the node is gone
}

// The alphabets of what the node names.
const (
	hexDigits = "0123456789abcdef"
	labels    = "abcdefghijklmnopqrstuvwxyz0123456789-"
)

// made reports whether s has between least and most characters, all of alphabet.
// It is no regular expression: compiling some costs each start of a guest.
func made(s string, least, most int, alphabet string) bool {
	return len(s) >= least && len(s) <= most && strings.Trim(s, alphabet) == ""
}

func isHostname(s string) bool { return made(s, 1, 63, labels) }

// Resumed does what a restore takes. What fails in the guest is reported and
// keeps nobody from attaching: a guest may have broken any of it before.
func (s *Service) Resumed(ctx context.Context, in guest.Resumed) (guest.ResumeReport, error) {
	if !made(in.Epoch, 1, 64, labels) || !isHostname(in.Hostname) || in.MachineID != "" && !made(in.MachineID, 32, 32, hexDigits) {
		return guest.ResumeReport{}, fmt.Errorf("resumed: epoch %q, hostname %q or machine id %q is malformed", in.Epoch, in.Hostname, in.MachineID)
	}
	var out guest.ResumeReport
	note := func(what string, err error) {
		if err != nil {
			s.cfg.Log.Warn("resume", "step", what, "error", err)
			out.Errors = append(out.Errors, what+": "+err.Error())
		}
	}
	note("hostname", setHostname(in.Hostname))
	if in.MachineID != "" {
		note("machine id", s.setMachineID(in.MachineID))
	}
	note("restore epoch", os.WriteFile(s.path(guest.RestoreEpochFile), []byte(in.Epoch+"\n"), 0o644))
	id, err := os.ReadFile(s.path("/etc/machine-id"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		note("machine id", err)
	}
	out.MachineID = strings.TrimSpace(string(id[:min(len(id), 64)]))
	hooks, err := s.runHooks(ctx, in)
	note("hooks", err)
	out.Hooks = hooks
	random := make([]byte, randomBytes)
	_, _ = rand.Read(random) // never fails
	out.Random = hex.EncodeToString(random)
	return out, nil
}

func (s *Service) path(p string) string { return filepath.Join(s.cfg.Root, p) }

func setHostname(name string) error {
	if have, err := os.Hostname(); err == nil && have == name {
		return nil
	}
	return unix.Sethostname([]byte(name))
}

// setMachineID replaces the ids that an image has; one without gets none.
func (s *Service) setMachineID(id string) error {
	var failed error
	for _, p := range []string{"/etc/machine-id", "/var/lib/dbus/machine-id"} {
		info, err := os.Lstat(s.path(p))
		if err != nil || !info.Mode().IsRegular() {
			continue // missing, or a link to the other
		}
		failed = errors.Join(failed, os.WriteFile(s.path(p), []byte(id+"\n"), 0o444))
	}
	return failed
}
