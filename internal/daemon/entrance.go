package daemon

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/clock"
	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/gateway/entrance"
)

const (
	// entranceHeader bounds the reading of a request's head, and its size:
	// cookies of an application are the largest thing.
	entranceHeaderTimeout = 10 * time.Second
	maxEntranceHeader     = 128 << 10
	// entranceIdle closes kept connections that nobody uses.
	entranceIdle = 2 * time.Minute
)

// webDoor is the entrance's listener; without one there is no entrance.
type webDoor struct{ net.Listener }

func listenEntrance(opts Options) (webDoor, error) {
	if opts.Config.EntranceListen == "" {
		return webDoor{}, nil
	}
	l, err := listenLoopback(opts.Config.EntranceListen)
	return webDoor{l}, err
}

func (d webDoor) close() {
	if d.Listener != nil {
		_ = d.Close() // closed already where it was served
	}
}

// run serves the servers of workspaces until ctx ends. Requests end with it,
// those that wait and WebSockets too.
func (d webDoor) run(ctx context.Context, opts Options, control api.Entrance) error {
	if d.Listener == nil {
		<-ctx.Done()
		return nil
	}
	e, err := entrance.New(entrance.Config{
		Control: control, Domain: opts.Config.EntranceDomain, Deadline: opts.Config.ResumeDeadline,
		Clock: clock.Real{}, Log: opts.Log.With("role", "gateway"),
	})
	if err != nil {
		return err
	}
	defer e.Close()
	srv := &http.Server{
		Handler: e, ReadHeaderTimeout: entranceHeaderTimeout, IdleTimeout: entranceIdle, MaxHeaderBytes: maxEntranceHeader,
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	stop := context.AfterFunc(ctx, func() {
		sctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
		defer cancel()
		_ = srv.Shutdown(sctx)
		_ = srv.Close()
	})
	defer stop()
	if err := srv.Serve(d); err != nil && !errors.Is(err, http.ErrServerClosed) {
		return errs.Wrap(errs.Internal, err, "serve")
	}
	return nil
}

func sayEntrance(opts Options) {
	if opts.Config.EntranceListen == "" {
		return
	}
	_, port, _ := net.SplitHostPort(opts.Config.EntranceListen)
	say(opts.Out, "serving", "servers in workspaces on http://PORT-NAME.%s:%s and http://%s/w/NAME/PORT/",
		opts.Config.EntranceDomain, port, opts.Config.EntranceListen)
}
