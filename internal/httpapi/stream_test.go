package httpapi

import (
	"bufio"
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/api/apitest"
	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/model"
)

// errSeen ends a stream of a test.
var errSeen = errors.New("seen what the test wanted")

func TestFollowEvents_GoesOnWhereItBroke(t *testing.T) {
	s := newServer(t)
	s.fake.Emit(5)
	c := s.client(t, apitest.UserToken)
	var got []int64
	err := c.FollowEvents(t.Context(), "", 2, func(e api.Event) error {
		got = append(got, e.Seq)
		switch e.Seq {
		case 4, 7:
			s.CloseClientConnections() // the server restarts
			s.fake.Emit(2)
		case 8:
			return errSeen
		}
		return nil
	})
	if !errors.Is(err, errSeen) {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]int64{3, 4, 5, 6, 7, 8}, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestFollowEvents_OfOneWorkspaceSkipsOthers(t *testing.T) {
	s := newServer(t)
	c := s.client(t, apitest.UserToken)
	must[api.Workspace](t)(c.CreateWorkspace(t.Context(), "", api.CreateWorkspaceRequest{Name: "demo"}))
	var kinds []string
	err := c.FollowEvents(t.Context(), "demo", 0, func(e api.Event) error {
		if kinds = append(kinds, e.Kind); len(kinds) == 2 {
			return errSeen
		}
		s.fake.Emit(3)
		_, err := c.UpdateWorkspace(t.Context(), "demo", api.UpdateWorkspaceRequest{Name: "demo"})
		return err
	})
	if !errors.Is(err, errSeen) {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"workspace.created", "workspace.renamed"}, kinds); diff != "" {
		t.Error(diff)
	}
}

func TestProgress_SurvivesARestart(t *testing.T) {
	s := newServer(t)
	c := s.client(t, apitest.UserToken)
	must[api.Workspace](t)(c.CreateWorkspace(t.Context(), "", api.CreateWorkspaceRequest{Name: "demo"}))
	check(t, s.fake.Change("demo", func(ws *api.Workspace) { ws.Detail = "waits for a node" })) // and gets no further
	broke := false
	var last api.Progress
	check(t, c.Progress(t.Context(), "demo", api.UntilRunning, func(p api.Progress) error {
		last = p
		if !broke {
			broke = true
			s.CloseClientConnections()
			return s.fake.Change("demo", func(ws *api.Workspace) { ws.State = api.WorkspaceRunning })
		}
		return nil
	}))
	if !last.Done || last.Workspace.State != api.WorkspaceRunning {
		t.Errorf("the last message is %+v", last)
	}
}

func TestProgress_TellsWhyItWillNotBe(t *testing.T) {
	s := newServer(t)
	c := s.client(t, apitest.UserToken)
	must[api.Workspace](t)(c.CreateWorkspace(t.Context(), "", api.CreateWorkspaceRequest{Name: "demo"}))
	check(t, s.fake.Change("demo", func(ws *api.Workspace) {}))
	err := c.Progress(t.Context(), "demo", api.UntilRunning, func(p api.Progress) error {
		if p.Done {
			return nil
		}
		return s.fake.Change("demo", func(ws *api.Workspace) {
			ws.State, ws.Desired, ws.Failure, ws.Detail = api.WorkspaceFailed, model.DesiredStopped, model.CauseOutOfMemory, "oom_kill rose by 1"
		})
	})
	wantKind(t, err, errs.Conflict)
	if !strings.Contains(err.Error(), "out_of_memory: oom_kill rose by 1") {
		t.Errorf("got %v", err)
	}

	// It vanishes while somebody watches.
	must[api.Workspace](t)(c.CreateWorkspace(t.Context(), "", api.CreateWorkspaceRequest{Name: "gone"}))
	check(t, s.fake.Change("gone", func(ws *api.Workspace) {}))
	err = c.Progress(t.Context(), "gone", api.UntilRunning, func(p api.Progress) error {
		if p.Done {
			return nil
		}
		return c.DeleteWorkspace(t.Context(), "gone", true)
	})
	wantKind(t, err, errs.NotFound)
}

func TestStreams_AreBounded(t *testing.T) {
	s := newServer(t)
	s.handler.streams = make(chan struct{}, 1)
	s.handler.streams <- struct{}{}
	_, p := s.raw(t, "GET", "/v1/events", "", "Accept", api.EventStreamType)
	if p.Kind != string(errs.Exhausted) || p.Status != 429 {
		t.Errorf("got %+v", p)
	}
}

