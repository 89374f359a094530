// Package e2b serves the E2B API: what the clients of that sandbox service
// send, on the services of this deployment.
//
// A sandbox is a workspace of class agent that is lent on terms (model.Terms).
// The package translates; what is decided is decided in control. Requests about
// sandboxes are answered here; requests to a sandbox go on over the road.
package e2b

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/clock"
	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/model"
)

const (
	// maxBody bounds a request about sandboxes: metadata, variables, rules.
	maxBody = 1 << 20
	// bodyTimeout bounds the reading of one.
	bodyTimeout = 30 * time.Second
	// maxTenants bounds the memory of which tenant a sandbox is of.
	maxTenants = 10_000
)

// Lending is what control does for clients that borrow workspaces, beside
// api.Service.
type Lending interface {
	CreateOnTerms(ctx context.Context, who model.Principal, req api.CreateWorkspaceRequest, from model.SnapshotID, t model.Terms) (api.OnTerms, error)
	ForkOnTerms(ctx context.Context, who model.Principal, ref string, count int, deadline time.Time) ([]api.OnTerms, []error, error)
	OnTerms(ctx context.Context, who model.Principal, ref string) (api.OnTerms, error)
	AllOnTerms(ctx context.Context, who model.Principal, killed bool) ([]api.OnTerms, error)
	SetDeadline(ctx context.Context, who model.Principal, ref string, deadline time.Time, extend, begun bool) (model.Terms, error)
	SetTermsNetwork(ctx context.Context, who model.Principal, ref, network string) error
	KillOnTerms(ctx context.Context, who model.Principal, ref string) error
	ForgetMemory(ctx context.Context, who model.Principal, ref string) error
	KeepSnapshot(ctx context.Context, who model.Principal, ref, name string) (model.KeptSnapshot, error)
	KeptSnapshots(ctx context.Context, who model.Principal) ([]model.KeptSnapshot, error)
	ForgetSnapshot(ctx context.Context, who model.Principal, id model.SnapshotID) error
	DoorToken(id model.WorkspaceID) (string, error)
	DoorTenant(ctx context.Context, id model.WorkspaceID) (model.TenantID, error)
}

// Config is what a Handler needs.
type Config struct {
	Service api.Service
	Lending Lending
	Clock   clock.Clock
	Log     *slog.Logger
}

// Handler serves the API and the route to the sandboxes.
type Handler struct {
	cfg   Config
	mux   *http.ServeMux
	proxy *httputil.ReverseProxy

	mu      sync.Mutex
	tenants map[model.WorkspaceID]model.TenantID // who has what; never changes
}

// New validates cfg.
func New(cfg Config) (*Handler, error) {
	if cfg.Service == nil || cfg.Lending == nil || cfg.Clock == nil || cfg.Log == nil {
		return nil, errs.New(errs.Internal, "e2b: service, lending, clock and log are needed")
	}
	h := &Handler{cfg: cfg, mux: http.NewServeMux(), tenants: map[model.WorkspaceID]model.TenantID{}}
	h.proxy = h.newProxy()
	for _, rt := range h.routes() {
		h.mux.HandleFunc(rt.pattern, h.endpoint(rt.serve))
	}
	h.mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	h.mux.HandleFunc("/", h.endpoint(func(x *exchange) error {
		return &refusal{http.StatusNotFound, "there is nothing at " + x.r.Method + " " + x.r.URL.Path}
	}))
	return h, nil
}

// claimed are the paths of the E2B API; billet's own all begin with /v1/.
var claimed = regexp.MustCompile(`^/(sandboxes|snapshots|templates|volumes|volumecontent|secrets|teams|health|v2|v3)(/|$)`)

// Claims reports whether a request is for this handler.
func (h *Handler) Claims(r *http.Request) bool {
	_, toSandbox := targetOf(r)
	return toSandbox || claimed.MatchString(r.URL.Path)
}

// ServeHTTP serves both.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("X-E2B-Trace-ID", model.NewID())
	if t, ok := targetOf(r); ok {
		h.toSandbox(w, r, t)
		return
	}
	w.Header().Set("Cache-Control", "no-store")
	h.mux.ServeHTTP(w, r)
}

// exchange is one request about sandboxes and its response.
type exchange struct {
	w   http.ResponseWriter
	r   *http.Request
	who model.Principal
}

func (x *exchange) id() string { return x.r.PathValue("id") }

// endpoint authenticates, and puts errors on the wire.
func (h *Handler) endpoint(serve func(*exchange) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		x := &exchange{w: w, r: r}
		err := h.authenticate(x)
		if err == nil {
			err = serve(x)
		}
		if err != nil && r.Context().Err() == nil {
			h.refuse(x, err)
		}
	}
}

// authenticate takes the key from X-API-Key or, as newer clients write it, a
// bearer token.
func (h *Handler) authenticate(x *exchange) error {
	secret := strings.TrimSpace(x.r.Header.Get("X-API-Key"))
	if secret == "" {
		scheme, token, _ := strings.Cut(x.r.Header.Get("Authorization"), " ")
		if strings.EqualFold(scheme, "Bearer") {
			secret = strings.TrimSpace(token)
		}
	}
	if secret == "" {
		return errs.New(errs.Unauthenticated, "the request has no API key").WithHint("set E2B_API_KEY to what this prints: billet token create --e2b NAME")
	}
	who, err := h.cfg.Service.Authenticate(x.r.Context(), secret)
	if err != nil {
		return fmt.Errorf("authenticate: %w", err)
	}
	if who.Role != model.RoleAdmin && who.Role != model.RoleUser {
		return errs.New(errs.Denied, "%s is a %s and may not use sandboxes", who.Name, who.Role)
	}
	x.who = who
	return nil
}

// refusal is an error whose status is not its kind's.
type refusal struct {
	status  int
	message string
}

func (r *refusal) Error() string { return r.message }

// problem is the contract's error.
type problem struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

// problemOf puts an error on the wire. The clients show the message and
// nothing else: what to do is part of it.
func problemOf(err error) problem {
	var r *refusal
	if errors.As(err, &r) {
		return problem{r.status, r.message}
	}
	p := api.ProblemOf(err)
	if p.Hint != "" {
		p.Detail += "; " + p.Hint
	}
	return problem{p.Status, p.Detail}
}

// refuse answers with an error.
func (h *Handler) refuse(x *exchange, err error) {
	p := problemOf(err)
	if p.Code == http.StatusInternalServerError {
		h.cfg.Log.ErrorContext(x.r.Context(), "request failed", "method", x.r.Method, "path", x.r.URL.Path, "trace", x.w.Header().Get("X-E2B-Trace-ID"), "error", err)
	}
	answer(x.w, p.Code, p)
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // the client is gone
}

// read decodes the body; an empty one is the zero T. What the contract has and
// this does not know is ignored, as the service that it describes does.
func read[T any](x *exchange) (T, error) {
	var v T
	rc := http.NewResponseController(x.w)
	_ = rc.SetReadDeadline(time.Now().Add(bodyTimeout))
	defer func() { _ = rc.SetReadDeadline(time.Time{}) }()
	dec := json.NewDecoder(http.MaxBytesReader(x.w, x.r.Body, maxBody))
	err := dec.Decode(&v)
	if err != nil && err.Error() != "EOF" {
		return v, errs.New(errs.Invalid, "the request's body cannot be read: %v", err)
	}
	return v, nil
}
