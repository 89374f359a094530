package road

import (
	"context"
	"crypto/ed25519"
	"io"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/yamux"

	"github.com/billethq/billet/internal/clock"
	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/road/framed"
	"github.com/billethq/billet/internal/road/splice"
)

// maxStreams bounds the streams that one session accepts at once, so that a
// gateway gone wild cannot exhaust a node.
const maxStreams = 4096

// helloTimeout bounds the wait for a stream's first frame.
const helloTimeout = 10 * time.Second

func muxConfig() *yamux.Config {
	c := yamux.DefaultConfig()
	c.AcceptBacklog = maxStreams
	c.EnableKeepAlive = true
	c.KeepAliveInterval = 10 * time.Second
	c.ConnectionWriteTimeout = 20 * time.Second
	c.LogOutput = io.Discard // its lines repeat what the errors say
	return c
}

// OpenFunc opens what a verified ticket names, on the node.
type OpenFunc func(ctx context.Context, t Ticket) (net.Conn, error)

// NodeEnd is a node's side of the road: it keeps one session to one gateway
// and joins each accepted stream to what Open gives.
type NodeEnd struct {
	Gateway string                          // URL
	Ticket  func() string                   // the node's present session ticket
	Key     func() ed25519.PublicKey        // verifies clients' tickets
	Check   func(t Ticket) error            // is the ticket for this node
	Open    OpenFunc                        //
	Log     *slog.Logger                    //
	Clock   clock.Clock                     //
	State   func(connected bool, err error) // optional; called on every change
}

// reconnectMin and reconnectMax bound the back-off of Run: the first try after
// a loss is quick, because clients wait in their reconnection window.
const (
	reconnectMin = 50 * time.Millisecond
	reconnectMax = 5 * time.Second
)

// Run keeps the session up until ctx ends, then waits for its streams.
func (n *NodeEnd) Run(ctx context.Context) {
	var streams sync.WaitGroup
	defer streams.Wait()
	wait := reconnectMin
	for ctx.Err() == nil {
		began := n.Clock.Now()
		err := n.serve(ctx, &streams)
		n.report(false, err)
		if n.Clock.Now().Sub(began) > reconnectMax {
			wait = reconnectMin
		}
		if clock.Sleep(ctx, clock.Jitter(wait)) != nil {
			return
		}
		wait = min(2*wait, reconnectMax)
	}
}

func (n *NodeEnd) report(connected bool, err error) {
	if n.State != nil {
		n.State(connected, err)
	}
}

func (n *NodeEnd) serve(ctx context.Context, streams *sync.WaitGroup) error {
	conn, err := upgrade(ctx, n.Gateway, SessionPath, n.Ticket())
	if err != nil {
		return err
	}
	session, err := yamux.Server(framed.New(conn), muxConfig())
	if err != nil {
		_ = conn.Close()
		return errs.Wrap(errs.Internal, err, "start a session")
	}
	defer session.Close()
	stop := context.AfterFunc(ctx, func() { _ = session.Close() })
	defer stop()
	n.report(true, nil)
	for {
		stream, err := session.AcceptStream()
		if err != nil {
			return errs.Wrap(errs.Unavailable, err, "session with gateway %s", n.Gateway)
		}
		streams.Go(func() { n.handle(ctx, stream) })
	}
}

// handle answers one stream's hello and joins it to its target.
func (n *NodeEnd) handle(ctx context.Context, stream net.Conn) {
	target, err := n.open(ctx, stream)
	if err != nil {
		_ = writeFrame(stream, reply{Kind: errs.KindOf(err), Message: err.Error(), Hint: errs.HintOf(err)})
		_ = stream.Close()
		return
	}
	if err := writeFrame(stream, reply{}); err != nil {
		_ = stream.Close()
		_ = target.Close()
		return
	}
	splice.Join(stream, target)
}

func (n *NodeEnd) open(ctx context.Context, stream net.Conn) (net.Conn, error) {
	_ = stream.SetReadDeadline(time.Now().Add(helloTimeout))
	var h hello
	if err := readFrame(stream, &h); err != nil {
		return nil, errs.Wrap(errs.Invalid, err, "read the stream's first frame")
	}
	_ = stream.SetReadDeadline(time.Time{})
	t, err := Verify(n.Key(), h.Ticket, n.Clock.Now())
	if err != nil {
		return nil, err
	}
	if err := n.Check(t); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	return n.Open(ctx, t)
}

// GatewayEnd is a gateway's side of one node's session.
type GatewayEnd struct {
	session *yamux.Session
}

// NewGatewayEnd takes over a connection that a node has switched to the road.
func NewGatewayEnd(conn net.Conn) (*GatewayEnd, error) {
	session, err := yamux.Client(framed.New(conn), muxConfig())
	if err != nil {
		return nil, errs.Wrap(errs.Internal, err, "start a session")
	}
	return &GatewayEnd{session: session}, nil
}

// Done is closed when the session has ended.
func (g *GatewayEnd) Done() <-chan struct{} { return g.session.CloseChan() }

// Close ends the session and its streams.
func (g *GatewayEnd) Close() error { return g.session.Close() }

// Open opens a stream for a client's ticket. The error has the kind with which
// the node refused.
func (g *GatewayEnd) Open(ticket string) (net.Conn, error) {
	stream, err := g.session.OpenStream()
	if err != nil {
		return nil, errs.Wrap(errs.Unavailable, err, "open a stream to the node")
	}
	if err := g.greet(stream, ticket); err != nil {
		_ = stream.Close()
		return nil, err
	}
	return stream, nil
}

func (g *GatewayEnd) greet(stream net.Conn, ticket string) error {
	_ = stream.SetDeadline(time.Now().Add(handshakeTimeout))
	if err := writeFrame(stream, hello{Ticket: ticket}); err != nil {
		return errs.Wrap(errs.Unavailable, err, "greet the node")
	}
	var r reply
	if err := readFrame(stream, &r); err != nil {
		return errs.Wrap(errs.Unavailable, err, "read the node's answer")
	}
	_ = stream.SetDeadline(time.Time{})
	if r.Kind != "" {
		e := errs.New(r.Kind, "%s", r.Message)
		if r.Hint != "" {
			e = e.WithHint("%s", r.Hint)
		}
		return e
	}
	return nil
}
