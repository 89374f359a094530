package gateway_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/clock"
	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/gateway"
	"github.com/billethq/billet/internal/model"
	"github.com/billethq/billet/internal/road"
)

// world is a gateway with one node whose targets echo what they read.
type world struct {
	t       *testing.T
	gw      *gateway.Gateway
	srv     *httptest.Server
	signer  ed25519.PrivateKey
	node    model.NodeID
	opened  chan road.Ticket
	refuse  func(road.Ticket) error
	up      chan struct{}
	stopped func()

	mu    sync.Mutex
	taken []net.Conn // connections that the gateway took over
}

// cut breaks every connection on the road.
func (w *world) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.taken {
		_ = c.Close()
	}
	w.taken = nil
}

func newWorld(t *testing.T) *world {
	t.Helper()
	pub, priv, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	gw, err := gateway.New(gateway.Config{Key: func() ed25519.PublicKey { return pub }, Clock: clock.Real{}, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, gw: gw, srv: httptest.NewUnstartedServer(gw), signer: priv, node: model.NodeID(model.NewID()), opened: make(chan road.Ticket, 64), up: make(chan struct{}, 8)}
	w.srv.Config.ConnState = func(c net.Conn, st http.ConnState) {
		if st == http.StateHijacked {
			w.mu.Lock()
			w.taken = append(w.taken, c)
			w.mu.Unlock()
		}
	}
	w.srv.Start()
	ctx, cancel := context.WithCancel(t.Context())
	end := &road.NodeEnd{
		Gateway: w.srv.URL, Ticket: func() string { return w.sign(road.Ticket{Target: road.TargetSession}) },
		Key: func() ed25519.PublicKey { return pub }, Clock: clock.Real{}, Log: log,
		Check: func(tk road.Ticket) error {
			if tk.Node != w.node {
				return errs.New(errs.Denied, "another node's ticket")
			}
			return nil
		},
		Open: w.open,
		State: func(up bool, _ error) {
			if up {
				w.up <- struct{}{}
			}
		},
	}
	var wg sync.WaitGroup
	wg.Go(func() { end.Run(ctx) })
	w.stopped = sync.OnceFunc(func() { cancel(); wg.Wait() })
	t.Cleanup(func() { w.stopped(); _ = gw.Close(context.Background()); w.srv.Close() })
	<-w.up
	for len(gw.Nodes()) == 0 { // the node knows of its session a moment before the gateway does
		runtime.Gosched()
	}
	return w
}

func (w *world) sign(tk road.Ticket) string {
	if tk.Node == "" {
		tk.Node = w.node
	}
	if tk.Expires.IsZero() {
		tk.Expires = time.Now().Add(time.Minute)
	}
	s, err := road.Sign(w.signer, tk)
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

func (w *world) open(_ context.Context, tk road.Ticket) (net.Conn, error) {
	if w.refuse != nil {
		if err := w.refuse(tk); err != nil {
			return nil, err
		}
	}
	w.opened <- tk
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	go func() {
		defer l.Close()
		c, err := l.Accept()
		if err != nil {
			return
		}
		_, _ = io.Copy(c, c)
		_ = c.Close()
	}()
	return net.Dial("tcp", l.Addr().String())
}

func (w *world) dial(tk road.Ticket) (net.Conn, error) {
	return road.Dial(w.t.Context(), api.Attachment{Gateway: w.srv.URL, Ticket: w.sign(tk)})
}

func TestRoad_CarriesBytesExactly(t *testing.T) {
	w := newWorld(t)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			c, err := w.dial(road.Ticket{Target: road.TargetAgent, Instance: "i", Epoch: model.Epoch(i)})
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			want := make([]byte, 3<<20)
			_, _ = rand.Read(want)
			go func() {
				_, _ = c.Write(want)
				_ = c.(interface{ CloseWrite() error }).CloseWrite()
			}()
			got, err := io.ReadAll(c)
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("stream %d: got %d bytes, %v, want the %d that were sent", i, len(got), err, len(want))
			}
		})
	}
	wg.Wait()
}

func TestRoad_Refusals(t *testing.T) {
	w := newWorld(t)
	w.refuse = func(tk road.Ticket) error {
		if tk.Epoch == 7 {
			return errs.New(errs.Stale, "epoch 7 is over").WithHint("ask again")
		}
		return nil
	}
	_, stranger, _ := ed25519.GenerateKey(rand.Reader)
	forged, err := road.Sign(stranger, road.Ticket{Node: w.node, Target: road.TargetAgent, Expires: time.Now().Add(time.Minute)})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		ticket string
		want   errs.Kind
	}{
		{"forged", forged, errs.Unauthenticated},
		{"garbage", "x.y", errs.Unauthenticated},
		{"expired", w.sign(road.Ticket{Target: road.TargetAgent, Expires: time.Now().Add(-time.Second)}), errs.Unauthenticated},
		{"session ticket on the stream door", w.sign(road.Ticket{Target: road.TargetSession}), errs.Denied},
		{"node without a session", w.sign(road.Ticket{Target: road.TargetAgent, Node: "elsewhere"}), errs.Unavailable},
		{"refused by the node", w.sign(road.Ticket{Target: road.TargetAgent, Epoch: 7}), errs.Stale},
	} {
		conn, err := road.Dial(t.Context(), api.Attachment{Gateway: w.srv.URL, Ticket: c.ticket})
		if conn != nil {
			_ = conn.Close()
		}
		if errs.KindOf(err) != c.want || errs.HintOf(err) == "" && c.want != errs.Denied {
			t.Errorf("%s: got %v (kind %q, hint %q), want kind %s", c.name, err, errs.KindOf(err), errs.HintOf(err), c.want)
		}
	}
	res, err := http.Get(w.srv.URL + road.StreamPath)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusBadRequest || res.Header.Get("Content-Type") != "application/problem+json" {
		t.Errorf("plain GET: got %s %s, want 400 with a problem", res.Status, res.Header.Get("Content-Type"))
	}
}

func TestRoad_NodeReconnectsAfterItsSessionIsCut(t *testing.T) {
	w := newWorld(t)
	c, err := w.dial(road.Ticket{Target: road.TargetAgent})
	if err != nil {
		t.Fatal(err)
	}
	w.cut()
	_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a stream of a cut session: got %v, want an end", err)
	}
	select {
	case <-w.up:
	case <-time.After(10 * time.Second):
		t.Fatal("the node has not come back")
	}
	// The node knows of its session a moment before the gateway does.
	for end := time.Now().Add(10 * time.Second); ; runtime.Gosched() {
		if c, err = w.dial(road.Ticket{Target: road.TargetAgent}); err == nil {
			break
		}
		if !errs.Is(err, errs.Unavailable) || time.Now().After(end) {
			t.Fatal(err)
		}
	}
	_ = c.Close()
}

func TestRoad_EndsWithTheNode(t *testing.T) {
	w := newWorld(t)
	c, err := w.dial(road.Ticket{Target: road.TargetAgent})
	if err != nil {
		t.Fatal(err)
	}
	go w.stopped()
	_ = c.SetReadDeadline(time.Now().Add(20 * time.Second))
	if _, err := c.Read(make([]byte, 1)); err == nil {
		t.Error("got a byte from a node that has stopped, want an end")
	}
	_ = c.Close()
}
