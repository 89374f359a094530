package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/gorillamux"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/api/apitest"
	"github.com/billethq/billet/internal/clock"
	"github.com/billethq/billet/internal/model"
)

// server is the API on a loopback listener in front of a fake control plane.
// Each exchange is held against openapi.yaml.
type server struct {
	*httptest.Server
	fake    *apitest.Fake
	handler *Handler
	log     *logBuffer
	doc     *openapi3.T
	router  routers.Router

	mu   sync.Mutex
	seen map[string]map[int]bool // statuses by operationId
}

func newServer(t *testing.T, edit ...func(*Config)) *server {
	t.Helper()
	s := &server{fake: apitest.New(), log: &logBuffer{}, doc: document(t), seen: map[string]map[int]bool{}}
	s.doc.Servers = nil // the test's port is another one
	var err error
	if s.router, err = gorillamux.NewRouter(s.doc); err != nil {
		t.Fatal(err)
	}
	cfg := Config{
		Service: s.fake, Plane: s.fake, SSH: s.fake, Entrance: s.fake, Clock: clock.Real{},
		Log: slog.New(slog.NewJSONHandler(s.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	for _, e := range edit {
		e(&cfg)
	}
	if s.handler, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	s.Server = httptest.NewServer(s.checked(t))
	t.Cleanup(func() { s.handler.Drain(); s.Close() })
	return s
}

func document(t *testing.T) *openapi3.T {
	t.Helper()
	doc, err := openapi3.NewLoader().LoadFromData(Document)
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

// client speaks as the holder of a token.
func (s *server) client(t *testing.T, token string) *api.Client {
	t.Helper()
	e, err := api.ParseEndpoint(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	c, err := api.NewClient(api.ClientConfig{Endpoint: e, Token: api.Secret(token)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// checked fails the test when the document and an exchange disagree. What the
// document refuses, the handler has to refuse too.
func (s *server) checked(t *testing.T) http.Handler {
	noAuth := &openapi3filter.Options{AuthenticationFunc: openapi3filter.NoopAuthenticationFunc, IncludeResponseStatus: true}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Errorf("%s %s: read: %v", r.Method, r.URL, err)
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		route, params, err := s.router.FindRoute(r)
		tee := &teeWriter{ResponseWriter: w, status: http.StatusOK}
		if err != nil { // 404 and 405 are no operation's
			s.handler.ServeHTTP(tee, r)
			s.checkProblem(t, r, tee)
			return
		}
		in := &openapi3filter.RequestValidationInput{Request: r, PathParams: params, Route: route, Options: noAuth}
		refused := openapi3filter.ValidateRequest(r.Context(), in)
		r.Body = io.NopCloser(bytes.NewReader(body))
		s.handler.ServeHTTP(tee, r)

		s.note(route.Operation.OperationID, tee.status)
		if refused != nil && tee.status < 400 {
			t.Errorf("%s %s: the document refuses what the handler accepted: %v", r.Method, r.URL, refused)
		}
		out := &openapi3filter.ResponseValidationInput{RequestValidationInput: in, Status: tee.status, Header: w.Header(), Options: noAuth}
		out.SetBodyBytes(tee.body.Bytes())
		if err := openapi3filter.ValidateResponse(context.WithoutCancel(r.Context()), out); err != nil {
			t.Errorf("%s %s: answer does not fit the document: %v", r.Method, r.URL, err)
		}
		if strings.HasPrefix(w.Header().Get("Content-Type"), api.EventStreamType) {
			s.checkStream(t, tee.body.String())
		}
	})
}

func (s *server) note(operation string, status int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.seen[operation] == nil {
		s.seen[operation] = map[int]bool{}
	}
	s.seen[operation][status] = true
}

func (s *server) checkProblem(t *testing.T, r *http.Request, tee *teeWriter) {
	s.fits(t, "Problem", tee.body.Bytes())
	if tee.status < 400 || tee.Header().Get("Content-Type") != api.ProblemType {
		t.Errorf("%s %s: got %d %s, want a problem", r.Method, r.URL, tee.status, tee.Header().Get("Content-Type"))
	}
}

func (s *server) checkStream(t *testing.T, text string) {
	schemas := map[string]string{api.StreamProgress: "Progress", api.StreamDone: "Progress", api.StreamEvent: "Event", api.StreamEntry: "VisitUpdate", api.StreamPhase: "ConnectUpdate", api.StreamOver: "ConnectUpdate"}
	for block := range strings.SplitSeq(text, "\n\n") {
		var name, data string
		for line := range strings.SplitSeq(block, "\n") {
			if v, ok := strings.CutPrefix(line, "event: "); ok {
				name = v
			}
			if v, ok := strings.CutPrefix(line, "data: "); ok {
				data = v
			}
		}
		if data == "" {
			continue
		}
		if schemas[name] == "" {
			t.Errorf("stream has an event %q", name)
			continue
		}
		s.fits(t, schemas[name], []byte(data))
	}
}

// fits holds JSON against a schema of the document.
func (s *server) fits(t *testing.T, schema string, data []byte) {
	t.Helper()
	var v any
	if err := json.Unmarshal(data, &v); err != nil {
		t.Errorf("%s: %v: %s", schema, err, data)
		return
	}
	if err := s.doc.Components.Schemas[schema].Value.VisitJSON(v); err != nil {
		t.Errorf("%s: %v: %s", schema, err, data)
	}
}

// raw sends a request that no client would.
func (s *server) raw(t *testing.T, method, path, body string, header ...string) (*http.Response, api.Problem) {
	t.Helper()
	req, err := http.NewRequest(method, s.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+apitest.AdminToken)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(header); i += 2 {
		if req.Header.Del(header[i]); header[i+1] != "" {
			req.Header.Set(header[i], header[i+1])
		}
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	var p api.Problem
	if res.Header.Get("Content-Type") == api.ProblemType {
		if err := json.Unmarshal(text, &p); err != nil {
			t.Fatalf("%s %s: %v: %s", method, path, err, text)
		}
	}
	return res, p
}

// teeWriter keeps what is written.
type teeWriter struct {
	http.ResponseWriter
	status int
	body   bytes.Buffer
}

func (w *teeWriter) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

func (w *teeWriter) Write(p []byte) (int, error) {
	w.body.Write(p)
	return w.ResponseWriter.Write(p)
}

func (w *teeWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// logBuffer is a log that many goroutines write.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

func local() *model.Principal {
	p := apitest.Admin()
	return &p
}
