// Package files is the guest's file transfer over plain HTTP: download, upload
// and the joining of uploaded parts, with the rights of the user named.
//
// Routes, parameters and answers are the sandbox contract's.
package files

import (
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path"
	"time"

	"golang.org/x/sys/unix"

	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/guest/userfs"
	"github.com/billethq/billet/internal/guest/users"
)

const (
	filesPath   = "/files"
	composePath = "/files/compose"
	// maxSources bounds the parts of one composition: each is opened and removed.
	maxSources = 10_000
	// maxCompose bounds a composition's body: so many paths of usual length.
	maxCompose = 4 << 20
)

// Config holds what a Service needs.
type Config struct {
	Etc string // where the account files are; "" is "/etc"
	// Token is what requests must show, or sign with; "" lets every request
	// pass that reaches the agent. A guest is given none, since what it knows
	// would lie in its memory images: its door asks Authorize.
	Token string
	Now   func() time.Time // nil is time.Now
}

// Service serves the routes. It is safe for concurrent use.
type Service struct{ cfg Config }

// New returns a Service.
func New(c Config) *Service {
	if c.Etc == "" {
		c.Etc = "/etc"
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return &Service{c}
}

// Register adds the routes to mux.
func (s *Service) Register(mux *http.ServeMux) {
	mux.HandleFunc("GET "+filesPath, s.handle(s.download))
	mux.HandleFunc("POST "+filesPath, s.handle(s.upload))
	mux.HandleFunc("POST "+composePath, s.handle(s.compose))
}

// handle authorizes and gives errors their form.
func (s *Service) handle(serve func(http.ResponseWriter, *http.Request) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		err := Authorize(r, s.cfg.Token, s.cfg.Now())
		if err == nil {
			err = serve(w, r)
		}
		if err != nil {
			fail(w, err)
		}
	}
}

// entry is what the contract says of a file.
type entry struct {
	Name     string            `json:"name"`
	Type     string            `json:"type"`
	Path     string            `json:"path"`
	Metadata map[string]string `json:"metadata,omitempty"`
}

func newEntry(e userfs.Entry) entry {
	return entry{Name: path.Base(e.Path), Type: "file", Path: e.Path, Metadata: e.Metadata}
}

// compose joins files that were uploaded in parts.
func (s *Service) compose(w http.ResponseWriter, r *http.Request) error {
	var in struct {
		Destination string   `json:"destination"`
		Sources     []string `json:"source_paths"`
		Username    string   `json:"username"`
	}
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxCompose)).Decode(&in); err != nil {
		return errs.Wrap(errs.Invalid, err, "read the request")
	}
	if in.Destination == "" {
		return errs.New(errs.Invalid, "destination is missing")
	}
	if len(in.Sources) == 0 || len(in.Sources) > maxSources {
		return errs.New(errs.Invalid, "source_paths: 1 to %d are allowed, not %d", maxSources, len(in.Sources))
	}
	u, err := userfs.Account(s.cfg.Etc, in.Username)
	if err != nil {
		return err
	}
	dest, err := userfs.Resolve(in.Destination, u)
	if err != nil {
		return err
	}
	sources := make([]string, 0, len(in.Sources))
	for _, source := range in.Sources {
		p, err := userfs.Resolve(source, u)
		if err != nil {
			return err
		}
		sources = append(sources, p)
	}
	var made userfs.Entry
	err = userfs.Do(s.cfg.Etc, u, func(fs *userfs.FS) (err error) {
		made, err = fs.Compose(dest, sources)
		return err
	})
	if err != nil {
		return err
	}
	answer(w, http.StatusOK, newEntry(made))
	return nil
}

// user is the account that a request names; what it shows in Authorization is
// heard where it names none, as by the service of processes.
func (s *Service) user(r *http.Request) (users.User, error) {
	if name := r.URL.Query().Get("username"); name != "" {
		return userfs.Account(s.cfg.Etc, name)
	}
	return userfs.Caller(s.cfg.Etc, r.Header)
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // the client is gone
}

// fail answers with the contract's error.
func fail(w http.ResponseWriter, err error) {
	status := statusOf(err)
	answer(w, status, struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	}{status, err.Error()})
}

// errNotAcceptable says that no encoding of the answer is acceptable.
var errNotAcceptable = errors.New("no acceptable encoding, supported: [identity, gzip]")

// statusOf is the contract's status for an error. It has none for a path that
// the user may not use, and shows that as 500.
func statusOf(err error) int {
	switch {
	case errors.Is(err, errNotAcceptable):
		return http.StatusNotAcceptable
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		return http.StatusInsufficientStorage
	case errors.Is(err, os.ErrNotExist):
		return http.StatusNotFound
	}
	switch errs.KindOf(err) {
	case errs.Invalid, errs.Conflict:
		return http.StatusBadRequest
	case errs.NotFound:
		return http.StatusNotFound
	case errs.Unauthenticated:
		return http.StatusUnauthorized
	case errs.Denied, errs.Exhausted, errs.Unsupported, errs.Unavailable, errs.Stale, errs.Internal:
	}
	return http.StatusInternalServerError
}
