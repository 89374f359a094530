package entrance

import (
	"bufio"
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"time"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/errs"
)

// maxResponseHeader bounds what a server in a guest makes the gateway hold.
const maxResponseHeader = 256 << 10

// forward passes the request on over conn, which is this request's alone: no
// visitor meets what another one left on a connection.
func (v *visit) forward(conn net.Conn, in api.Entered) {
	guest := &idleConn{Conn: conn}
	guest.extend()
	defer guest.Close()
	ctx := v.r.Context()
	if in.Public { // a WebSocket ends with the share
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, in.Until)
		defer cancel()
	}
	proxy := &httputil.ReverseProxy{
		Rewrite: v.rewrite,
		Transport: &http.Transport{
			DialContext:            func(context.Context, string, string) (net.Conn, error) { return guest, nil },
			DisableKeepAlives:      true,
			DisableCompression:     true, // the guest's bytes are passed on as they are
			MaxResponseHeaderBytes: maxResponseHeader,
		},
		FlushInterval:  -1, // at once
		ModifyResponse: v.clean,
		ErrorHandler: func(_ http.ResponseWriter, _ *http.Request, err error) {
			v.refuse(&portError{errs.Wrap(errs.Unavailable, err, "the server on port %d did not answer as it should", v.port)})
		},
		ErrorLog: slog.NewLogLogger(v.e.cfg.Log.Handler(), slog.LevelDebug),
	}
	out := &idleWriter{ResponseWriter: v.w, rc: http.NewResponseController(v.w)}
	defer out.rest()
	proxy.ServeHTTP(out, v.r.WithContext(ctx))
}

// rewrite makes the request for the guest. Hop-by-hop headers are gone already.
func (v *visit) rewrite(p *httputil.ProxyRequest) {
	strip(p.Out.Header)
	p.SetXForwarded()
	if v.prefix != "" {
		p.Out.Header.Set("X-Forwarded-Prefix", v.prefix)
	}
	p.Out.Host = p.In.Host
	path, err := url.PathUnescape(v.path)
	if err != nil {
		path = v.path // cannot be: the server has parsed it
	}
	p.Out.URL = &url.URL{Scheme: "http", Host: "guest", Path: path, RawPath: v.path, RawQuery: p.In.URL.RawQuery, ForceQuery: p.In.URL.ForceQuery}
}

// clean keeps a server in a guest from speaking for more than its own port.
func (v *visit) clean(res *http.Response) error {
	h := res.Header
	// Of the whole site, which is every workspace's.
	h.Del("Clear-Site-Data")
	h.Del("Alt-Svc")
	if v.prefix != "" {
		h.Del("Service-Worker-Allowed")
		if to := h.Get("Location"); strings.HasPrefix(to, "/") && !strings.HasPrefix(to, "//") && !strings.HasPrefix(to+"/", v.prefix+"/") {
			h.Set("Location", v.prefix+to)
		}
	}
	var cookies []string
	for _, line := range h["Set-Cookie"] {
		if c := v.scope(line); c != "" {
			cookies = append(cookies, c)
		}
	}
	set(h, "Set-Cookie", cookies)
	return nil
}

// scope keeps a guest's cookie on its host, or below its prefix, and drops one
// that would take the place of billet's.
func (v *visit) scope(line string) string {
	parts := strings.Split(line, ";")
	name, _, _ := strings.Cut(parts[0], "=")
	if strings.TrimSpace(name) == cookieName {
		return ""
	}
	kept, path := parts[:1], ""
	for _, part := range parts[1:] {
		attribute, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		switch {
		case strings.EqualFold(attribute, "Domain"):
		case strings.EqualFold(attribute, "Path") && v.prefix != "":
			path = strings.TrimSpace(value)
		default:
			kept = append(kept, part)
		}
	}
	if v.prefix != "" {
		if !strings.HasPrefix(path+"/", v.prefix+"/") {
			path = v.prefix + "/" + strings.TrimLeft(path, "/")
		}
		kept = append(kept, " Path="+path)
	}
	return strings.Join(kept, ";")
}

// idleConn ends when no byte has moved for a while, either way.
type idleConn struct{ net.Conn }

func (c *idleConn) extend() { _ = c.SetDeadline(time.Now().Add(idleTimeout)) }

// Read reads and counts as movement.
func (c *idleConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.extend()
	}
	return n, err
}

// Write writes and counts as movement.
func (c *idleConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if n > 0 {
		c.extend()
	}
	return n, err
}

// idleWriter gives each write to the visitor its time.
type idleWriter struct {
	http.ResponseWriter
	rc *http.ResponseController
}

// Write writes to the visitor.
func (w *idleWriter) Write(p []byte) (int, error) {
	_ = w.rc.SetWriteDeadline(time.Now().Add(idleTimeout))
	return w.ResponseWriter.Write(p)
}

// Hijack gives a WebSocket's connection away, under the same rule.
func (w *idleWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := w.rc.Hijack()
	if err != nil {
		return nil, nil, err
	}
	idle := &idleConn{Conn: &earlyConn{conn, rw.Reader}}
	idle.extend()
	return idle, rw, nil
}

// earlyConn first yields what the HTTP server had read ahead, which the proxy
// would lose.
type earlyConn struct {
	net.Conn
	r *bufio.Reader
}

// Read reads what the visitor has sent.
func (c *earlyConn) Read(p []byte) (int, error) { return c.r.Read(p) }

// CloseWrite passes a half-close on where the transport can.
func (c *idleConn) CloseWrite() error {
	if cw, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return cw.CloseWrite()
	}
	return c.Conn.Close()
}

// CloseWrite ends the writing direction.
func (c *earlyConn) CloseWrite() error {
	if cw, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return cw.CloseWrite()
	}
	return c.Conn.Close()
}

// Unwrap is for http.ResponseController.
func (w *idleWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// rest takes the deadline back: the connection serves other requests.
func (w *idleWriter) rest() { _ = w.rc.SetWriteDeadline(time.Time{}) }
