package filesystem_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"

	pb "github.com/billethq/billet/internal/guest/filesystempb"
	"github.com/billethq/billet/internal/testenv"
)

// patience bounds every wait of these tests; none takes it when all is well.
const patience = time.Minute

// stream is a watch that has started.
type stream struct {
	t      *testing.T
	events *connect.ServerStreamForClient[pb.WatchDirResponse]
}

func (w *world) watch(req *pb.WatchDirRequest, headers ...string) *stream {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	w.t.Cleanup(cancel)
	r := request(w, req)
	for i := 0; i < len(headers); i += 2 {
		r.Header().Set(headers[i], headers[i+1])
	}
	events, err := w.client.WatchDir(ctx, r)
	w.must(err)
	s := &stream{w.t, events}
	w.t.Cleanup(s.close)
	if !events.Receive() || events.Msg().GetStart() == nil {
		w.t.Fatalf("the first event is %v, %v; want start", events.Msg(), events.Err())
	}
	return s
}

func (s *stream) close() { _ = s.events.Close() }

func (s *stream) next() *pb.FilesystemEvent {
	s.t.Helper()
	if !s.events.Receive() || s.events.Msg().GetFilesystem() == nil {
		s.t.Fatalf("got %v, %v; want an event", s.events.Msg(), s.events.Err())
	}
	return s.events.Msg().GetFilesystem()
}

// until reads events up to one, and returns them as "TYPE name", without
// repetitions.
func (s *stream) until(last string) (all []string) {
	s.t.Helper()
	for {
		e := text(s.next())
		if len(all) == 0 || all[len(all)-1] != e {
			all = append(all, e)
		}
		if e == last {
			return all
		}
	}
}

func text(e *pb.FilesystemEvent) string {
	return strings.TrimPrefix(e.GetType().String(), "EVENT_TYPE_") + " " + e.GetName()
}

func TestWatchDir_TellsEachKindOfEvent(t *testing.T) {
	w := newWorld(t)
	w.make("d/", "d/old", "d/sub/", "d/sub/f")
	s := w.watch(&pb.WatchDirRequest{Path: "d"})
	w.make("d/new")
	w.must(os.Chmod(w.path("d/old"), 0o600))
	w.must(os.Rename(w.path("d/old"), w.path("d/renamed")))
	w.must(os.WriteFile(w.path("d/sub/f"), []byte("unseen"), 0o644))
	w.must(os.Remove(w.path("d/renamed")))
	got := s.until("REMOVE renamed")
	want := []string{"CREATE new", "WRITE new", "CHMOD new", "CHMOD old", "RENAME old", "CREATE renamed", "REMOVE renamed"}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("events (-want +got):\n%s", d)
	}
	// The directory itself.
	w.must(os.Rename(w.path("d"), w.path("e")))
	w.must(os.RemoveAll(w.path("e")))
	if got := s.until("REMOVE ."); got[0] != "RENAME ." {
		t.Errorf("of the directory: %v", got)
	}
}

func TestWatchDir_Recursive(t *testing.T) {
	w := newWorld(t)
	w.make("d/", "d/a/", "d/a/b/", "outside/", "outside/in/")
	s := w.watch(&pb.WatchDirRequest{Path: "~/d", Recursive: true})
	step := func(last string, do func()) {
		t.Helper()
		do()
		s.until(last)
	}
	step("WRITE a/b/f", func() { w.make("d/a/b/f") })
	// A tree that is made at once, before it can be watched.
	step("CREATE x/y/z", func() { w.must(os.MkdirAll(w.path("d/x/y/z"), 0o755)) })
	step("WRITE x/y/z/f", func() { w.make("d/x/y/z/f") })
	// Moved in, within and out.
	step("CREATE in", func() { w.must(os.Rename(w.path("outside/in"), w.path("d/in"))) })
	step("CREATE in/f", func() { w.make("d/in/f") })
	step("CREATE a/within", func() { w.must(os.Rename(w.path("d/in"), w.path("d/a/within"))) })
	step("WRITE a/within/g", func() { w.make("d/a/within/g") })
	step("RENAME a", func() { w.must(os.Rename(w.path("d/a"), w.path("outside/a"))) })
	w.make("outside/a/b/unseen")
	w.must(os.RemoveAll(w.path("d/x")))
	for _, e := range s.until("REMOVE x") {
		if strings.Contains(e, "unseen") {
			t.Errorf("told %q of a directory that has left", e)
		}
	}
}

