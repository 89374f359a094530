package daemon

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/atomicfile"
	"github.com/billethq/billet/internal/clock"
	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/gateway"
)

// runGateway serves the gateway's doors on l until ctx ends.
func runGateway(ctx context.Context, opts Options, l net.Listener, key func() ed25519.PublicKey) error {
	g, err := gateway.New(gateway.Config{Key: key, Clock: clock.Real{}, Log: opts.Log.With("role", "gateway")})
	if err != nil {
		_ = l.Close()
		return err
	}
	// Streams are taken over from the HTTP server, which does not wait for
	// them: the gateway ends them itself.
	stop := context.AfterFunc(ctx, func() { _ = g.Close(context.WithoutCancel(ctx)) })
	defer stop()
	return serveHTTP(ctx, l, g)
}

// keyRetry is how often a gateway asks a server that does not answer.
const keyRetry = time.Second

// Gateway runs the gateway alone. It learns the deployment's ticket key from
// the server once and keeps it, so that it starts again without the server.
func Gateway(ctx context.Context, opts Options) error {
	dir := filepath.Join(opts.Config.State, "gateway")
	release, err := lockDir(dir)
	if err != nil {
		return err
	}
	defer release()
	key, err := ticketKey(ctx, opts, filepath.Join(dir, "deployment.json"))
	if err != nil {
		return err
	}
	l, err := listenLoopback(opts.Config.GatewayListen)
	if err != nil {
		return err
	}
	keys, err := listenSSH(opts)
	if err != nil {
		_ = l.Close()
		return err
	}
	defer keys.close()
	web, err := listenEntrance(opts)
	if err != nil {
		_ = l.Close()
		return err
	}
	defer web.close()
	client, err := gatewayClient(opts.Config)
	if err != nil {
		_ = l.Close()
		return err
	}
	defer client.Close()
	say(opts.Out, "serving", "the road for bytes on http://%s", opts.Config.GatewayListen)
	saySSH(opts)
	sayEntrance(opts)
	sayStop(opts.Out)
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return runGateway(ctx, opts, l, func() ed25519.PublicKey { return key }) })
	g.Go(func() error { return keys.run(ctx, opts, client) })
	g.Go(func() error { return web.run(ctx, opts, client) })
	return g.Wait()
}

func ticketKey(ctx context.Context, opts Options, kept string) (ed25519.PublicKey, error) {
	var info api.Info
	if b, err := os.ReadFile(kept); err == nil && json.Unmarshal(b, &info) == nil && len(info.TicketKey) == ed25519.PublicKeySize {
		return info.TicketKey, nil
	}
	client, err := gatewayClient(opts.Config)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	for {
		info, err = client.Info(ctx)
		if err == nil {
			break
		}
		opts.Log.Warn("waiting for the server", "err", err)
		if err := clock.Sleep(ctx, clock.Jitter(keyRetry)); err != nil {
			return nil, errs.Wrap(errs.Unavailable, err, "learn the ticket key")
		}
	}
	b, err := json.Marshal(info)
	if err != nil {
		return nil, errs.Wrap(errs.Internal, err, "keep the ticket key")
	}
	if err := atomicfile.Write(kept, b, 0o600); err != nil {
		return nil, errs.Wrap(errs.Internal, err, "keep the ticket key")
	}
	return info.TicketKey, nil
}
