// Package ports opens the way to servers inside a guest: it joins a stream of
// the agent to a TCP port of the guest's loopback or to a Unix socket, and lists
// the ports that something listens on.
package ports

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/billethq/billet/internal/guest"
	"github.com/billethq/billet/internal/road/splice"
)

const (
	// maxStreams bounds the connections that are open at once, below what the
	// agent serves of all kinds: servers' clients must not lock people out.
	maxStreams = 384
	// dialTimeout bounds one dial inside the guest. Loopback answers at once,
	// unless a server's backlog is full.
	dialTimeout = 5 * time.Second
)

// Service serves guest.DialPath and guest.PortsPath. It is safe for concurrent
// use.
type Service struct {
	root   string        // "/", where proc is read, but in tests
	places chan struct{} // one for each open connection
	log    *slog.Logger
}

// New returns a Service.
func New(log *slog.Logger) *Service {
	return &Service{root: "/", places: make(chan struct{}, maxStreams), log: log}
}

// Register adds the calls to mux.
func (s *Service) Register(mux *http.ServeMux) {
	mux.HandleFunc("GET "+guest.DialPath, s.dial)
	mux.HandleFunc("GET "+guest.PortsPath, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(s.Listening()) // the caller is gone
	})
}

// dial answers before it switches the protocol whenever there is nothing to
// join, so that the caller has a status and a reason, and no dead stream.
func (s *Service) dial(w http.ResponseWriter, r *http.Request) {
	if !strings.EqualFold(r.Header.Get("Upgrade"), guest.StreamProtocol) {
		w.Header().Set("Upgrade", guest.StreamProtocol)
		http.Error(w, "this call is an upgrade to "+guest.StreamProtocol, http.StatusUpgradeRequired)
		return
	}
	t, err := parse(r.FormValue("network"), r.FormValue("address"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	select {
	case s.places <- struct{}{}:
		defer func() { <-s.places }()
	default:
		http.Error(w, "too many connections to ports of this guest are open", http.StatusServiceUnavailable)
		return
	}
	server, err := t.dial(r.Context())
	if err != nil {
		status, reason := t.explain(err)
		http.Error(w, reason, status)
		return
	}
	client, err := accept(w)
	if err != nil {
		_ = server.Close()
		s.log.Debug("stream_not_taken_over", "error", err)
		return
	}
	splice.Join(client, server)
}

// dial tries the target's addresses in turn.
func (t target) dial(ctx context.Context) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	var d net.Dialer
	var first error
	for _, a := range t.addresses {
		c, err := d.DialContext(ctx, t.network, a)
		if err == nil {
			return c, nil
		}
		// "localhost" with nobody there is refused on one address, and on a
		// guest without the other there is no route to it: the first says more.
		if first == nil {
			first = err
		}
	}
	return nil, first
}

// explain gives a failed dial its status and what a person should read.
func (t target) explain(err error) (int, string) {
	var timeout net.Error
	switch {
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, fs.ErrNotExist):
		return http.StatusBadGateway, "nothing listens on " + t.name
	case errors.Is(err, os.ErrPermission), errors.Is(err, syscall.ENOTSOCK):
		return http.StatusBadGateway, t.name + " is no socket that can be opened"
	case errors.As(err, &timeout) && timeout.Timeout():
		return http.StatusGatewayTimeout, "what listens on " + t.name + " does not accept a connection"
	}
	return http.StatusBadGateway, t.name + ": " + err.Error()
}
