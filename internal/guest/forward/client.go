package forward

import (
	"context"
	"io"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/yamux"

	"github.com/billethq/billet/internal/errs"
)

// Client is the outside. It is safe for concurrent use.
type Client struct {
	session *yamux.Session

	mu        sync.Mutex
	listeners map[uint64]func(conn net.Conn, from string)
}

// NewClient speaks with Serve in a guest over the streams of that process.
// close ends it. handlers of listeners run in goroutines of their own.
func NewClient(in io.Writer, out io.Reader, close func() error) (*Client, error) {
	session, err := yamux.Client(pipes{Reader: out, Writer: in, close: close}, config())
	if err != nil {
		return nil, errs.Wrap(errs.Internal, err, "start a session with the guest")
	}
	c := &Client{session: session, listeners: map[uint64]func(net.Conn, string){}}
	go c.accept()
	return c, nil
}

// Done is closed when the session has ended.
func (c *Client) Done() <-chan struct{} { return c.session.CloseChan() }

// Close ends the session and everything that goes over it.
func (c *Client) Close() error { return c.session.Close() }

// Dial opens a connection to an address in the guest. The Close of what it
// returns ends its own direction; the other ends with the guest's.
func (c *Client) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, _, err := c.ask(ctx, request{Op: opDial, Network: network, Address: address})
	return conn, err
}

// Listen listens in the guest until the closer is closed, and calls handle with
// each connection. network is tcp, unix or NetworkAgent, which has no address.
func (c *Client) Listen(ctx context.Context, network, address string, handle func(conn net.Conn, from string)) (at string, stop io.Closer, err error) {
	// No connection may come before its handler is known.
	c.mu.Lock()
	defer c.mu.Unlock()
	conn, r, err := c.ask(ctx, request{Op: opListen, Network: network, Address: address})
	if err != nil {
		return "", nil, err
	}
	c.listeners[r.ID] = handle
	return r.Address, listening{c, r.ID, conn}, nil
}

type listening struct {
	c    *Client
	id   uint64
	conn net.Conn
}

func (l listening) Close() error {
	l.c.mu.Lock()
	delete(l.c.listeners, l.id)
	l.c.mu.Unlock()
	return l.conn.Close()
}

func (c *Client) ask(ctx context.Context, req request) (net.Conn, reply, error) {
	var r reply
	conn, err := c.session.OpenStream()
	if err != nil {
		return nil, r, errs.Wrap(errs.Unavailable, err, "open a stream to the guest")
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if err = writeFrame(conn, req); err == nil {
		err = readFrame(conn, &r)
	}
	switch {
	case err != nil:
		err = errs.Wrap(errs.Unavailable, err, "ask the guest to %s", req.Op)
	case r.Error != "":
		err = errs.New(errs.NotFound, "%s", r.Error)
	case !stop():
		err = errs.Wrap(errs.Unavailable, context.Cause(ctx), "ask the guest to %s", req.Op)
	}
	if err != nil {
		_ = conn.Close()
		return nil, r, err
	}
	return conn, r, nil
}

// accept hands on what listeners of the guest accepted.
func (c *Client) accept() {
	for {
		conn, err := c.session.AcceptStream()
		if err != nil {
			return
		}
		go func() {
			var a accepted
			if readFrame(conn, &a) != nil {
				_ = conn.Close()
				return
			}
			c.mu.Lock()
			handle := c.listeners[a.ID]
			c.mu.Unlock()
			if handle == nil {
				_ = conn.Close()
				return
			}
			handle(conn, a.From)
		}()
	}
}
