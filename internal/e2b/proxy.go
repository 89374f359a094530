package e2b

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"time"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/guest/portclient"
	"github.com/billethq/billet/internal/road"
)

const (
	// idleConns are kept per instance: a client's calls in a row use one road.
	idleConns = 4
	// idleFor ends one that nobody used: the guest counts it.
	idleFor = 30 * time.Second
	// dialWait bounds one dial over the road.
	dialWait = 20 * time.Second
)

// way is how a request gets to its sandbox.
type way struct {
	target target
	at     api.Attachment
}

type wayKey struct{}

// newProxy passes requests on over the road. Connections are kept by instance,
// so that none of an earlier life is taken for one of the present.
func (h *Handler) newProxy() *httputil.ReverseProxy {
	return &httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) {
			v := p.In.Context().Value(wayKey{}).(way)
			p.Out.URL.Scheme, p.Out.URL.Host = "http", hostOf(v.target, v.at).Host
			p.Out.Host = p.In.Host
			if v.target.port == agentPort {
				p.Out.Host = "guest"
			}
			strip(p.Out.Header)
		},
		Transport: &http.Transport{
			DialContext: dial, MaxIdleConnsPerHost: idleConns, IdleConnTimeout: idleFor,
			DisableCompression: true, ResponseHeaderTimeout: 0, // a command may be silent for hours
		},
		FlushInterval: -1, // every event at once
		ErrorHandler:  h.lost,
		ErrorLog:      slog.NewLogLogger(h.cfg.Log.Handler(), slog.LevelDebug),
	}
}

// pass sends a request on and its answer back.
func (h *Handler) pass(w http.ResponseWriter, r *http.Request, t target, a api.Attachment) {
	// The contract's input streams and outputs at once, also over HTTP/1.1.
	_ = http.NewResponseController(w).EnableFullDuplex()
	h.proxy.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), wayKey{}, way{t, a})))
}

// dial opens a connection to the agent or to a port of the guest. The
// transport keeps the values of the request that wanted it.
func dial(ctx context.Context, _, _ string) (net.Conn, error) {
	v, ok := ctx.Value(wayKey{}).(way)
	if !ok {
		return nil, errs.New(errs.Internal, "a dial without its way")
	}
	ctx, cancel := context.WithTimeout(ctx, dialWait)
	defer cancel()
	if v.target.port == agentPort {
		return road.Dial(ctx, v.at)
	}
	agent := func(ctx context.Context) (net.Conn, error) { return road.Dial(ctx, v.at) }
	return portclient.DialPort(ctx, agent, "tcp", "localhost:"+v.target.port)
}

// lost answers for a sandbox that was not reached, or is gone in the middle.
func (h *Handler) lost(w http.ResponseWriter, r *http.Request, err error) {
	v := r.Context().Value(wayKey{}).(way)
	if r.Context().Err() != nil {
		w.WriteHeader(http.StatusBadGateway) // nobody reads it
		return
	}
	h.cfg.Log.Debug("sandbox not reached", "sandbox", v.target.id, "port", v.target.port, "error", err)
	message := "the sandbox could not be reached: it may be going down"
	if v.target.port != agentPort {
		message = "the sandbox is running but nothing listens on port " + v.target.port
		if !errs.Is(err, errs.NotFound) {
			message = "port " + v.target.port + " of the sandbox could not be reached: " + err.Error()
		}
	}
	h.refuseData(w, v.target, http.StatusBadGateway, message)
}
