package cli

import (
	"context"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/clock"
	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/guest/execclient"
	"github.com/billethq/billet/internal/road"
)

// way opens roads to one guest, again and again: a run that lost its road gets
// another one. The server is asked for a ticket when the last one has expired
// or was refused, and is not needed while one is good.
type way struct {
	ask func(context.Context) (api.Attachment, error)

	mu   sync.Mutex
	last api.Attachment
}

// dial implements the dial function of execclient.Config.
func (w *way) dial(ctx context.Context) (net.Conn, error) {
	w.mu.Lock()
	a := w.last
	w.mu.Unlock()
	if a.Ticket != "" && (clock.Real{}).Now().Before(a.Expires) {
		conn, err := road.Dial(ctx, a)
		if err == nil || !errs.Is(err, errs.Unauthenticated) && !errs.Is(err, errs.Denied) {
			return conn, err
		}
	}
	fresh, err := w.ask(ctx)
	if err != nil {
		return nil, err
	}
	// Another instance is another machine: what ran in the first is not there.
	if a.Instance != "" && fresh.Instance != a.Instance {
		return nil, errs.New(errs.Stale, "the workspace has been restarted meanwhile")
	}
	w.mu.Lock()
	w.last = fresh
	w.mu.Unlock()
	return road.Dial(ctx, fresh)
}

// phasesAfter is how long a connection may take before its phases are told: a
// workspace that runs is entered without a word.
const phasesAfter = 300 * time.Millisecond

// phases tells a person what a connection waits for.
func (a *app) phases() func(api.ConnectPhase) {
	told := false
	return func(p api.ConnectPhase) {
		took := time.Duration(p.ElapsedMilli) * time.Millisecond
		if told = told || took > phasesAfter; told {
			a.note("%s %s", p.Name, seconds(took))
		}
	}
}

// guest returns the way to run commands in a workspace, which is resumed when it
// is hibernated. It asks for the first ticket at once, so that one that cannot
// be entered is refused before anything else happens.
func (a *app) guest(ctx context.Context, c *api.Client, name string) (*execclient.Client, error) {
	w := &way{ask: func(ctx context.Context) (api.Attachment, error) { return c.Attach(ctx, name) }}
	first, err := c.Connect(ctx, name, api.ConnectRequest{}, a.phases())
	if err != nil {
		return nil, err
	}
	w.last = first
	return execclient.New(execclient.Config{Dial: w.dial, Log: slog.New(slog.DiscardHandler)})
}
