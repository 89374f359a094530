package filesystem

import (
	"context"
	"crypto/rand"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/billethq/billet/internal/errs"
	pb "github.com/billethq/billet/internal/guest/filesystempb"
)

const (
	// maxGathered bounds the events that a watcher keeps for its client, at the
	// kernel's own limit for a queue.
	maxGathered = 16384
	// forgotten is how long a watcher stays without being asked once its place
	// is wanted: a client that is gone cannot remove it.
	forgotten = time.Hour
)

// watcher gathers events for a client that asks.
type watcher struct {
	*running

	asked time.Time // guarded by the Service

	mu     sync.Mutex
	events []*pb.FilesystemEvent
}

// CreateWatcher starts to gather events. Its id is what gives access to them.
func (s *Service) CreateWatcher(_ context.Context, req *connect.Request[pb.CreateWatcherRequest]) (*connect.Response[pb.CreateWatcherResponse], error) {
	if err := s.reserve(); err != nil {
		return nil, wire(err)
	}
	w := &watcher{}
	// It outlives the request.
	running, err := s.watch(context.Background(), req.Header(), req.Msg, w.gather)
	if err != nil {
		return nil, wire(err)
	}
	w.running = running
	id := "w" + rand.Text()
	s.mu.Lock()
	defer s.mu.Unlock()
	w.asked = s.now()
	s.watchers[id] = w
	return connect.NewResponse(&pb.CreateWatcherResponse{WatcherId: id}), nil
}

// gather keeps events. One too many ends the watcher: with a gap that nobody
// notices its client would be wrong about the directory for ever.
func (w *watcher) gather(_ context.Context, batch []*pb.FilesystemEvent) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.events)+len(batch) > maxGathered {
		w.events = nil
		return errs.Wrap(errs.Stale, errOverflow, "watcher: %d events were not asked for", maxGathered)
	}
	w.events = append(w.events, batch...)
	return nil
}

// GetWatcherEvents takes what a watcher has gathered. Of one that has ended
// because events were lost it is data_loss, until it is removed.
func (s *Service) GetWatcherEvents(_ context.Context, req *connect.Request[pb.GetWatcherEventsRequest]) (*connect.Response[pb.GetWatcherEventsResponse], error) {
	s.mu.Lock()
	w, ok := s.watchers[req.Msg.GetWatcherId()]
	if ok {
		w.asked = s.now()
	}
	s.mu.Unlock()
	if !ok {
		return nil, wire(unknownWatcher())
	}
	select {
	case <-w.done:
		return nil, wire(w.err)
	default:
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	res := &pb.GetWatcherEventsResponse{Events: w.events}
	w.events = nil
	return connect.NewResponse(res), nil
}

// RemoveWatcher ends a watcher.
func (s *Service) RemoveWatcher(_ context.Context, req *connect.Request[pb.RemoveWatcherRequest]) (*connect.Response[pb.RemoveWatcherResponse], error) {
	s.mu.Lock()
	w, ok := s.watchers[req.Msg.GetWatcherId()]
	delete(s.watchers, req.Msg.GetWatcherId())
	s.mu.Unlock()
	if !ok {
		return nil, wire(unknownWatcher())
	}
	w.end()
	return connect.NewResponse(&pb.RemoveWatcherResponse{}), nil
}

func unknownWatcher() error { return errs.New(errs.NotFound, "no such watcher") }

// dropForgotten ends watchers that nobody asks, once their places are wanted.
func (s *Service) dropForgotten() {
	var old []*watcher
	s.mu.Lock()
	if s.watching >= maxWatching {
		for id, w := range s.watchers {
			if s.now().Sub(w.asked) > forgotten {
				delete(s.watchers, id)
				old = append(old, w)
			}
		}
	}
	s.mu.Unlock()
	for _, w := range old {
		w.end()
	}
}

// Close ends every watcher that gathers.
func (s *Service) Close() {
	s.mu.Lock()
	all := s.watchers
	s.watchers = make(map[string]*watcher)
	s.mu.Unlock()
	for _, w := range all {
		w.end()
	}
}
