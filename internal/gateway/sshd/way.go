package sshd

import (
	"context"
	"net"
	"sync"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/guest/execclient"
)

// way opens roads to one instance of the workspace, again and again: a run that
// lost its road gets another one. Control is asked when the last ticket has
// expired or was refused.
type way struct {
	c *connection

	mu   sync.Mutex
	last api.Attachment
}

// enter finds the way in, and has the workspace resumed if need be.
func (c *connection) enter(ctx context.Context, tell func(api.ConnectPhase) error) (*way, error) {
	a, err := c.s.cfg.Control.Enter(ctx, api.EnterRequest{Grant: c.grant().Grant, Wake: true}, tell)
	if err != nil {
		return nil, err
	}
	return &way{c: c, last: a}, nil
}

// silently is for who watches no phases.
func silently(api.ConnectPhase) error { return nil }

// dial implements the dial function of execclient.Config.
func (w *way) dial(ctx context.Context) (net.Conn, error) {
	w.mu.Lock()
	a := w.last
	w.mu.Unlock()
	cfg := w.c.s.cfg
	if cfg.Clock.Now().Before(a.Expires) {
		conn, err := cfg.Dial(ctx, a)
		if err == nil || !errs.Is(err, errs.Unauthenticated) && !errs.Is(err, errs.Denied) {
			return conn, err
		}
	}
	// Not woken: what went to sleep has no stream that could go on.
	fresh, err := cfg.Control.Enter(ctx, api.EnterRequest{Grant: w.c.grant().Grant}, silently)
	if err != nil {
		return nil, err
	}
	if fresh.Instance != a.Instance {
		return nil, errs.New(errs.Stale, "the workspace has been restarted meanwhile")
	}
	w.mu.Lock()
	w.last = fresh
	w.mu.Unlock()
	return cfg.Dial(ctx, fresh)
}

func (w *way) exec() (*execclient.Client, error) {
	return execclient.New(execclient.Config{Dial: w.dial, Log: w.c.s.cfg.Log})
}
