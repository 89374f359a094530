package httpapi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strings"
	"time"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/clock"
	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/model"
)

// statusClientGone is logged, never sent: the caller hung up.
const statusClientGone = 499

// exchange is one request and its response.
type exchange struct {
	w     *recorder
	r     *http.Request
	who   model.Principal
	id    string // of the request
	clock clock.Clock
}

// recorder remembers what was answered.
type recorder struct {
	http.ResponseWriter
	status int // 0 until the head is written
}

func (w *recorder) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *recorder) Write(p []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	return w.ResponseWriter.Write(p)
}

// Unwrap is for http.ResponseController.
func (w *recorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// ServeHTTP serves the whole API.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if h.cfg.Beside != nil && h.cfg.Beside.Claims(r) {
		h.beside(w, r)
		return
	}
	began := h.cfg.Clock.Now()
	x := &exchange{w: &recorder{ResponseWriter: w}, r: r, id: model.NewID(), clock: h.cfg.Clock}
	head := w.Header()
	head.Set(api.VersionHeader, api.Version)
	head.Set(api.RequestIDHeader, x.id)
	// Answers hold names and secrets of tenants.
	head.Set("Cache-Control", "no-store")
	head.Set("X-Content-Type-Options", "nosniff")

	handler, pattern := h.mux.Handler(r)
	defer func() {
		h.log(x, pattern, began)
	}()
	defer h.recover(x)
	if pattern == "" {
		x.refuse(unrouted(handler, r))
		return
	}
	// The mux serves, rather than the handler it found, to set path values.
	h.mux.ServeHTTP(x.w, r.WithContext(context.WithValue(r.Context(), exchangeKey{}, x)))
}

// beside serves what another API claims; what it holds open ends at a shutdown.
func (h *Handler) beside(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	defer context.AfterFunc(h.drained, func() { cancel(context.Cause(h.drained)) })()
	h.cfg.Beside.ServeHTTP(w, r.WithContext(ctx))
}

type exchangeKey struct{}

// endpoint is one route behind its checks, in this order: a client of another
// version learns that before anything else, a stranger learns nothing more.
func (h *Handler) endpoint(rt route) http.Handler {
	return http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		x := r.Context().Value(exchangeKey{}).(*exchange)
		x.r = r
		if err := h.admit(x, rt); err != nil {
			h.fail(x, err)
			return
		}
		if err := rt.serve(x); err != nil {
			h.fail(x, err)
		}
	})
}

func (h *Handler) admit(x *exchange, rt route) error {
	if rt.open {
		return nil
	}
	if v := x.r.Header.Get(api.VersionHeader); v != "" && v != api.Version {
		return errs.New(errs.Invalid, "this client speaks API version %q, the server version %q", v, api.Version).
			WithHint("use the billet binary that the server runs; compare: billet version")
	}
	if err := h.authenticate(x); err != nil {
		return err
	}
	if !rt.allows(x.who.Role) {
		return errs.New(errs.Denied, "%s is a %s and may not call this", x.who.Name, x.who.Role).
			WithHint("use a token of another role; an admin makes one with: billet token create")
	}
	return nil
}

func (h *Handler) authenticate(x *exchange) error {
	header := x.r.Header.Get("Authorization")
	if header == "" && h.cfg.Local != nil {
		x.who = *h.cfg.Local
		return nil
	}
	scheme, secret, _ := strings.Cut(header, " ")
	if !strings.EqualFold(scheme, "Bearer") || strings.TrimSpace(secret) == "" {
		return errs.New(errs.Unauthenticated, "the request has no bearer token").
			WithHint("give a token with --token-file or BILLET_TOKEN; root needs none on the Unix socket")
	}
	who, err := h.cfg.Service.Authenticate(x.r.Context(), strings.TrimSpace(secret))
	if err != nil {
		return fmt.Errorf("authenticate: %w", err)
	}
	x.who = who
	return nil
}

// fail answers with err, as far as an answer is still possible.
func (h *Handler) fail(x *exchange, err error) {
	if cause := context.Cause(h.drained); cause != nil && isCancelled(err) {
		err = cause
	}
	if errors.Is(err, errHungUp) || x.r.Context().Err() != nil && isCancelled(err) {
		if x.w.status == 0 {
			x.w.status = statusClientGone
		}
		return
	}
	if errs.KindOf(err) == errs.Internal {
		h.cfg.Log.ErrorContext(x.r.Context(), "request failed", "request_id", x.id, "method", x.r.Method, "path", x.r.URL.Path, "error", err)
	}
	if x.w.status == 0 {
		x.refuse(err)
	}
}

func isCancelled(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// recover keeps a fault of one request from ending the process.
func (h *Handler) recover(x *exchange) {
	v := recover()
	if v == nil {
		return
	}
	if v == http.ErrAbortHandler { //nolint:errorlint // it is compared by identity in net/http as well
		panic(v)
	}
	h.cfg.Log.Error("request panicked", "request_id", x.id, "method", x.r.Method, "path", x.r.URL.Path, "panic", fmt.Sprint(v), "stack", string(debug.Stack()))
	if x.w.status != 0 {
		// Half an answer must not look like a whole one.
		panic(http.ErrAbortHandler)
	}
	x.refuse(errs.New(errs.Internal, "a fault inside billet").WithHint("the server's log has it under request %s", x.id))
}

// log tells what was asked and answered: never a header, query or body, which
// may hold secrets.
func (h *Handler) log(x *exchange, pattern string, began time.Time) {
	h.cfg.Log.LogAttrs(x.r.Context(), slog.LevelDebug, "request",
		slog.String("request_id", x.id), slog.String("method", x.r.Method), slog.String("route", pattern), slog.String("path", x.r.URL.Path),
		slog.Int("status", x.w.status), slog.String("principal", string(x.who.ID)), slog.Duration("took", h.cfg.Clock.Now().Sub(began)))
}
