package entrance

import (
	"context"
	"crypto/sha256"
	"errors"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/guest/portclient"
	"github.com/billethq/billet/internal/road"
)

// maxEntries bounds the answers of control that are remembered.
const maxEntries = 4096

// entryKey is what control is asked. Proofs are kept as hashes.
type entryKey struct {
	name  string
	port  int
	proof [32]byte
}

// entry is one question to control and its answer, which many requests share:
// a page loads fifty files at once, and a workspace is resumed once.
type entry struct {
	done chan struct{}

	mu    sync.Mutex
	phase api.ConnectPhaseName

	// Set before done is closed.
	in   api.Entered
	err  error
	good time.Time // until when the answer is used
}

func (n *entry) reached() api.ConnectPhaseName {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.phase
}

// stillWaiting is what a browser is told meanwhile.
type stillWaiting struct{ phase api.ConnectPhaseName }

func (*stillWaiting) Error() string { return "the workspace is not up yet" }

func asWaiting(err error, w **stillWaiting) bool { return errors.As(err, w) }

// open returns a connection to the port, for the first of the proofs that opens
// it.
func (v *visit) open(c shownCredentials) (conn net.Conn, in api.Entered, err error) {
	for _, proof := range c.proofs() {
		if conn, in, err = v.openBy(proof); !errs.Is(err, errs.Unauthenticated) {
			v.shown = v.shown || proof != "" && !in.Public
			return conn, in, err
		}
	}
	return conn, in, err
}

// openBy dials twice: a workspace that went to sleep since control was asked is
// asked for again.
func (v *visit) openBy(proof api.Secret) (net.Conn, api.Entered, error) {
	key := entryKey{v.name, v.port, sha256.Sum256([]byte(proof))}
	for again := false; ; again = true {
		n := v.e.ask(key, proof)
		if err := v.wait(n); err != nil {
			return nil, api.Entered{}, err
		}
		if n.err != nil {
			return nil, api.Entered{}, n.err
		}
		conn, lost, err := dial(v.r.Context(), n.in.Attachment, v.port)
		if err == nil {
			return conn, n.in, nil
		}
		v.e.forget(key, n)
		if !lost || again || v.r.Context().Err() != nil {
			return nil, n.in, &portError{err}
		}
	}
}

// portError is an error of the server in the guest, or of the way to it.
type portError struct{ error }

func (e *portError) Unwrap() error { return e.error }

// dial opens the port over the road. lost says that the road is not there any
// more.
func dial(ctx context.Context, a api.Attachment, port int) (conn net.Conn, lost bool, err error) {
	conn, err = portclient.DialPort(ctx, func(ctx context.Context) (net.Conn, error) {
		c, err := road.Dial(ctx, a)
		lost = err != nil
		return c, err
	}, "tcp", net.JoinHostPort("localhost", strconv.Itoa(port)))
	return conn, lost, err
}

// wait waits for an answer: for a browser only so long that it can be told what
// is waited for.
func (v *visit) wait(n *entry) error {
	var patience <-chan time.Time
	if v.browser {
		t := time.NewTimer(pagePatience)
		defer t.Stop()
		patience = t.C
	}
	select {
	case <-n.done:
		return nil
	case <-patience:
		return &stillWaiting{n.reached()}
	case <-v.r.Context().Done():
		return errs.Wrap(errs.Unavailable, v.r.Context().Err(), "the visitor has gone")
	}
}

// ask returns control's answer to a question, or what will be it. The question
// goes on when nobody waits any more: a browser comes back for the answer.
func (e *Entrance) ask(key entryKey, proof api.Secret) *entry {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := e.cfg.Clock.Now()
	old := e.entries[key]
	if old != nil && !old.over(now) {
		return old
	}
	n := &entry{done: make(chan struct{})}
	if len(e.entries) >= maxEntries {
		e.sweep(now)
	}
	if len(e.entries) >= maxEntries || e.ctx.Err() != nil {
		n.err = errs.New(errs.Exhausted, "the gateway is busy")
		close(n.done)
		return n
	}
	e.entries[key] = n
	e.work.Go(func() { e.enter(key, proof, n, old) })
	return n
}

// over reports whether an answer is too old.
func (n *entry) over(now time.Time) bool {
	select {
	case <-n.done:
		return !now.Before(n.good)
	default:
		return false
	}
}

// sweep forgets what is too old. The caller holds mu.
func (e *Entrance) sweep(now time.Time) {
	for key, n := range e.entries {
		if n.over(now) {
			delete(e.entries, key)
		}
	}
}

func (e *Entrance) forget(key entryKey, n *entry) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.entries[key] == n {
		delete(e.entries, key)
	}
}

// failureKept is how long an answer that took a while and was bad is kept: the
// page that waits for it comes back within.
const failureKept = 3 * time.Second

// enter asks control. While that does not answer, an answer that was good holds
// as long as its ticket: control is needed to open a road, not to keep one.
func (e *Entrance) enter(key entryKey, proof api.Secret, n, old *entry) {
	ctx, cancel := context.WithTimeout(e.ctx, e.cfg.Deadline+api.EntranceRecheck) // control keeps the deadline, and knows why
	defer cancel()
	req := api.VisitRequest{Workspace: key.name, Port: key.port, Proof: proof, DeadlineMilli: e.cfg.Deadline.Milliseconds()}
	n.in, n.err = e.cfg.Control.EnterPort(ctx, req, func(p api.ConnectPhase) error {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.phase = p.Name
		return nil
	})
	now := e.cfg.Clock.Now()
	if errs.Is(n.err, errs.Unavailable) && n.reached() == "" && old != nil && old.err == nil && now.Before(old.in.Attachment.Expires) && now.Before(old.in.Until) {
		n.in, n.err = old.in, nil
	}
	n.good = now.Add(api.EntranceRecheck)
	switch {
	case n.err != nil && n.reached() == "":
		n.good = now // it took no time to find out
	case n.err != nil:
		n.good = now.Add(failureKept)
	case n.in.Until.Before(n.good):
		n.good = n.in.Until
	}
	close(n.done)
	if n.err != nil && n.reached() == "" {
		e.forget(key, n)
	}
}

// isBrowser reports whether a person looks at the answer.
func isBrowser(r *http.Request) bool {
	return (r.Method == http.MethodGet || r.Method == http.MethodHead) && r.Header.Get("Upgrade") == "" && acceptsPage(r)
}
