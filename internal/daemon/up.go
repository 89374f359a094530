package daemon

import (
	"context"
	"os/exec"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/clock"
	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/model"
	"github.com/billethq/billet/internal/node"
)

// baseImage is the image that every deployment has after its first start.
const baseImage = "base"

// Up runs server, gateway and node in one process, and has the base image made
// when there is none.
func Up(ctx context.Context, opts Options) error {
	return compose(ctx, opts, func(ctx context.Context, s *controlPlane, n *nodeParts) { greet(ctx, opts, s, n) })
}

// compose runs the roles in one process. ready is called once the node has
// been answered, while everything runs.
func compose(ctx context.Context, opts Options, ready func(context.Context, *controlPlane, *nodeParts)) error {
	release, err := lockDir(opts.Config.State)
	if err != nil {
		return err
	}
	defer release()
	bytes, err := listenLoopback(opts.Config.GatewayListen)
	if err != nil {
		return err
	}
	defer bytes.Close() // closed already where it was served
	keys, err := listenSSH(opts)
	if err != nil {
		return err
	}
	defer keys.close()
	web, err := listenEntrance(opts)
	if err != nil {
		return err
	}
	defer web.close()
	s, err := openServer(ctx, opts)
	if err != nil {
		return err
	}
	defer s.close()
	n, err := openNode(ctx, opts, s.control)
	if err != nil {
		return err
	}
	defer n.release()
	say(opts.Out, "state", "%s", opts.Config.State)
	n.found(opts)
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error { return s.run(gctx) })
	g.Go(func() error { return runGateway(gctx, opts, bytes, s.control.TicketKey) })
	g.Go(func() error { return keys.run(gctx, opts, s.control) })
	g.Go(func() error { return web.run(gctx, opts, s.control) })
	g.Go(func() error { return n.node.Run(gctx) })
	g.Go(func() error {
		select {
		case <-n.node.Ready():
			ready(gctx, s, n)
		case <-gctx.Done():
		}
		return nil
	})
	return g.Wait()
}

// greet says what is served once it is, and has the base image made. A base
// image that cannot be made is no reason to stop: other images still work.
func greet(ctx context.Context, opts Options, s *controlPlane, n *nodeParts) {
	say(opts.Out, "serving", "API on %s and, with a token, on http://%s; bytes on http://%s",
		opts.Config.Socket(), opts.Config.APIListen, opts.Config.GatewayListen)
	saySSH(opts)
	sayEntrance(opts)
	sayStop(opts.Out)
	if err := ensureBase(ctx, opts, s, n); err != nil && ctx.Err() == nil {
		opts.Log.Error("no base image", "err", err)
		say(opts.Out, "image", "%s could not be made: %v", baseImage, err)
		if h := errs.HintOf(err); h != "" {
			say(opts.Out, "hint", "%s", h)
		}
		return
	}
	if ctx.Err() == nil {
		say(opts.Out, "ready", "try: billet ws create demo && billet ws shell demo")
	}
}

func ensureBase(ctx context.Context, opts Options, s *controlPlane, n *nodeParts) error {
	_, err := s.control.Image(ctx, model.Principal{Tenant: model.DefaultTenant}, baseImage)
	if !errs.Is(err, errs.NotFound) {
		return err
	}
	began := clock.Start()
	say(opts.Out, "image", "making %s: a Debian, once; this takes a minute or two", baseImage)
	stage := ""
	img, err := n.node.BuildImage(ctx, node.ImageRequest{Name: baseImage, Kind: api.ImageDebian}, nil, func(p api.ImageProgress) {
		if p.Stage != stage {
			stage = p.Stage
			say(opts.Out, "image", "%s: %s (%s)", baseImage, stage, began.Elapsed().Round(time.Second))
		}
	})
	if err != nil {
		return err
	}
	say(opts.Out, "image", "%s is there: %d MiB used, %d MiB stored, %s", baseImage, img.UsedBytes>>20, img.StoredBytes>>20, began.Elapsed().Round(time.Second))
	return nil
}

func lookPath(name string) (string, error) {
	path, err := exec.LookPath(name)
	if err != nil {
		return "", errs.New(errs.Unsupported, "%s is not there", name).WithHint("build it with: make build runsc; it belongs beside the billet binary or on the PATH")
	}
	return path, nil
}
