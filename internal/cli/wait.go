package cli

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/clock"
	"github.com/billethq/billet/internal/errs"
)

// errDetached is the cause of a context that Ctrl-C ended.
var errDetached = errors.New("detached")

// untilInterrupt returns a context that Ctrl-C or SIGTERM ends, with
// errDetached as its cause. A second one ends the process.
func untilInterrupt(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	done := make(chan struct{})
	go func() {
		defer close(done)
		select {
		case <-signals:
			cancel(errDetached)
		case <-ctx.Done():
		}
		signal.Stop(signals)
	}()
	return ctx, func() { cancel(nil); <-done }
}

// waitFlag adds --no-wait.
func waitFlag(c *cobra.Command) *bool {
	return c.Flags().Bool("no-wait", false, "return when it is recorded; watch with: billet ws show NAME --watch")
}

// wait follows a workspace until the wait is over and tells its phases on a
// terminal. Ctrl-C ends the wait and nothing else.
func (a *app) wait(ctx context.Context, c *api.Client, name string, until api.Until) (api.Workspace, error) {
	ctx, stop := untilInterrupt(ctx)
	defer stop()
	teller := &teller{app: a, watch: clock.Start()}
	_, teller.speaks = terminal(a.Err)
	var last api.Workspace
	err := c.Progress(ctx, name, until, func(p api.Progress) error {
		last = p.Workspace
		teller.tell(p.Workspace)
		return nil
	})
	if errors.Is(err, errDetached) {
		a.note("detached; it goes on without you. Watch again with: billet ws show %s --watch", name)
		return last, &exit{code: exitDetached}
	}
	return last, err
}

// teller prints what is new in a workspace's states.
type teller struct {
	app    *app
	speaks bool // to a person
	watch  *clock.Stopwatch
	phases int
	detail string
	state  api.WorkspaceState
}

func (t *teller) tell(ws api.Workspace) {
	if !t.speaks {
		return
	}
	if len(ws.Phases) < t.phases { // another instance
		t.phases = 0
	}
	for _, p := range ws.Phases[t.phases:] {
		t.line(p.Name)
	}
	t.phases = len(ws.Phases)
	if ws.State != t.state {
		t.state = ws.State
		t.line(string(ws.State))
	}
	if ws.Detail != t.detail {
		if t.detail = ws.Detail; t.detail != "" {
			t.line("waits: " + t.detail)
		}
	}
}

func (t *teller) line(text string) { t.app.note("%7s  %s", seconds(t.watch.Elapsed()), text) }

// gone waits until a workspace is not there any more.
func (a *app) gone(ctx context.Context, c *api.Client, name string) error {
	_, err := a.wait(ctx, c, name, api.UntilStopped)
	if err == nil || errs.Is(err, errs.NotFound) {
		return nil
	}
	return err
}
