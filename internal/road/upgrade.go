package road

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/errs"
)

// Protocol is the value of the Upgrade header on both doors of a gateway.
const Protocol = "billet-road/1"

// The doors of a gateway.
const (
	StreamPath  = "/road/stream"  // clients: one stream per connection
	SessionPath = "/road/session" // nodes: a multiplexed session
)

// handshakeTimeout bounds the way from dialling to the answer of the upgrade.
const handshakeTimeout = 15 * time.Second

// Dial opens a stream on the road that a names. The caller owns the
// connection. Errors: errs.Unavailable when the gateway or the node cannot be
// reached, and whatever kind the node refuses with.
func Dial(ctx context.Context, a api.Attachment) (net.Conn, error) {
	return upgrade(ctx, a.Gateway, StreamPath, a.Ticket)
}

// upgrade dials a gateway and switches the connection to the road's protocol.
func upgrade(ctx context.Context, gateway, path, ticket string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	conn, err := dialGateway(ctx, gateway)
	if err != nil {
		return nil, errs.Wrap(errs.Unavailable, err, "dial gateway %s", gateway)
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	up, err := switchProtocol(conn, path, ticket)
	if !stop() && err == nil {
		err = errs.Wrap(errs.Unavailable, context.Cause(ctx), "open a stream at gateway %s", gateway)
	}
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return up, nil
}

func dialGateway(ctx context.Context, gateway string) (net.Conn, error) {
	var d net.Dialer
	u, err := url.Parse(gateway)
	if err != nil {
		return nil, err
	}
	switch u.Scheme {
	case "unix":
		return d.DialContext(ctx, "unix", u.Path)
	case "http":
		return d.DialContext(ctx, "tcp", u.Host)
	}
	return nil, errs.New(errs.Invalid, "gateway address %q is neither http:// nor unix://", gateway)
}

func switchProtocol(conn net.Conn, path, ticket string) (net.Conn, error) {
	req, err := http.NewRequest(http.MethodGet, "http://gateway"+path, nil)
	if err != nil {
		return nil, errs.Wrap(errs.Internal, err, "make the upgrade request")
	}
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Upgrade", Protocol)
	req.Header.Set("Authorization", "Bearer "+ticket)
	if err := req.Write(conn); err != nil {
		return nil, errs.Wrap(errs.Unavailable, err, "send the upgrade request")
	}
	br := bufio.NewReader(conn)
	resp, err := http.ReadResponse(br, req)
	if err != nil {
		return nil, errs.Wrap(errs.Unavailable, err, "read the gateway's answer")
	}
	if resp.StatusCode != http.StatusSwitchingProtocols {
		defer resp.Body.Close()
		return nil, problemOf(resp)
	}
	return &bufferedConn{Conn: conn, r: br}, nil
}

// problemOf turns a refused upgrade into the error that the gateway meant.
func problemOf(resp *http.Response) error {
	var p api.Problem
	body, _ := io.ReadAll(io.LimitReader(resp.Body, maxFrame))
	if err := json.Unmarshal(body, &p); err != nil || p.Kind == "" {
		return errs.New(errs.Unavailable, "gateway answered %s", resp.Status)
	}
	return p.Err()
}

// Accept switches an HTTP request on a gateway's door to the road's protocol
// and takes its connection over. The caller has checked the ticket.
func Accept(w http.ResponseWriter) (net.Conn, error) {
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return nil, errs.Wrap(errs.Internal, err, "take over the connection")
	}
	// The HTTP server may have left its own deadlines on the connection.
	_ = conn.SetDeadline(time.Time{})
	_, err = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "+Protocol+"\r\n\r\n")
	if err != nil {
		_ = conn.Close()
		return nil, errs.Wrap(errs.Unavailable, err, "answer the upgrade")
	}
	return &bufferedConn{Conn: conn, r: rw.Reader}, nil
}

// TicketOf returns the ticket of a request on a gateway's door, as text.
func TicketOf(r *http.Request) (string, error) {
	if !strings.EqualFold(r.Header.Get("Upgrade"), Protocol) {
		return "", errs.New(errs.Invalid, "this door speaks %s only", Protocol).WithHint("use the billet client")
	}
	ticket, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok {
		return "", errs.New(errs.Unauthenticated, "no ticket").WithHint("ask the API for an attachment first")
	}
	return ticket, nil
}

// bufferedConn first yields what the HTTP reader had read ahead.
type bufferedConn struct {
	net.Conn
	r *bufio.Reader
}

func (c *bufferedConn) Read(p []byte) (int, error) { return c.r.Read(p) }

// CloseWrite ends the writing direction where the transport can.
func (c *bufferedConn) CloseWrite() error {
	if cw, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return cw.CloseWrite()
	}
	return c.Conn.Close()
}
