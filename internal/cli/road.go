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
	"github.com/billethq/billet/internal/model"
	"github.com/billethq/billet/internal/road"
)

// way opens roads to one guest, again and again: a run that lost its road gets
// another one. The server is asked for a ticket when the last one has expired
// or was refused, and when the guest cannot be reached: it may have ended. It is
// not needed otherwise.
type way struct {
	ask func(context.Context) (api.Attachment, error)

	mu    sync.Mutex
	last  api.Attachment
	asked time.Time // when, because the guest could not be reached
	gone  bool      // the guest is known not to be there
}

// askEvery is the least time between two questions whether a guest that cannot
// be reached is still there: a gateway that is away may have many clients.
const askEvery = 2 * time.Second

// dial implements the dial function of execclient.Config.
func (w *way) dial(ctx context.Context) (net.Conn, error) {
	conn, err := w.open(ctx)
	if errs.Is(err, errs.NotFound) || errs.Is(err, errs.Stale) || errs.Is(err, errs.Conflict) {
		w.mu.Lock()
		w.gone = true
		w.mu.Unlock()
	}
	return conn, err
}

func (w *way) open(ctx context.Context) (net.Conn, error) {
	w.mu.Lock()
	a := w.last
	w.mu.Unlock()
	var lost error
	if a.Ticket != "" && (clock.Real{}).Now().Before(a.Expires) {
		conn, err := road.Dial(ctx, a)
		refused := errs.Is(err, errs.Unauthenticated) || errs.Is(err, errs.Denied)
		if errs.Is(err, errs.Unavailable) && w.mayAsk() {
			lost = err
		} else if !refused {
			return conn, err
		}
	}
	fresh, err := w.ask(ctx)
	// What a server that is away does not know ends nothing.
	if lost != nil && (err == nil && fresh.Instance == a.Instance || err != nil && !errs.Is(err, errs.Conflict) && !errs.Is(err, errs.NotFound)) {
		return nil, lost
	}
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

func (w *way) isGone() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.gone
}

func (w *way) mayAsk() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := (clock.Real{}).Now()
	if now.Sub(w.asked) < askEvery {
		return false
	}
	w.asked = now
	return true
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

// guest runs commands in the guest of a workspace.
type guest struct {
	*execclient.Client
	server   *api.Client
	name     string
	way      *way
	instance model.InstanceID
}

// guest returns the way to run commands in a workspace, which is resumed when it
// is hibernated. It asks for the first ticket at once, so that one that cannot
// be entered is refused before anything else happens.
func (a *app) guest(ctx context.Context, c *api.Client, name string) (*guest, error) {
	w := &way{ask: func(ctx context.Context) (api.Attachment, error) { return c.Attach(ctx, name) }}
	first, err := c.Connect(ctx, name, api.ConnectRequest{}, a.phases())
	if err != nil {
		return nil, err
	}
	w.last = first
	client, err := execclient.New(execclient.Config{Dial: w.dial, Log: slog.New(slog.DiscardHandler)})
	return &guest{Client: client, server: c, name: name, way: w, instance: first.Instance}, err
}

// Run is the client's, and says of a guest that has ended why it did.
func (g *guest) Run(ctx context.Context, cmd execclient.Command) (int, error) {
	code, err := g.Client.Run(ctx, cmd)
	if code >= 0 || err == nil || ctx.Err() != nil {
		return code, err
	}
	return code, g.whyLost(ctx, err)
}

const (
	// lostTimeout bounds the question what became of a guest that is gone: its
	// node may know it before the control plane does.
	lostTimeout = 5 * time.Second
	lostEvery   = 200 * time.Millisecond
)

// whyLost is why a command could not be followed to its end: that its guest has
// ended, and why, as far as the control plane knows; else err.
func (g *guest) whyLost(ctx context.Context, err error) error {
	if !errs.Is(err, errs.Unavailable) && !errs.Is(err, errs.Stale) && !g.way.isGone() {
		return err // the guest has answered
	}
	ctx, cancel := context.WithTimeout(ctx, lostTimeout)
	defer cancel()
	for {
		ws, asked := g.server.Workspace(ctx, g.name)
		why := "the workspace is not there any more"
		switch {
		case asked == nil:
			why = endOf(ws, g.instance)
		case !errs.Is(asked, errs.NotFound):
			return err
		}
		if why != "" {
			return errs.New(errs.Conflict, "the guest of %s has ended during the command: %s", g.name, why).
				WithHint("see: billet ws show %s, billet ws events %s", g.name, g.name)
		}
		if !g.way.isGone() || clock.Sleep(ctx, clock.Jitter(lostEvery)) != nil {
			return err
		}
	}
}

// endOf says what became of the instance id of ws, and nothing while it may run.
func endOf(ws api.Workspace, id model.InstanceID) string {
	switch ws.State {
	case api.WorkspaceFailed:
		if ws.Detail != "" {
			return string(ws.Failure) + ": " + ws.Detail
		}
		return string(ws.Failure)
	case api.WorkspaceStopped, api.WorkspaceStopping, api.WorkspaceDeleting:
		return "the workspace is " + string(ws.State)
	case api.WorkspaceRunning, api.WorkspaceStarting, api.WorkspaceUnproven:
	}
	if ws.Instance != nil && ws.Instance.ID != id {
		return "the workspace has been restarted"
	}
	return ""
}
