package daemon

import (
	"context"
	"net"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/clock"
	"github.com/billethq/billet/internal/config"
	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/gateway/sshd"
	"github.com/billethq/billet/internal/model"
	"github.com/billethq/billet/internal/road"
)

// sshDoor is the gateway's SSH server, or none when the configuration has it
// off.
type sshDoor struct{ l net.Listener }

func listenSSH(opts Options) (sshDoor, error) {
	if opts.Config.SSHListen == "" {
		return sshDoor{}, nil
	}
	l, err := listenLoopback(opts.Config.SSHListen)
	if err != nil {
		return sshDoor{}, err // and not l: a nil listener in it would not be nil
	}
	return sshDoor{l}, nil
}

// close may be called after run.
func (d sshDoor) close() {
	if d.l != nil {
		_ = d.l.Close()
	}
}

// run serves until ctx ends.
func (d sshDoor) run(ctx context.Context, opts Options, control api.SSHPlane) error {
	if d.l == nil {
		return nil
	}
	s, err := sshd.New(sshd.Config{Control: control, Dial: road.Dial, Clock: clock.Real{}, Log: opts.Log.With("role", "gateway")})
	if err != nil {
		return err
	}
	return s.Serve(ctx, d.l)
}

func saySSH(opts Options) {
	if opts.Config.SSHListen != "" {
		say(opts.Out, "ssh", "ssh NAME@%s; set up once with: billet ssh-key add && billet ssh-config", opts.Config.SSHListen)
	}
}

// gatewayClient is the client with which a gateway calls its server. On the
// server's own machine it needs no token. One that has a node's serves the road
// and nobody by SSH: a node must not speak for people.
func gatewayClient(cfg config.Config) (*api.Client, error) {
	ep, err := api.ParseEndpoint(cfg.NodeServer())
	if err != nil {
		return nil, err
	}
	token, err := readToken(cfg.GatewayToken(), model.RoleGateway)
	if errs.Is(err, errs.Unauthenticated) && ep.Network == "unix" {
		token, err = "", nil
	} else if errs.Is(err, errs.Unauthenticated) {
		if old, nodeErr := readToken(cfg.NodeTokenFile(), model.RoleNode); nodeErr == nil {
			token, err = old, nil
		}
	}
	if err != nil {
		return nil, err
	}
	return api.NewClient(api.ClientConfig{Endpoint: ep, Token: token})
}
