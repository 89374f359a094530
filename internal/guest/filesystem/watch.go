package filesystem

import (
	"context"
	"errors"
	"net/http"
	"os"
	"strconv"
	"time"

	"connectrpc.com/connect"

	"github.com/billethq/billet/internal/errs"
	pb "github.com/billethq/billet/internal/guest/filesystempb"
	"github.com/billethq/billet/internal/guest/userfs"
)

const (
	// headerKeepalive is the contract's: seconds between keepalive events.
	headerKeepalive  = "Keepalive-Ping-Interval"
	defaultKeepalive = 90 * time.Second
	maxKeepalive     = time.Hour
	// maxWatching bounds the watches of a guest: each holds a thread and an
	// inotify instance, of which the kernel gives a user 128.
	maxWatching = 64
)

// WatchDir streams what happens in a directory until the client leaves, or
// until more happened than it took, which ends the stream with data_loss.
func (s *Service) WatchDir(ctx context.Context, req *connect.Request[pb.WatchDirRequest], stream *connect.ServerStream[pb.WatchDirResponse]) error {
	if err := s.reserve(); err != nil {
		return wire(err)
	}
	// Not buffered: while the client does not read, the kernel's queue fills,
	// which is bounded and says when it has lost something.
	batches := make(chan []*pb.FilesystemEvent)
	w, err := s.watch(ctx, req.Header(), req.Msg, func(ctx context.Context, batch []*pb.FilesystemEvent) error {
		select {
		case batches <- batch:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	if err != nil {
		return wire(err)
	}
	defer w.end()
	if err := stream.Send(&pb.WatchDirResponse{Event: &pb.WatchDirResponse_Start{Start: &pb.WatchDirResponse_StartEvent{}}}); err != nil {
		return err
	}
	every := keepalive(req.Header())
	silence := time.NewTimer(every)
	defer silence.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-w.done:
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return wire(w.err)
		case <-silence.C:
			if err := stream.Send(&pb.WatchDirResponse{Event: &pb.WatchDirResponse_Keepalive{Keepalive: &pb.WatchDirResponse_KeepAlive{}}}); err != nil {
				return err
			}
		case batch := <-batches:
			for _, e := range batch {
				if err := stream.Send(&pb.WatchDirResponse{Event: &pb.WatchDirResponse_Filesystem{Filesystem: e}}); err != nil {
					return err
				}
			}
		}
		silence.Reset(every)
	}
}

// running is a watch that goes on.
type running struct {
	cancel context.CancelFunc
	done   chan struct{} // closed once it has ended
	err    error         // why; valid once done is closed
}

// end ends the watch and waits for that.
func (r *running) end() {
	r.cancel()
	<-r.done
}

// reserve takes a place for a watch; watch gives it back.
func (s *Service) reserve() error {
	s.dropForgotten()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.watching >= maxWatching {
		return errs.New(errs.Exhausted, "%d directories are watched already", maxWatching)
	}
	s.watching++
	return nil
}

// watch starts a watch with the rights of the user that a request names, in the
// place that was reserved. When it returns, nothing that happens is missed. Its
// events go to emit, from one goroutine, until ctx ends, emit fails or an event
// was lost.
func (s *Service) watch(ctx context.Context, h http.Header, req request, emit func(context.Context, []*pb.FilesystemEvent) error) (*running, error) {
	ctx, cancel := context.WithCancel(ctx)
	w := &running{cancel: cancel, done: make(chan struct{})}
	started := make(chan struct{})
	go func() {
		defer func() {
			cancel()
			s.mu.Lock()
			s.watching--
			s.mu.Unlock()
			close(w.done)
		}()
		w.err = s.run(ctx, h, req, started, emit)
	}()
	select {
	case <-started:
		return w, nil
	case <-w.done:
		return nil, w.err
	}
}

func (s *Service) run(ctx context.Context, h http.Header, req request, started chan<- struct{}, emit func(context.Context, []*pb.FilesystemEvent) error) error {
	u, err := userfs.Caller(s.etc, h)
	if err != nil {
		return err
	}
	path, err := userfs.Resolve(req.GetPath(), u)
	if err != nil {
		return err
	}
	return userfs.Do(s.etc, u, func(fs *userfs.FS) error {
		t, err := newTree(fs, path, req)
		if err != nil {
			return err
		}
		defer t.stop()
		defer context.AfterFunc(ctx, t.stop)()
		close(started)
		for {
			batch, err := t.next()
			if errors.Is(err, os.ErrClosed) {
				return ctx.Err()
			}
			if err != nil {
				return err
			}
			if err := emit(ctx, batch); err != nil {
				return err
			}
		}
	})
}

func keepalive(h http.Header) time.Duration {
	n, err := strconv.Atoi(h.Get(headerKeepalive))
	if err != nil || n <= 0 || n > int(maxKeepalive/time.Second) {
		return defaultKeepalive
	}
	return time.Duration(n) * time.Second
}
