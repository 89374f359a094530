// Package agent is the guest's side of the road for bytes: it dials the node
// and serves the guest's services on the streams that the node opens.
//
// The node may restart, and the guest may be restored elsewhere: the agent
// redials for ever. Nothing that it serves depends on a connection.
package agent

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/hashicorp/yamux"

	"github.com/billethq/billet/internal/clock"
	"github.com/billethq/billet/internal/guest"
	"github.com/billethq/billet/internal/guest/files"
	"github.com/billethq/billet/internal/guest/filesystem"
	"github.com/billethq/billet/internal/guest/metrics"
	"github.com/billethq/billet/internal/guest/ports"
	"github.com/billethq/billet/internal/guest/process"
	"github.com/billethq/billet/internal/guest/resume"
	"github.com/billethq/billet/internal/road/framed"
)

const (
	// firstRedial and lastRedial bound the wait between two dials. The first is
	// short since it is part of every start; the last bounds the idle cost of a
	// guest whose node is away.
	firstRedial = 2 * time.Millisecond
	lastRedial  = time.Second
	// steady is how long a session must last for its loss to be news: the next
	// dial is then as quick as the first.
	steady = time.Second

	// maxConns bounds the streams served at once; the node opens one per call.
	maxConns = 512
	// headerTimeout and idleTimeout bound how long a stream may do nothing
	// before a request and between two.
	headerTimeout = 30 * time.Second
	idleTimeout   = 5 * time.Minute
	// maxHeader bounds a request's headers.
	maxHeader = 64 << 10
)

// Config holds what an Agent needs.
type Config struct {
	Socket  string // path of the node's Unix socket
	Process *process.Service
	Resume  *resume.Service
	Redial  <-chan os.Signal // each value makes the agent dial at once; may be nil
	Log     *slog.Logger
	Version string // of the build
}

// Agent serves a guest.
type Agent struct {
	cfg    Config
	server *http.Server
	conns  chan struct{} // a place for each stream served

	filesystem *filesystem.Service

	warmed  sync.Once      // at the first session, so that it does not delay that
	warming sync.WaitGroup // for it
}

// New returns an Agent; Run does the work.
func New(c Config) (*Agent, error) {
	if c.Socket == "" || c.Process == nil || c.Resume == nil || c.Log == nil {
		return nil, errors.New("agent: Socket, Process, Resume and Log are needed")
	}
	a := &Agent{cfg: c, conns: make(chan struct{}, maxConns), filesystem: filesystem.New(filesystem.Config{})}
	mux := http.NewServeMux()
	c.Process.Register(mux)
	c.Resume.Register(mux)
	a.filesystem.Register(mux)
	files.New(files.Config{}).Register(mux)
	metrics.New(metrics.Config{}).Register(mux)
	ports.New(c.Log).Register(mux)
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	mux.HandleFunc("GET "+guest.VersionPath, a.version)
	a.server = &http.Server{
		Handler:           mux,
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          slog.NewLogLogger(c.Log.Handler(), slog.LevelDebug),
	}
	return a, nil
}

// Run dials and serves until ctx ends, and then closes every stream.
func (a *Agent) Run(ctx context.Context) {
	defer a.warming.Wait()
	defer a.filesystem.Close()
	defer a.server.Close()
	wait := firstRedial
	for ctx.Err() == nil {
		began := time.Now()
		attached, called := a.session(ctx)
		if called || attached && time.Since(began) > steady {
			wait = firstRedial
		}
		if called {
			continue
		}
		select {
		case <-ctx.Done():
		case <-a.cfg.Redial:
			wait = firstRedial
		case <-time.After(clock.Jitter(wait)):
			wait = min(2*wait, lastRedial)
		}
	}
}

// session dials once and serves what it reached. It reports whether it reached
// anything, and whether a signal ended it: a guest that was paused may not have
// noticed that the node has hung up.
func (a *Agent) session(ctx context.Context) (attached, called bool) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", a.cfg.Socket)
	if err != nil {
		return false, false
	}
	cfg := yamux.DefaultConfig()
	cfg.LogOutput, cfg.Logger = nil, slog.NewLogLogger(a.cfg.Log.Handler(), slog.LevelDebug)
	mux, err := yamux.Server(framed.New(conn), cfg)
	if err != nil {
		_ = conn.Close()
		a.cfg.Log.Error("session_refused", "error", err)
		return false, false
	}
	stop := context.AfterFunc(ctx, func() { _ = mux.Close() })
	defer stop()
	a.cfg.Log.Info("attached")
	a.warmed.Do(func() { a.warming.Go(a.warm) })
	served := make(chan error, 1)
	go func() { served <- a.server.Serve(limited{mux, a.conns}) }()
	select {
	case err = <-served:
	case <-a.cfg.Redial:
		called = true
	}
	_ = mux.Close()
	if called {
		err = <-served
	}
	a.cfg.Log.Info("detached", "cause", err, "called", called)
	return true, called
}

func (a *Agent) version(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(guest.Version{Version: a.cfg.Version, Protocol: guest.Protocol})
}
