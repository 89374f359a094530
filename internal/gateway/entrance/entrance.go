// Package entrance is the gateway's HTTP door to servers inside workspaces: it
// finds out who asks for which port, has a workspace that sleeps resumed, and
// passes requests on over the road.
//
// It keeps nothing that matters: who may enter is control's to say, and what a
// browser keeps is a pass that control signed.
package entrance

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/clock"
	"github.com/billethq/billet/internal/errs"
)

const (
	// maxRequests bounds the requests served at once, those that wait for a
	// workspace and open WebSockets among them.
	maxRequests = 2048
	// pagePatience is how long a browser is shown nothing before it is told what
	// the workspace is doing.
	pagePatience = 2 * time.Second
	// idleTimeout ends a request on which no byte has moved: a peer that is
	// gone without a word must not hold it.
	idleTimeout = 15 * time.Minute
	// defaultDeadline is how long a request is held for a workspace that sleeps.
	defaultDeadline = time.Minute
)

// Config is what an Entrance needs.
type Config struct {
	Control  api.Entrance
	Domain   string        // of the names PORT-NAME.Domain
	Deadline time.Duration // for a workspace to come up; 0 is a minute
	Clock    clock.Clock
	Log      *slog.Logger
}

// Entrance serves HTTP.
type Entrance struct {
	cfg    Config
	places chan struct{}
	ctx    context.Context // of what outlives the request that began it
	cancel context.CancelFunc
	work   sync.WaitGroup

	mu      sync.Mutex
	entries map[entryKey]*entry
}

// New validates cfg.
func New(cfg Config) (*Entrance, error) {
	if cfg.Control == nil || cfg.Domain == "" || cfg.Clock == nil || cfg.Log == nil {
		return nil, errs.New(errs.Internal, "entrance: control, domain, clock and log are needed")
	}
	if cfg.Deadline == 0 {
		cfg.Deadline = defaultDeadline
	}
	e := &Entrance{cfg: cfg, places: make(chan struct{}, maxRequests), entries: map[entryKey]*entry{}}
	e.ctx, e.cancel = context.WithCancel(context.Background())
	return e, nil
}

// Close gives up what is waited for.
func (e *Entrance) Close() {
	e.cancel()
	e.work.Wait()
}

// visit is one request to one port.
type visit struct {
	e *Entrance
	w http.ResponseWriter
	r *http.Request
	target
	browser bool // a person looks at the answer
	shown   bool // the visitor showed something: it may be told more
}

// ServeHTTP serves every workspace.
func (e *Entrance) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	v := &visit{e: e, w: w, r: r, browser: isBrowser(r)}
	select {
	case e.places <- struct{}{}:
		defer func() { <-e.places }()
	default:
		v.refuse(errs.New(errs.Exhausted, "the gateway is serving %d requests already", maxRequests))
		return
	}
	if err := e.locate(v); err != nil {
		v.refuse(err)
		return
	}
	switch {
	case v.path == "": // the path form without its last slash
		v.redirect(v.prefix+"/", http.StatusPermanentRedirect)
	case v.path == loginPath:
		v.login()
	case r.URL.Query().Has(api.LinkParameter):
		v.link()
	default:
		v.serve()
	}
}

// serve finds the road and passes the request on.
func (v *visit) serve() {
	creds, err := credentials(v.r, v.foreign())
	if err != nil {
		v.refuse(err)
		return
	}
	v.shown = creds.token != ""
	conn, in, err := v.open(creds)
	var waiting *stillWaiting
	switch {
	case asWaiting(err, &waiting):
		v.waitPage(waiting.phase)
	case err != nil:
		v.refuse(err)
	default:
		v.forward(conn, in)
	}
}