func TestStreams_AreKeptAlive(t *testing.T) {
	s := newServer(t)
	s.handler.keepalive = time.Millisecond
	req, err := http.NewRequestWithContext(t.Context(), "GET", s.URL+"/v1/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header = http.Header{"Accept": {api.EventStreamType}, "Authorization": {"Bearer " + apitest.UserToken}}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	lines, comments := bufio.NewScanner(res.Body), 0
	for comments < 3 && lines.Scan() {
		if lines.Text() == ":" {
			comments++
		}
	}
	if comments < 3 {
		t.Errorf("got %d comments: %v", comments, lines.Err())
	}
}

// TestServe_EndsWhatIsHeld starts the server on a Unix socket, holds a stream,
// a sync and nothing else, and ends it.
func TestServe_EndsWhatIsHeld(t *testing.T) {
	s := newServer(t, func(c *Config) { c.Local = local() })
	syncing := make(chan struct{})
	s.fake.SetHook(func(method string) error {
		if method == "Sync" {
			close(syncing)
		}
		return nil
	})
	path := filepath.Join(t.TempDir(), "billet.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.handler.Serve(ctx, l) }()

	c, err := api.NewClient(api.ClientConfig{Endpoint: api.Endpoint{Network: "unix", Address: path}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	node, err := api.NewClient(api.ClientConfig{Endpoint: api.Endpoint{Network: "unix", Address: path}, Token: apitest.NodeToken})
	if err != nil {
		t.Fatal(err)
	}
	defer node.Close()

	var held sync.WaitGroup
	streaming, following := make(chan struct{}), context.WithoutCancel(ctx)
	following, unfollow := context.WithCancel(following)
	held.Go(func() {
		once := sync.OnceFunc(func() { close(streaming) })
		_ = c.FollowEvents(following, "", 0, func(api.Event) error { once(); return nil })
	})
	s.fake.Emit(1)
	<-streaming
	synced := make(chan error, 1)
	held.Go(func() {
		_, err := node.Sync(context.WithoutCancel(ctx), api.SyncRequest{Node: model.NodeID(apitest.ID("nbox")), Have: 1, WaitMilli: 60000})
		synced <- err
	})
	<-syncing

	stop()
	if err := <-ended; err != nil {
		t.Errorf("serve: %v", err)
	}
	wantKind(t, <-synced, errs.Unavailable)
	unfollow()
	held.Wait()
	err = c.Health(t.Context())
	wantKind(t, err, errs.Unavailable)
	if errs.HintOf(err) != "start it with: billet up" {
		t.Errorf("hint is %q", errs.HintOf(err))
	}
}

func TestStream_ResumesByNumber(t *testing.T) {
	s := newServer(t)
	s.fake.Emit(250) // more than two pages
	last := int64(0)
	err := s.client(t, apitest.UserToken).FollowEvents(t.Context(), "", 0, func(e api.Event) error {
		if e.Seq != last+1 {
			t.Errorf("got %d after %d", e.Seq, last)
		}
		if last = e.Seq; last == 250 {
			return errSeen
		}
		return nil
	})
	if !errors.Is(err, errSeen) {
		t.Error(err)
	}
	list := must[[]api.Event](t)(s.client(t, apitest.UserToken).Events(t.Context(), "", 240, 5))
	if got := strconv.Itoa(len(list)) + " from " + strconv.FormatInt(list[0].Seq, 10); got != "5 from 241" {
		t.Errorf("got %s", got)
	}
}

// deadlineWriter is a connection that remembers its write deadline.
type deadlineWriter struct {
	*httptest.ResponseRecorder
	set  int
	last time.Time
}

func (w *deadlineWriter) SetWriteDeadline(t time.Time) error {
	w.set, w.last = w.set+1, t
	return nil
}

func TestStreams_LeaveTheConnectionUsable(t *testing.T) {
	s := newServer(t)
	must[api.Workspace](t)(s.client(t, apitest.UserToken).CreateWorkspace(t.Context(), "", api.CreateWorkspaceRequest{Name: "demo"}))
	w := &deadlineWriter{ResponseRecorder: httptest.NewRecorder()}
	r := httptest.NewRequestWithContext(t.Context(), "GET", "/v1/workspaces/demo/progress", nil)
	r.Header.Set("Authorization", "Bearer "+apitest.UserToken)
	s.handler.ServeHTTP(w, r)
	if w.Code != 200 || w.set < 2 || !w.last.IsZero() {
		t.Errorf("got %d; %d deadlines, the last %v", w.Code, w.set, w.last)
	}
}
