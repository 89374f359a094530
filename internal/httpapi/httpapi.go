// Package httpapi serves the control plane's API over HTTP.
//
// It turns requests into calls of api.Service and api.Plane: it authenticates,
// checks roles, versions and bodies, and puts errors on the wire. It decides
// nothing else. openapi.yaml describes what it serves; tests hold the two to
// each other.
package httpapi

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/clock"
	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/model"
)

const (
	// headerTimeout bounds the reading of a request's head.
	headerTimeout = 10 * time.Second
	// bodyTimeout bounds the reading of a request's body.
	bodyTimeout = 30 * time.Second
	// writeTimeout bounds one write: a client that stopped reading a stream
	// must not hold its goroutine.
	writeTimeout = 30 * time.Second
	// idleTimeout closes kept connections that nobody uses.
	idleTimeout = 2 * time.Minute
	// drainTimeout bounds the end of requests in flight at a shutdown.
	drainTimeout = 10 * time.Second
	// maxHeaderBytes bounds a request's head; tokens are the largest thing.
	maxHeaderBytes = 32 << 10
	// maxStreams bounds the streams of server-sent events held at once: each
	// costs a goroutine and wakes with every change.
	maxStreams = 4096
)

// Config is what a Handler needs.
type Config struct {
	Service api.Service
	Plane   api.Plane    // nil: no node may call
	SSH     api.SSHPlane // nil: no gateway may call
	// Entrance answers gateways; nil: none may call.
	Entrance api.Entrance
	// Local is who acts when a request brings no token: the admin on the Unix
	// socket, which only root can open. Nil wherever anybody can connect.
	Local *model.Principal
	// Beside serves the requests that it claims, by its own rules: another API
	// on the same listener. Nil for none.
	Beside Beside
	Clock  clock.Clock
	Log    *slog.Logger
}

// Beside is another API.
type Beside interface {
	http.Handler
	Claims(r *http.Request) bool
}

// Handler serves the API on one listener.
type Handler struct {
	cfg     Config
	mux     *http.ServeMux
	streams chan struct{}
	// keepalive is api.StreamKeepalive but in tests.
	keepalive time.Duration

	// drained ends, with its cause, what is held open at a shutdown.
	drained context.Context
	drain   context.CancelCauseFunc
}

// New validates cfg.
func New(cfg Config) (*Handler, error) {
	if cfg.Service == nil || cfg.Clock == nil || cfg.Log == nil {
		return nil, errs.New(errs.Internal, "http api: service, clock and log are needed")
	}
	h := &Handler{cfg: cfg, mux: http.NewServeMux(), streams: make(chan struct{}, maxStreams), keepalive: api.StreamKeepalive}
	h.drained, h.drain = context.WithCancelCause(context.Background())
	for _, rt := range h.routes() {
		h.mux.Handle(rt.method+" "+rt.path, h.endpoint(rt))
	}
	return h, nil
}

// Drain ends what is held open: streams close so that clients come again, a
// waiting sync answers errs.Unavailable. It can be called more than once.
func (h *Handler) Drain() {
	h.drain(errs.New(errs.Unavailable, "the server is going down").WithHint("try again when it is back"))
}

// Serve answers requests on l until ctx ends, then lets those in flight end.
// It closes l.
func (h *Handler) Serve(ctx context.Context, l net.Listener) error {
	srv := &http.Server{
		Handler:           h,
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          slog.NewLogLogger(h.cfg.Log.Handler(), slog.LevelDebug),
	}
	failed := make(chan error, 1)
	go func() { failed <- srv.Serve(l) }()
	select {
	case err := <-failed:
		return errs.Wrap(errs.Unavailable, err, "serve %s", l.Addr())
	case <-ctx.Done():
	}
	h.Drain()
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTimeout)
	defer cancel()
	err := srv.Shutdown(end)
	if err != nil {
		err = errors.Join(err, srv.Close())
	}
	<-failed
	return errs.Wrap(errs.Unavailable, err, "stop serving %s", l.Addr())
}
