package httpapi

import (
	"encoding/json"
	"errors"
	"net/http"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/errs"
)

// transport is an error of HTTP itself, whose status is not its kind's.
type transport struct {
	status int
	err    *errs.Error
}

func (t *transport) Error() string { return t.err.Error() }
func (t *transport) Unwrap() error { return t.err }

// refuse answers with a problem. Nothing has been answered before.
func (x *exchange) refuse(err error) {
	p := api.ProblemOf(err)
	var t *transport
	if errors.As(err, &t) {
		p.Status, p.Title = t.status, http.StatusText(t.status)
	}
	if p.Status == http.StatusUnauthorized {
		x.w.Header().Set("WWW-Authenticate", "Bearer")
	}
	x.w.Header().Set("Content-Type", api.ProblemType)
	x.w.WriteHeader(p.Status)
	if x.r.Method != http.MethodHead {
		_ = json.NewEncoder(x.w).Encode(p)
	}
}

// unrouted finds out what the mux would have answered to a request of no
// route, in plain text, and says it as a problem.
func unrouted(mux http.Handler, r *http.Request) error {
	probe := &headOnly{header: http.Header{}}
	mux.ServeHTTP(probe, r)
	if probe.status == http.StatusMethodNotAllowed {
		return &transport{probe.status, errs.New(errs.Unsupported, "%s is not possible on %s", r.Method, r.URL.Path).
			WithHint("possible: %s", probe.header.Get("Allow"))}
	}
	return &transport{http.StatusNotFound, errs.New(errs.NotFound, "there is nothing at %s", r.URL.Path).
		WithHint("the API is described at /v1/openapi.yaml")}
}

type headOnly struct {
	header http.Header
	status int
}

func (w *headOnly) Header() http.Header         { return w.header }
func (w *headOnly) Write(p []byte) (int, error) { return len(p), nil }
func (w *headOnly) WriteHeader(status int)      { w.status = status }
