// Package gateway is the door for bytes: it joins a client's stream to the
// session of the node that its ticket names. It keeps nothing; a gateway that
// is lost costs a reconnect.
package gateway

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"log/slog"
	"net/http"
	"sync"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/clock"
	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/model"
	"github.com/billethq/billet/internal/road"
	"github.com/billethq/billet/internal/road/splice"
)

// Config is what a gateway needs.
type Config struct {
	Key   func() ed25519.PublicKey // verifies tickets
	Clock clock.Clock
	Log   *slog.Logger
}

// Gateway is the role.
type Gateway struct {
	cfg Config
	mux *http.ServeMux

	mu       sync.Mutex
	sessions map[model.NodeID]*road.GatewayEnd
	closed   bool
	open     sync.WaitGroup
}

// New validates cfg and returns a gateway that serves HTTP.
func New(cfg Config) (*Gateway, error) {
	if cfg.Key == nil || cfg.Clock == nil || cfg.Log == nil {
		return nil, errs.New(errs.Internal, "gateway: key, clock and log are needed")
	}
	g := &Gateway{cfg: cfg, mux: http.NewServeMux(), sessions: map[model.NodeID]*road.GatewayEnd{}}
	g.mux.HandleFunc("GET "+road.SessionPath, g.session)
	g.mux.HandleFunc("GET "+road.StreamPath, g.stream)
	return g, nil
}

// ServeHTTP serves both doors.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) { g.mux.ServeHTTP(w, r) }

// Nodes lists the nodes that have a session.
func (g *Gateway) Nodes() []model.NodeID {
	g.mu.Lock()
	defer g.mu.Unlock()
	ids := make([]model.NodeID, 0, len(g.sessions))
	for id := range g.sessions {
		ids = append(ids, id)
	}
	return ids
}

// Close ends every session and waits for the streams.
func (g *Gateway) Close(context.Context) error {
	g.mu.Lock()
	g.closed = true
	for _, s := range g.sessions {
		_ = s.Close()
	}
	g.mu.Unlock()
	g.open.Wait()
	return nil
}

// ticket checks the ticket of a request and that it opens this kind of door.
func (g *Gateway) ticket(r *http.Request) (road.Ticket, string, error) {
	text, err := road.TicketOf(r)
	if err != nil {
		return road.Ticket{}, "", err
	}
	t, err := road.Verify(g.cfg.Key(), text, g.cfg.Clock.Now())
	if err != nil {
		return road.Ticket{}, "", err
	}
	if session := r.URL.Path == road.SessionPath; session != (t.Target == road.TargetSession) {
		return road.Ticket{}, "", errs.New(errs.Denied, "a %s ticket does not open %s", t.Target, r.URL.Path)
	}
	return t, text, nil
}

// session accepts a node's session and keeps it until it ends. The newest
// session of a node wins: the older one is a connection that the node has
// already given up.
func (g *Gateway) session(w http.ResponseWriter, r *http.Request) {
	t, _, err := g.ticket(r)
	if err != nil {
		refuse(w, err)
		return
	}
	conn, err := road.Accept(w)
	if err != nil {
		g.cfg.Log.Warn("node session refused", "node", t.Node, "err", err)
		return
	}
	end, err := road.NewGatewayEnd(conn)
	if err != nil {
		_ = conn.Close()
		g.cfg.Log.Warn("node session refused", "node", t.Node, "err", err)
		return
	}
	if !g.keep(t.Node, end) {
		_ = end.Close()
		return
	}
	g.cfg.Log.Info("node session open", "node", t.Node)
	<-end.Done()
	g.drop(t.Node, end)
	g.cfg.Log.Info("node session ended", "node", t.Node)
}

func (g *Gateway) keep(id model.NodeID, end *road.GatewayEnd) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return false
	}
	if old := g.sessions[id]; old != nil {
		_ = old.Close()
	}
	g.sessions[id] = end
	return true
}

func (g *Gateway) drop(id model.NodeID, end *road.GatewayEnd) {
	_ = end.Close()
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.sessions[id] == end {
		delete(g.sessions, id)
	}
}

// stream joins a client to its node. The node is asked before the client's
// connection is switched, so that a refusal is an ordinary HTTP answer.
func (g *Gateway) stream(w http.ResponseWriter, r *http.Request) {
	t, text, err := g.ticket(r)
	if err != nil {
		refuse(w, err)
		return
	}
	g.mu.Lock()
	end := g.sessions[t.Node]
	if end == nil || g.closed {
		g.mu.Unlock()
		refuse(w, errs.New(errs.Unavailable, "node %s has no session with this gateway", t.Node).WithHint("try again in a few seconds; see: billet node ls"))
		return
	}
	g.open.Add(1)
	g.mu.Unlock()
	defer g.open.Done()
	guest, err := end.Open(text)
	if err != nil {
		refuse(w, err)
		return
	}
	client, err := road.Accept(w)
	if err != nil {
		_ = guest.Close()
		return
	}
	splice.Join(client, guest)
}

// refuse answers with a problem.
func refuse(w http.ResponseWriter, err error) {
	status := api.StatusOf(errs.KindOf(err))
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(api.ProblemOf(err))
}
