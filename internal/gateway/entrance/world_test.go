package entrance

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/clock"
	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/gateway"
	"github.com/billethq/billet/internal/guest/ports"
	"github.com/billethq/billet/internal/model"
	"github.com/billethq/billet/internal/road"
)

const (
	domain = "billet.localhost"
	ann    = "blt_ann"
	annsMy = "blp_ann" // ann's pass for "web"
)

// world is an entrance on a real gateway, road and guest agent. A test plays
// control, and the server in the guest.
type world struct {
	t     *testing.T
	url   string
	guest *httptest.Server // what listens in the guest
	port  string

	mu      sync.Mutex
	hold    chan struct{} // while not nil, entries wait for it
	fail    error
	public  time.Time // until when "web" is
	entered int
	sign    func(road.Ticket) string
	gateway string
	epoch   model.Epoch // of the instance that lives
	got     []*http.Request
}

func newWorld(t *testing.T, serve http.HandlerFunc, edit ...func(*Config)) *world {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	w := &world{t: t, epoch: 1}
	w.guest = httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		w.mu.Lock()
		w.got = append(w.got, r)
		w.mu.Unlock()
		serve(out, r)
	}))
	_, w.port, _ = net.SplitHostPort(w.guest.Listener.Addr().String())
	mux := http.NewServeMux()
	ports.New(log).Register(mux)
	agent := httptest.NewServer(mux)

	pub, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	w.sign = func(tk road.Ticket) string {
		tk.Node, tk.Expires = "n", time.Now().Add(time.Minute)
		s, err := road.Sign(key, tk)
		if err != nil {
			t.Error(err)
		}
		return s
	}
	gw, err := gateway.New(gateway.Config{Key: func() ed25519.PublicKey { return pub }, Clock: clock.Real{}, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	gate := httptest.NewServer(gw)
	w.gateway = gate.URL
	ctx, cancel := context.WithCancel(t.Context())
	end := &road.NodeEnd{
		Gateway: gate.URL, Ticket: func() string { return w.sign(road.Ticket{Target: road.TargetSession}) },
		Key: func() ed25519.PublicKey { return pub }, Clock: clock.Real{}, Log: log, Check: func(road.Ticket) error { return nil },
		Open: func(_ context.Context, tk road.Ticket) (net.Conn, error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			if tk.Epoch != w.epoch {
				return nil, errs.New(errs.Stale, "that instance is over")
			}
			return net.Dial("tcp", agent.Listener.Addr().String())
		},
	}
	var running sync.WaitGroup
	running.Go(func() { end.Run(ctx) })
	for len(gw.Nodes()) == 0 {
		runtime.Gosched()
	}

	cfg := Config{Control: w, Domain: domain, Clock: clock.Real{}, Log: log}
	for _, e := range edit {
		e(&cfg)
	}
	e, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(e)
	w.url = srv.URL
	t.Cleanup(func() {
		e.Close()
		srv.CloseClientConnections()
		w.guest.CloseClientConnections()
		cancel()
		_ = gw.Close(context.Background())
		running.Wait()
		for _, s := range []*httptest.Server{srv, gate, agent, w.guest} {
			s.Close()
		}
	})
	return w
}

// EnterPort implements api.Entrance: there is "web", which is ann's.
func (w *world) EnterPort(ctx context.Context, req api.VisitRequest, tell func(api.ConnectPhase) error) (api.Entered, error) {
	w.mu.Lock()
	w.entered++
	hold, fail, public := w.hold, w.fail, w.public
	in := api.Entered{Until: time.Now().Add(time.Hour)}
	w.mu.Unlock()
	switch req.Proof {
	case ann:
		if req.Workspace != "web" {
			return in, errs.New(errs.NotFound, "there is no such workspace")
		}
	case annsMy:
	default:
		if strings.HasPrefix(string(req.Proof), api.TokenPrefix) || !time.Now().Before(public) {
			return in, errs.New(errs.Unauthenticated, "this is private")
		}
		in.Public, in.Until = true, public
	}
	_ = tell(api.ConnectPhase{Name: api.PhaseAuthorised})
	if hold != nil {
		_ = tell(api.ConnectPhase{Name: api.PhaseRestoringMemory})
		ctx, cancel := context.WithTimeout(ctx, time.Duration(req.DeadlineMilli)*time.Millisecond)
		defer cancel()
		select {
		case <-hold:
		case <-ctx.Done():
			return in, errs.New(errs.Unavailable, "workspace web was not up in time (restoring_memory)")
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	in.Attachment = api.Attachment{Gateway: w.gateway, Ticket: w.sign(road.Ticket{Target: road.TargetAgent, Epoch: w.epoch}), Expires: time.Now().Add(time.Minute)}
	return in, fail
}

// Admit implements api.Entrance.
func (w *world) Admit(_ context.Context, req api.AdmitRequest) (api.Admitted, error) {
	if req.Workspace == "web" && (req.Proof == ann || req.Proof == "blk_good") {
		return api.Admitted{Pass: annsMy, Expires: time.Now().Add(time.Hour)}, nil
	}
	return api.Admitted{}, errs.New(errs.Unauthenticated, "this is private")
}

// host is the host form of the guest's port.
func (w *world) host() string { return w.port + "-web." + domain }

// ask makes a request; header are names and values.
func (w *world) ask(method, host, path string, header ...string) (*http.Response, string) {
	w.t.Helper()
	req, err := http.NewRequestWithContext(w.t.Context(), method, w.url+path, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	req.Host = host
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Add(header[i], header[i+1])
	}
	return w.do(req)
}

func (w *world) do(req *http.Request) (*http.Response, string) {
	w.t.Helper()
	res, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
	if err != nil {
		w.t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return res, string(body)
}

// last is the newest request that the guest got.
func (w *world) last() *http.Request {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.got) == 0 {
		w.t.Fatal("the guest got nothing")
	}
	return w.got[len(w.got)-1]
}

func hello(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") }
