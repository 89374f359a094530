package daemon

import (
	"context"
	"net"
	"path/filepath"

	"golang.org/x/sync/errgroup"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/clock"
	"github.com/billethq/billet/internal/control"
	"github.com/billethq/billet/internal/e2b"
	"github.com/billethq/billet/internal/httpapi"
	"github.com/billethq/billet/internal/ledger"
	"github.com/billethq/billet/internal/ledger/sqlite"
)

// controlPlane is the server role with its doors, put together and not yet run.
type controlPlane struct {
	opts    Options
	ledger  ledger.Ledger
	control *control.Control
	release func()
	sock    net.Listener
	tcp     net.Listener
}

func openServer(ctx context.Context, opts Options) (_ *controlPlane, err error) {
	dir := opts.Config.ServerDir()
	release, err := lockDir(dir)
	if err != nil {
		return nil, err
	}
	s := &controlPlane{opts: opts, release: release}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	// The doors come first: a port that is taken must not leave a ledger behind.
	if s.tcp, err = listenLoopback(opts.Config.APIListen); err != nil {
		return nil, err
	}
	if s.sock, err = listenUnix(opts.Config.Socket()); err != nil {
		return nil, err
	}
	secrets, err := control.OpenSecrets(filepath.Join(dir, "secrets"))
	if err != nil {
		return nil, err
	}
	store, err := sqlite.Open(filepath.Join(dir, "ledger.db"), opts.Log)
	if err != nil {
		return nil, err // and not into the field: a nil store in it would not be nil
	}
	s.ledger = store
	s.control, err = control.New(ctx, control.Config{
		Ledger: s.ledger, Secrets: secrets, Tiers: opts.Config.Tiers,
		Gateways:   []api.Gateway{{Name: "local", URL: "http://" + opts.Config.GatewayListen}},
		SSHListen:  opts.Config.SSHListen,
		APIURL:     "http://" + opts.Config.APIListen,
		Entrance:   control.EntranceAddress{Listen: opts.Config.EntranceListen, Domain: opts.Config.EntranceDomain},
		FlushEvery: opts.Config.FlushEvery, StopGrace: opts.Config.StopGrace,
		Memory: control.MemoryPolicy{Keep: opts.Config.MemoryKeep, Classes: opts.Config.ClassMemoryKeep},
		Clock:  clock.Real{}, Log: opts.Log.With("role", "server"), Version: opts.Version,
	})
	return s, err
}

func (s *controlPlane) close() {
	for _, l := range []net.Listener{s.sock, s.tcp} {
		if l != nil {
			_ = l.Close() // closed already where it was served
		}
	}
	if s.ledger != nil {
		if err := s.ledger.Close(); err != nil {
			s.opts.Log.Error("close the ledger", "err", err)
		}
	}
	s.release()
}

// run serves until ctx ends.
func (s *controlPlane) run(ctx context.Context) error {
	local, err := s.control.Local(ctx)
	if err != nil {
		return err
	}
	cfg := httpapi.Config{Service: s.control, Plane: s.control, SSH: s.control, Entrance: s.control, Clock: clock.Real{}, Log: s.opts.Log.With("role", "server")}
	sandboxes, err := e2b.New(e2b.Config{Service: s.control, Lending: s.control, Clock: clock.Real{}, Log: s.opts.Log.With("role", "server")})
	if err != nil {
		return err
	}
	public := cfg
	public.Beside = doors{newMCPDoor(s.opts), sandboxes}
	open, err := httpapi.New(public)
	if err != nil {
		return err
	}
	cfg.Local = &local
	trusted, err := httpapi.New(cfg)
	if err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return trusted.Serve(ctx, s.sock) })
	g.Go(func() error { return open.Serve(ctx, s.tcp) })
	g.Go(func() error { s.control.Run(ctx); return nil })
	return g.Wait()
}

// Server runs the control plane alone.
func Server(ctx context.Context, opts Options) error {
	s, err := openServer(ctx, opts)
	if err != nil {
		return err
	}
	defer s.close()
	say(opts.Out, "serving", "API on %s and, with a token, on http://%s", opts.Config.Socket(), opts.Config.APIListen)
	sayStop(opts.Out)
	return s.run(ctx)
}