func TestWatchDir_Entries(t *testing.T) {
	w := newWorld(t)
	w.make("d/")
	s := w.watch(&pb.WatchDirRequest{Path: "d", IncludeEntry: true})
	w.make("d/f")
	if e := s.next(); e.GetEntry().GetPath() != w.path("d/f") || e.GetEntry().GetType() != pb.FileType_FILE_TYPE_FILE {
		t.Errorf("%v", e)
	}
	w.must(os.Remove(w.path("d/f")))
	for {
		if e := s.next(); e.GetType() == pb.EventType_EVENT_TYPE_REMOVE {
			if e.GetEntry() != nil {
				t.Errorf("an entry of what is gone: %v", e)
			}
			return
		}
	}
}

func TestWatchDir_KeepaliveAndTimeLimit(t *testing.T) {
	w := newWorld(t)
	s := w.watch(&pb.WatchDirRequest{}, "Keepalive-Ping-Interval", "1")
	if !s.events.Receive() || s.events.Msg().GetKeepalive() == nil {
		t.Errorf("on a silent stream: %v, %v", s.events.Msg(), s.events.Err())
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	limited, err := w.client.WatchDir(ctx, request(w, &pb.WatchDirRequest{}))
	w.must(err)
	for limited.Receive() {
	}
	if connect.CodeOf(limited.Err()) != connect.CodeDeadlineExceeded {
		t.Errorf("at the time limit: %v", limited.Err())
	}
}

// What a user may not read is not watched for it.
func TestWatchDir_HasTheUsersRights(t *testing.T) {
	w := newWorld(t)
	w.make("d/", "d/closed/")
	w.must(os.Chown(w.path("d/closed"), 0, 0))
	w.must(os.Chmod(w.path("d/closed"), 0o711))
	s := w.watch(&pb.WatchDirRequest{Path: "d", Recursive: true})
	w.must(os.WriteFile(w.path("d/closed/hidden"), nil, 0o644))
	w.make("d/seen")
	for _, e := range s.until("CREATE seen") {
		if strings.Contains(e, "hidden") {
			t.Errorf("told %q", e)
		}
	}
}

func (w *world) watcher(req *pb.CreateWatcherRequest) string {
	w.t.Helper()
	res, err := w.client.CreateWatcher(w.t.Context(), request(w, req))
	w.must(err)
	return res.Msg.GetWatcherId()
}

func (w *world) take(id string) (all []string, err error) {
	res, err := w.client.GetWatcherEvents(w.t.Context(), request(w, &pb.GetWatcherEventsRequest{WatcherId: id}))
	if err != nil {
		return nil, err
	}
	for _, e := range res.Msg.GetEvents() {
		all = append(all, text(e))
	}
	return all, nil
}

func (w *world) drop(id string) error {
	_, err := w.client.RemoveWatcher(w.t.Context(), request(w, &pb.RemoveWatcherRequest{WatcherId: id}))
	return err
}

// await gathers a watcher's events until one of them is last.
func (w *world) await(id, last string) (all []string) {
	w.t.Helper()
	testenv.Await(w.t, patience, func() error {
		got, err := w.take(id)
		all = append(all, got...)
		if err != nil || len(all) == 0 || all[len(all)-1] != last {
			return fmt.Errorf("%v, %w", all, errors.Join(err, errors.New("not yet")))
		}
		return nil
	})
	return all
}

func TestWatcher(t *testing.T) {
	w := newWorld(t)
	w.make("d/", "d/sub/")
	plain, deep := w.watcher(&pb.CreateWatcherRequest{Path: "d"}), w.watcher(&pb.CreateWatcherRequest{Path: "d", Recursive: true})
	if got, err := w.take(plain); err != nil || got != nil {
		t.Errorf("before anything: %v, %v", got, err)
	}
	w.must(os.Mkdir(w.path("d/sub/below"), 0o755))
	w.must(os.Mkdir(w.path("d/x"), 0o755))
	if d := cmp.Diff([]string{"CREATE x"}, w.await(plain, "CREATE x")); d != "" {
		t.Errorf("plain (-want +got):\n%s", d)
	}
	if d := cmp.Diff([]string{"CREATE sub/below", "CREATE x"}, w.await(deep, "CREATE x")); d != "" {
		t.Errorf("recursive (-want +got):\n%s", d)
	}
	if got, err := w.take(plain); err != nil || got != nil {
		t.Errorf("events twice: %v, %v", got, err)
	}
	w.must(w.drop(plain))
	for _, id := range []string{plain, "", "wunknown"} {
		if _, err := w.take(id); connect.CodeOf(err) != connect.CodeNotFound {
			t.Errorf("events of %q: %v, want not_found", id, err)
		}
		if err := w.drop(id); connect.CodeOf(err) != connect.CodeNotFound {
			t.Errorf("remove %q: %v, want not_found", id, err)
		}
	}
}

// A client that does not ask for its events learns that some are lost.
func TestWatcher_Overflow(t *testing.T) {
	w := newWorld(t)
	w.make("d/")
	id := w.watcher(&pb.CreateWatcherRequest{Path: "d"})
	for i := range 9000 {
		path := w.path(filepath.Join("d", fmt.Sprint(i)))
		w.must(os.Mkdir(path, 0o755))
		w.must(os.Remove(path))
	}
	testenv.Await(t, patience, func() error {
		// Asking takes what is gathered: the rest must not fit either.
		got, err := w.take(id)
		if connect.CodeOf(err) == connect.CodeDataLoss {
			return nil
		}
		if err == nil && len(got) > 0 {
			t.Fatalf("%d events were taken, which is all", len(got))
		}
		return fmt.Errorf("%v", err)
	})
	w.must(w.drop(id))
}

func TestWatches_AreBounded(t *testing.T) {
	testenv.LeakCheck(t)
	w := newWorld(t)
	var ids []string
	for range 63 {
		ids = append(ids, w.watcher(&pb.CreateWatcherRequest{}))
	}
	s := w.watch(&pb.WatchDirRequest{})
	one := func() error {
		_, err := w.client.CreateWatcher(t.Context(), request(w, &pb.CreateWatcherRequest{}))
		return err
	}
	if err := one(); connect.CodeOf(err) != connect.CodeResourceExhausted {
		t.Errorf("one too many: %v, want resource_exhausted", err)
	}
	if err := w.drop(ids[0]); err != nil {
		t.Fatal(err)
	}
	if err := one(); err != nil {
		t.Errorf("in the place of one that is removed: %v", err)
	}
	// Those that nobody asks go once their places are wanted; the others stay.
	w.now = w.now.Add(59 * time.Minute)
	if _, err := w.take(ids[1]); err != nil {
		t.Fatal(err)
	}
	w.now = w.now.Add(2 * time.Minute)
	if err := one(); err != nil {
		t.Errorf("in the place of one that is forgotten: %v", err)
	}
	if _, err := w.take(ids[1]); err != nil {
		t.Errorf("one that is asked: %v", err)
	}
	if _, err := w.take(ids[2]); connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("one that is forgotten: %v, want not_found", err)
	}
	w.make("seen")
	s.until("CREATE seen")
}

func TestWatchDir_BoundsDirectories(t *testing.T) {
	w := newWorld(t)
	w.make("d/")
	for i := range 8192 {
		w.must(os.Mkdir(w.path(fmt.Sprintf("d/%d", i)), 0o755))
	}
	_, err := w.client.CreateWatcher(t.Context(), request(w, &pb.CreateWatcherRequest{Path: "d", Recursive: true}))
	if connect.CodeOf(err) != connect.CodeResourceExhausted {
		t.Errorf("%v, want resource_exhausted", err)
	}
}
