package api

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"net/url"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/billethq/billet/internal/errs"
)

// dialTimeout bounds one connection attempt. Every endpoint is on this machine
// until mutual TLS exists, so that a slow answer is a hung process.
const dialTimeout = 5 * time.Second

// Endpoint is where a part of billet listens: a Unix socket or a loopback
// address.
type Endpoint struct {
	Network string // "unix" or "tcp"
	Address string // a path, or host:port
}

// ParseEndpoint reads unix:///path or http://host:port. Anything that is not
// on this machine is refused (see CheckLoopback).
func ParseEndpoint(s string) (Endpoint, error) {
	const hint = "write unix:///path/to/billet.sock or http://127.0.0.1:7480"
	u, err := url.Parse(s)
	if err != nil {
		return Endpoint{}, errs.New(errs.Invalid, "%q is not a URL", s).WithHint(hint)
	}
	switch u.Scheme {
	case "unix":
		if u.Host != "" || !filepath.IsAbs(u.Path) {
			return Endpoint{}, errs.New(errs.Invalid, "%q names no absolute path", s).WithHint(hint)
		}
		return Endpoint{Network: "unix", Address: u.Path}, nil
	case "http":
		if (u.Path != "" && u.Path != "/") || u.RawQuery != "" || u.User != nil {
			return Endpoint{}, errs.New(errs.Invalid, "%q has more than a host and a port", s).WithHint(hint)
		}
		if err := CheckLoopback(u.Host); err != nil {
			return Endpoint{}, err
		}
		return Endpoint{Network: "tcp", Address: u.Host}, nil
	case "https":
		return Endpoint{}, errs.New(errs.Unsupported, "%q: billet does not speak TLS yet", s).WithHint(hint)
	}
	return Endpoint{}, errs.New(errs.Invalid, "%q is neither a Unix socket nor an HTTP address", s).WithHint(hint)
}

// String is the URL that ParseEndpoint reads.
func (e Endpoint) String() string {
	if e.Network == "unix" {
		return "unix://" + e.Address
	}
	return "http://" + e.Address
}

// Dial opens a connection. Nobody listening is errs.Unavailable, a socket that
// the caller may not open is errs.Denied; both say what to do.
func (e Endpoint) Dial(ctx context.Context) (net.Conn, error) {
	d := net.Dialer{Timeout: dialTimeout}
	c, err := d.DialContext(ctx, e.Network, e.Address)
	switch {
	case err == nil:
		return c, nil
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, fs.ErrNotExist):
		return nil, errs.New(errs.Unavailable, "nothing listens on %s", e).WithHint("start it with: billet up")
	case errors.Is(err, fs.ErrPermission):
		return nil, errs.New(errs.Denied, "you may not open %s", e).WithHint("run as root, or use --address and --token-file")
	}
	return nil, errs.Wrap(errs.Unavailable, err, "dial %s", e)
}

// CheckLoopback refuses a host:port that can be reached from, or lies on,
// another machine. Traffic is not encrypted and nodes are not authenticated by
// certificate yet; a token on the wire would be anybody's. It is asked before
// every listen and every dial.
func CheckLoopback(addr string) error {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return errs.New(errs.Invalid, "address %q is not host:port", addr).WithHint("write 127.0.0.1:7480")
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil {
		return errs.New(errs.Invalid, "address %q has no valid port", addr).WithHint("use a port from 1 to 65535, or 0 for any")
	} else if n != 0 && strconv.FormatUint(n, 10) != port {
		return errs.New(errs.Invalid, "address %q has an oddly written port", addr).WithHint("write %d", n)
	}
	if host == "localhost" {
		return nil
	}
	if ip, err := netip.ParseAddr(host); err == nil && ip.Unmap().IsLoopback() {
		return nil
	}
	what := fmt.Sprintf("%q is not a loopback address", addr)
	if host == "" {
		what = fmt.Sprintf("%q means every address of this machine", addr)
	}
	return errs.New(errs.Unsupported, "%s: without mutual TLS billet stays on one machine", what).
		WithHint("use 127.0.0.1 and carry it elsewhere with: ssh -L 7480:127.0.0.1:7480")
}
