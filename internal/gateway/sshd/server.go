// Package sshd is the gateway's door for SSH: `ssh NAME@gateway` is a session in
// workspace NAME.
//
// Who has a key, and may enter, is control's to say, once for each connection;
// what runs, runs in the guest as a process of its agent, over the road. So a
// gateway keeps nothing that another one would miss, and every gateway shows
// the same host key.
package sshd

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/clock"
	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/model"
)

const (
	// handshakeTimeout bounds the time until a client is known. A person types a
	// passphrase in it.
	handshakeTimeout = 60 * time.Second
	// maxHandshakes bounds the clients that are not known yet: each costs some
	// 50 KiB and a goroutine. One more costs the oldest its connection, so that
	// nobody keeps others out by holding many open.
	maxHandshakes = 256
	// maxConnections bounds the clients that are known, maxPerPrincipal those of
	// one principal: an agent with a hundred tools has a hundred.
	maxConnections  = 4096
	maxPerPrincipal = 256
	// controlTimeout bounds one question to control within a handshake.
	controlTimeout = 20 * time.Second
	// hostRetry to lastHostRetry are between two questions to control for the
	// host key while it does not answer, hostRenew once it has: certificates last
	// a week.
	hostRetry     = time.Second
	lastHostRetry = 30 * time.Second
	hostRenew     = 24 * time.Hour
)

// Config is what a Server needs.
type Config struct {
	Control api.SSHPlane
	// Dial opens a road. It is road.Dial.
	Dial  func(ctx context.Context, a api.Attachment) (net.Conn, error)
	Clock clock.Clock
	Log   *slog.Logger
}

// Server is the door.
type Server struct {
	cfg     Config
	waiting *handshakes
	ready   chan struct{} // closed once there is a host key

	mu    sync.Mutex
	host  []ssh.Signer
	open  map[*connection]struct{}
	count map[model.PrincipalID]int
}

// New validates cfg.
func New(cfg Config) (*Server, error) {
	if cfg.Control == nil || cfg.Dial == nil || cfg.Clock == nil || cfg.Log == nil {
		return nil, errs.New(errs.Internal, "ssh: control, dial, clock and log are needed")
	}
	return &Server{
		cfg: cfg, waiting: newHandshakes(maxHandshakes), ready: make(chan struct{}),
		open: map[*connection]struct{}{}, count: map[model.PrincipalID]int{},
	}, nil
}

// Serve serves clients on l until ctx ends, and closes it.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	var all sync.WaitGroup
	defer all.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer stop()
	all.Go(func() { s.keepHost(ctx) })
	for {
		conn, err := l.Accept()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			var temporary interface{ Temporary() bool }
			if errors.As(err, &temporary) && temporary.Temporary() { // out of descriptors
				s.cfg.Log.Warn("ssh connection not accepted", "err", err)
				_ = clock.Sleep(ctx, clock.Jitter(hostRetry/10))
				continue
			}
			return errs.Wrap(errs.Internal, err, "serve SSH")
		}
		all.Go(func() { s.serve(ctx, conn) })
	}
}

// keepHost learns the host key and keeps its certificate young.
func (s *Server) keepHost(ctx context.Context) {
	known, retry := false, hostRetry
	for {
		wait := hostRenew
		if err := s.learnHost(ctx); err != nil {
			if ctx.Err() == nil {
				s.cfg.Log.Warn("no ssh host key", "err", err)
			}
			wait = retry
			retry = min(2*retry, lastHostRetry)
		} else if !known {
			known = true
			close(s.ready)
		}
		if clock.Sleep(ctx, clock.Jitter(wait)) != nil {
			return
		}
	}
}

func (s *Server) learnHost(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, controlTimeout)
	defer cancel()
	h, err := s.cfg.Control.SSHHost(ctx)
	if err != nil {
		return err
	}
	signer, err := ssh.ParsePrivateKey([]byte(h.Key))
	if err != nil {
		return errs.Wrap(errs.Internal, err, "read the host key")
	}
	public, _, _, _, err := ssh.ParseAuthorizedKey([]byte(h.Certificate))
	cert, ok := public.(*ssh.Certificate)
	if err != nil || !ok {
		return errs.New(errs.Internal, "the host key has no certificate")
	}
	certified, err := ssh.NewCertSigner(cert, signer)
	if err != nil {
		return errs.Wrap(errs.Internal, err, "read the host certificate")
	}
	s.mu.Lock()
	s.host = []ssh.Signer{certified, signer}
	s.mu.Unlock()
	return nil
}

// serve is one client's connection, from its first byte to its last.
func (s *Server) serve(ctx context.Context, conn net.Conn) {
	defer conn.Close()
	leave := s.waiting.enter(conn)
	defer leave()
	_ = conn.SetDeadline(time.Now().Add(handshakeTimeout))
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	select {
	case <-s.ready:
	case <-ctx.Done():
		return
	case <-time.After(handshakeTimeout):
		return
	}
	sc, channels, requests, err := ssh.NewServerConn(conn, s.handshake(ctx))
	if err != nil {
		s.cfg.Log.Debug("ssh client refused", "err", err)
		return
	}
	leave()
	_ = conn.SetDeadline(time.Time{})
	c := s.newConnection(ctx, sc)
	if err := s.admit(c); err != nil {
		s.cfg.Log.Warn("ssh connection refused", "principal", c.grant().Principal, "err", err)
		c.refuse(channels, requests, err)
		return
	}
	defer s.leave(c)
	s.cfg.Log.Info("ssh connection open", "principal", c.grant().Principal, "workspace", c.grant().Workspace)
	c.run(channels, requests)
	s.cfg.Log.Info("ssh connection ended", "principal", c.grant().Principal, "workspace", c.grant().Workspace)
}

func (s *Server) admit(c *connection) error {
	who := c.grant().Principal
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.open) >= maxConnections || s.count[who] >= maxPerPrincipal {
		return errs.New(errs.Exhausted, "too many SSH connections").WithHint("close some; at most %d are one principal's", maxPerPrincipal)
	}
	s.open[c] = struct{}{}
	s.count[who]++
	return nil
}

func (s *Server) leave(c *connection) {
	who := c.grant().Principal
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, c)
	if s.count[who]--; s.count[who] == 0 {
		delete(s.count, who)
	}
}
