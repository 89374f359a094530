//go:build failpoint

package faults

import (
	"bytes"
	"context"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"strconv"
	"sync"
	"testing"
	"time"
)

// relay stands between a node and its server. While it is stuck the node goes on
// being told what it was told before, and everything else passes.
type relay struct {
	*httptest.Server

	mu     sync.Mutex
	socket string // of the server
	stuck  bool
	last   []byte // the newest answer that came through
	old    int    // answers that were given again
}

func newRelay(t *testing.T) *relay {
	t.Helper()
	r := &relay{}
	r.Server = httptest.NewServer(&httputil.ReverseProxy{
		Rewrite:        func(p *httputil.ProxyRequest) { p.Out.URL.Scheme, p.Out.URL.Host = "http", "server" },
		Transport:      &http.Transport{DialContext: r.dial},
		ModifyResponse: r.answer,
		ErrorLog:       log.New(io.Discard, "", 0), // a node gives up a held sync for news
	})
	t.Cleanup(r.Close)
	return r
}

func (r *relay) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return (&net.Dialer{}).DialContext(ctx, "unix", r.socket)
}

// answer keeps the answer to a sync, or puts the kept one in its place.
func (r *relay) answer(res *http.Response) error {
	if res.Request.URL.Path != "/v1/plane/sync" || res.StatusCode != http.StatusOK {
		return nil
	}
	body, err := io.ReadAll(res.Body)
	_ = res.Body.Close()
	if err != nil {
		return err
	}
	r.mu.Lock()
	stuck := r.stuck
	if stuck {
		body = r.last
		r.old++
	} else {
		r.last = body
	}
	r.mu.Unlock()
	if stuck { // the server answers at once what is news to it
		select {
		case <-time.After(10 * pollEvery):
		case <-res.Request.Context().Done():
		}
	}
	res.Body, res.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	res.Header.Set("Content-Length", strconv.Itoa(len(body)))
	return nil
}

func (r *relay) stick(stuck bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stuck = stuck
}

// given is how often an old answer was given again.
func (r *relay) given() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.old
}
