package e2b

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/clock"
	"github.com/billethq/billet/internal/control"
	"github.com/billethq/billet/internal/ledger/sqlite"
	"github.com/billethq/billet/internal/model"
	"github.com/billethq/billet/internal/testenv"
)

// world is the handler on a real control plane and ledger. A goroutine plays
// the node: it does at once what it is told. The gateway of the attachments is
// a guest's agent that answers with what it was asked.
type world struct {
	t      *testing.T
	c      *control.Control
	h      *Handler
	url    string
	key    string
	node   model.NodeID
	vcpus  int
	broken bool // its guests do not start; guarded by mu
	mu     sync.Mutex
}

func root(c string) model.Root { return model.Root("b3:" + strings.Repeat(c, 64)) }

// newWorld has a node of so many vCPUs, 100 when none are said.
func newWorld(t *testing.T, vcpus ...int) *world {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	dir := t.TempDir()
	l, err := sqlite.Open(filepath.Join(dir, "ledger.db"), log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	secrets, err := control.OpenSecrets(filepath.Join(dir, "secrets"))
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, node: model.NodeID(model.NewID()), vcpus: 100}
	for _, n := range vcpus {
		w.vcpus = n
	}
	shape := model.Shape{VCPUs: 1, Memory: 1 << 30, Disk: 16 << 30, Processes: 100, OpenFiles: 100}
	w.c, err = control.New(t.Context(), control.Config{
		Ledger: l, Secrets: secrets, Clock: clock.Real{}, Log: log, Gateways: []api.Gateway{{Name: "g", URL: "http://" + w.gateway()}},
		Tiers: []model.Tier{
			{Name: "people", Shape: shape, Image: "base", Drivers: []model.DriverName{model.DriverGVisor}, Classes: []model.Class{model.ClassHuman}},
			{Name: "agents", Shape: shape, Image: "base", Drivers: []model.DriverName{model.DriverGVisor}, Max: 3},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.c.CommitGeneration(t.Context(), api.CommitGenerationRequest{Image: "base", Root: root("0"), DiskBytes: 8 << 30}); err != nil {
		t.Fatal(err)
	}
	admin, err := w.c.Local(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	k, err := w.c.CreateToken(t.Context(), admin, api.CreateTokenRequest{Name: "bot", E2B: true})
	if err != nil {
		t.Fatal(err)
	}
	w.key = k.Secret
	if w.h, err = New(Config{Service: w.c, Lending: w.c, Clock: clock.Real{}, Log: log}); err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(w.h)
	t.Cleanup(s.Close)
	w.url = s.URL
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	t.Cleanup(func() { cancel(); all.Wait() })
	all.Go(func() { w.c.Run(ctx) })
	all.Go(func() { w.playNode(ctx) })
	testenv.Await(t, time.Minute, func() error {
		if nodes, err := w.c.Nodes(ctx, admin); err != nil || len(nodes) == 0 {
			return fmt.Errorf("%d nodes, %v", len(nodes), err)
		}
		return nil
	})
	return w
}

// playNode brings every instance to what is desired.
func (w *world) playNode(ctx context.Context) {
	req := api.SyncRequest{
		Node: w.node, Name: "a", Driver: model.DriverGVisor, BootID: "b", Version: "v",
		Capacity: model.Capacity{VCPUs: w.vcpus, Memory: 100 << 30, Disk: 1000 << 30},
	}
	var last api.SyncResponse
	for ctx.Err() == nil {
		req.Observed, req.Have = nil, last.Generation
		req.WaitMilli = (10 * time.Second).Milliseconds()
		for _, d := range last.Instances {
			w.mu.Lock()
			broken := w.broken
			w.mu.Unlock()
			o := api.ObservedInstance{ID: d.ID, Epoch: d.Epoch, State: model.StateRunning}
			switch {
			case d.Desired != model.InstanceRun:
				o.State = model.StateEnded
			case broken:
				o.State, o.Cause, o.Detail = model.StateEnded, model.CauseStartFailed, "the guest cannot boot"
			}
			req.Observed = append(req.Observed, o)
		}
		next, err := w.c.Sync(ctx, req)
		if err != nil {
			return
		}
		last = next
	}
}

// gateway answers as the guest's agent would, over the road's protocol.
func (w *world) gateway() string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	agent := http.NewServeMux()
	agent.HandleFunc("GET /metrics", func(rw http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(rw, `{"ts":1700000000,"cpu_count":2,"mem_total":1024,"disk_total":4096}`)
	})
	agent.HandleFunc("GET /health", func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(http.StatusNoContent) })
	agent.HandleFunc("/", func(rw http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		answer(rw, http.StatusOK, seenRequest{r.Method, r.URL.RequestURI(), r.Header, string(body)})
	})
	conns := &handedOver{conns: make(chan net.Conn), closed: make(chan struct{}), addr: l.Addr()}
	inner := &http.Server{Handler: agent}
	outer := &http.Server{Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { conns.take(rw, r) })}
	var all sync.WaitGroup
	all.Go(func() { _ = inner.Serve(conns) })
	all.Go(func() { _ = outer.Serve(l) })
	w.t.Cleanup(func() { _ = outer.Close(); _ = inner.Close(); all.Wait() })
	return l.Addr().String()
}

// seenRequest is what reached the guest.
type seenRequest struct {
	Method, URI string
	Header      http.Header
	Body        string
}

// answered is an answer, read.
type answered struct {
	status int
	header http.Header
	body   string
}

func (a answered) into(t *testing.T, v any) {
	t.Helper()
	if err := json.Unmarshal([]byte(a.body), v); err != nil {
		t.Fatalf("%s: %v", a.body, err)
	}
}

// do sends a request with the key; headers are pairs.
func (w *world) do(method, path, body string, headers ...string) answered {
	w.t.Helper()
	r, err := http.NewRequestWithContext(w.t.Context(), method, w.url+path, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	r.Header.Set("X-API-Key", w.key)
	for i := 0; i < len(headers); i += 2 {
		if headers[i] == "Host" {
			r.Host = headers[i+1]
			continue
		}
		r.Header.Del(headers[i])
		if headers[i+1] != "" {
			r.Header.Set(headers[i], headers[i+1])
		}
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		w.t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return answered{res.StatusCode, res.Header, string(b)}
}

// create makes a sandbox.
func (w *world) create(body string) sandbox {
	w.t.Helper()
	a := w.do("POST", "/v2/sandboxes", body)
	if a.status != http.StatusCreated {
		w.t.Fatalf("create: %d %s", a.status, a.body)
	}
	var s sandbox
	a.into(w.t, &s)
	return s
}
