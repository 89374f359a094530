// Package portclient opens connections to servers inside a guest, through the
// guest's agent.
package portclient

import (
	"bufio"
	"context"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/guest"
)

const (
	// dialTimeout bounds the call; the agent gives a dial five seconds.
	dialTimeout = 15 * time.Second
	// maxAnswer bounds what is read of the agent's answer: the guest may have
	// put anything in the agent's place.
	maxAnswer = 16 << 10
	// maxReason bounds what is told of it.
	maxReason = 256
)

// DialPort opens a connection to what listens in a guest on an address: of
// network "tcp" with localhost:PORT, 127.0.0.1:PORT or [::1]:PORT, or of "unix"
// with an absolute path. dial opens a stream to the guest's agent, such as
// road.Dial with an attachment. The connection has a CloseWrite.
//
// Errors: errs.NotFound when nothing listens there, errs.Invalid for an address
// that the agent does not dial, errs.Exhausted when too many are open,
// errs.Unsupported for a guest whose agent is older than this, errs.Unavailable
// when the agent cannot be reached, and those of dial.
func DialPort(ctx context.Context, dial func(context.Context) (net.Conn, error), network, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, dialTimeout, errs.New(errs.Unavailable, "the guest agent does not answer"))
	defer cancel()
	conn, err := dial(ctx)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	up, err := upgrade(conn, network, address)
	if !stop() {
		err = errs.Wrap(errs.Unavailable, context.Cause(ctx), "open %s in the guest", address)
	}
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return up, nil
}

func upgrade(conn net.Conn, network, address string) (net.Conn, error) {
	q := url.Values{"network": {network}, "address": {address}}
	req, err := http.NewRequest(http.MethodGet, "http://guest"+guest.DialPath+"?"+q.Encode(), nil)
	if err != nil {
		return nil, errs.Wrap(errs.Internal, err, "make the request for a port")
	}
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Upgrade", guest.StreamProtocol)
	if err := req.Write(conn); err != nil {
		return nil, errs.Wrap(errs.Unavailable, err, "ask the guest agent for a port")
	}
	limited := &io.LimitedReader{R: conn, N: maxAnswer}
	r := bufio.NewReader(limited)
	res, err := http.ReadResponse(r, req)
	if err != nil {
		return nil, errs.Wrap(errs.Unavailable, err, "read the guest agent's answer")
	}
	if res.StatusCode != http.StatusSwitchingProtocols {
		defer res.Body.Close()
		return nil, refusal(res)
	}
	limited.N = math.MaxInt64
	return &stream{Conn: conn, r: r}, nil
}

// refusal turns the agent's answer into an error. Its words are the guest's.
func refusal(res *http.Response) error {
	body, _ := io.ReadAll(io.LimitReader(res.Body, maxReason))
	reason := strings.ToValidUTF8(strings.TrimSpace(string(body)), "?")
	switch res.StatusCode {
	case http.StatusBadRequest:
		return errs.New(errs.Invalid, "%s", reason)
	case http.StatusBadGateway:
		return errs.New(errs.NotFound, "%s", reason).WithHint("start a server there, in the workspace")
	case http.StatusServiceUnavailable:
		return errs.New(errs.Exhausted, "%s", reason).WithHint("close some")
	case http.StatusGatewayTimeout:
		return errs.New(errs.Unavailable, "%s", reason)
	case http.StatusNotFound:
		return errs.New(errs.Unsupported, "the guest's agent is older than this and opens no ports").WithHint("start the workspace again from its disk: billet ws stop --cold, then billet ws start")
	}
	return errs.New(errs.Unavailable, "the guest agent answers %s: %s", res.Status, reason)
}

// stream first yields what the HTTP reader had read ahead.
type stream struct {
	net.Conn
	r *bufio.Reader
}

// Read reads what the server in the guest has sent.
func (c *stream) Read(p []byte) (int, error) { return c.r.Read(p) }

// CloseWrite ends the writing direction: a stream without a call for that has a
// Close that does it.
func (c *stream) CloseWrite() error {
	if cw, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return cw.CloseWrite()
	}
	return c.Conn.Close()
}
