package node

import (
	"context"
	"crypto/ed25519"
	"net"
	"slices"
	"sync"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/road"
)

// keepRoads keeps one session to each gateway of the projection, which it
// reads again whenever an answer has brought another one.
func (n *Node) keepRoads(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	ends := map[api.Gateway]context.CancelFunc{}
	for {
		want := n.projection().Gateways
		for g, stop := range ends {
			if !slices.Contains(want, g) {
				stop()
				delete(ends, g)
			}
		}
		for _, g := range want {
			if ends[g] != nil {
				continue
			}
			gctx, stop := context.WithCancel(ctx)
			ends[g] = stop
			running.Go(func() { n.nodeEnd(g).Run(gctx) })
		}
		select {
		case <-n.projected:
		case <-ctx.Done():
			return
		}
	}
}

func (n *Node) nodeEnd(g api.Gateway) *road.NodeEnd {
	return &road.NodeEnd{
		Gateway: g.URL,
		Ticket:  func() string { return n.projection().SessionTicket },
		Key:     func() ed25519.PublicKey { return n.projection().TicketKey },
		Check:   n.checkTicket,
		Open:    n.openTarget,
		Log:     n.cfg.Log,
		Clock:   n.cfg.Clock,
		State: func(up bool, err error) {
			n.cfg.Log.Info("gateway session", "gateway", g.Name, "up", up, "err", err)
		},
	}
}

func (n *Node) checkTicket(t road.Ticket) error {
	if t.Node != n.id || t.Deployment != n.projection().Deployment {
		return errs.New(errs.Denied, "the ticket is for another node")
	}
	return nil
}

// openTarget opens what a ticket names. The guest is untrusted: nothing but
// bytes is taken from it.
func (n *Node) openTarget(ctx context.Context, t road.Ticket) (net.Conn, error) {
	switch t.Target {
	case road.TargetAgent:
		s, err := n.find(t.Instance, t.Epoch)
		if err != nil {
			return nil, err
		}
		return s.openAgent(ctx)
	case road.TargetImages:
		return n.images.open(ctx, t)
	case road.TargetSession:
	}
	return nil, errs.New(errs.Denied, "a ticket for %q opens nothing on a node", string(t.Target))
}
