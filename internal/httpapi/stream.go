package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/clock"
	"github.com/billethq/billet/internal/errs"
)

const (
	// eventPage is how many events one list or one step of a stream has.
	eventPage = 100
	// maxEventPage bounds what a caller may ask for.
	maxEventPage = 1000
	// eventPause spaces wake-ups that brought nothing: a stream of one
	// workspace is woken by the events of all.
	eventPause = 200 * time.Millisecond
)

// errHungUp is a write to a client that is not there any more, or that does
// not read.
var errHungUp = errors.New("the client of the stream hung up")

// stream writes server-sent events. Its head is sent with the first message,
// so that an error before that is an ordinary problem.
type stream struct {
	x  *exchange
	rc *http.ResponseController

	mu      sync.Mutex
	started bool
	stop    chan struct{}
	done    sync.WaitGroup
}

// openStream begins a stream and its keepalive; the caller closes it.
func (h *Handler) openStream(x *exchange) (*stream, error) {
	select {
	case h.streams <- struct{}{}:
	default:
		return nil, errs.New(errs.Exhausted, "%d streams are open already", maxStreams).WithHint("close some, or ask without a stream")
	}
	s := &stream{x: x, rc: http.NewResponseController(x.w), stop: make(chan struct{})}
	s.done.Go(func() {
		tick := time.NewTicker(h.keepalive)
		defer tick.Stop()
		for {
			select {
			case <-s.stop:
				return
			case <-tick.C:
				s.keepalive()
			}
		}
	})
	return s, nil
}

func (h *Handler) closeStream(s *stream) {
	close(s.stop)
	s.done.Wait()
	// The connection may serve other requests later than the deadline of the
	// last message.
	_ = s.rc.SetWriteDeadline(time.Time{})
	<-h.streams
}

// send writes one message.
func (s *stream) send(name, id string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return errs.Wrap(errs.Internal, err, "encode a message")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.started {
		s.started = true
		s.x.w.Header().Set("Content-Type", api.EventStreamType)
		s.x.w.WriteHeader(http.StatusOK)
	}
	if id != "" {
		id = "id: " + id + "\n"
	}
	return s.write(fmt.Sprintf("%sevent: %s\ndata: %s\n\n", id, name, data))
}

// start sends the head although there is no message yet.
func (s *stream) start() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.started {
		return nil
	}
	s.started = true
	s.x.w.Header().Set("Content-Type", api.EventStreamType)
	s.x.w.WriteHeader(http.StatusOK)
	return s.write(":\n")
}

// keepalive writes a comment; one that fails is found by the next message or
// by the request's context.
func (s *stream) keepalive() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.started {
		_ = s.write(":\n")
	}
}

func (s *stream) write(text string) error {
	_ = s.rc.SetWriteDeadline(s.x.clock.Now().Add(writeTimeout))
	if _, err := s.x.w.Write([]byte(text)); err != nil {
		return errHungUp
	}
	if s.rc.Flush() != nil {
		return errHungUp
	}
	return nil
}

// begun reports whether anything has been sent.
func (s *stream) begun() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.started
}

// progress streams the states of a workspace until the wait is over.
func (h *Handler) progress(x *exchange) error {
	q, err := x.query("until")
	if err != nil {
		return err
	}
	until := api.Until(q["until"])
	switch until {
	case api.UntilSettled, api.UntilRunning, api.UntilStopped:
	default:
		return errs.New(errs.Invalid, "until is %q", until).WithHint("write until=running, until=stopped, or leave it away to wait for what the owner wants")
	}
	s, err := h.openStream(x)
	if err != nil {
		return err
	}
	defer h.closeStream(s)
	ctx, release := h.hold(x.r.Context())
	defer release()

	var last api.Workspace
	err = h.cfg.Service.Watch(ctx, x.who, x.ref(), func(ws api.Workspace) (bool, error) {
		last = ws
		p := verdict(until, ws)
		name := api.StreamProgress
		if p.Done {
			name = api.StreamDone
		}
		return !p.Done, s.send(name, "", p)
	})
	// A wait that the server or the client gave up is not over: the client
	// comes again. Before the first message the error is the answer.
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err == nil || !s.begun() || errors.Is(err, errHungUp) {
		return err
	}
	problem := api.ProblemOf(err)
	return s.send(api.StreamDone, "", api.Progress{Workspace: last, Done: true, Problem: &problem})
}

// connectWorkspace streams the phases of a connection and then its road.
func (h *Handler) connectWorkspace(x *exchange) error {
	req, err := optionalBody[api.ConnectRequest](x)
	if err != nil {
		return err
	}
	return h.phases(x, func(ctx context.Context, tell func(api.ConnectPhase) error) (api.Attachment, error) {
		return h.cfg.Service.Connect(ctx, x.who, x.ref(), req, tell)
	})
}

// phases streams how far connect is, and then what came of it.
func (h *Handler) phases(x *exchange, connect func(context.Context, func(api.ConnectPhase) error) (api.Attachment, error)) error {
	s, err := h.openStream(x)
	if err != nil {
		return err
	}
	defer h.closeStream(s)
	ctx, release := h.hold(x.r.Context())
	defer release()
	a, err := connect(ctx, func(p api.ConnectPhase) error {
		return s.send(api.StreamPhase, "", api.ConnectUpdate{Phase: &p})
	})
	switch {
	case err == nil:
		return s.send(api.StreamOver, "", api.ConnectUpdate{Attachment: &a})
	case ctx.Err() != nil: // given up by the server or the client, who comes again
		return context.Cause(ctx)
	case !s.begun() || errors.Is(err, errHungUp):
		return err
	}
	problem := api.ProblemOf(err)
	return s.send(api.StreamOver, "", api.ConnectUpdate{Problem: &problem})
}

// events lists, or streams to a client that accepts it.
func (h *Handler) events(x *exchange) error {
	q, err := x.query("after", "limit")
	if err != nil {
		return err
	}
	streams := strings.Contains(x.r.Header.Get("Accept"), api.EventStreamType)
	from := q["after"]
	if id := x.r.Header.Get("Last-Event-ID"); streams && id != "" {
		from = id
	}
	after, err := number("after", from, 0, math.MaxInt64)
	if err != nil {
		return err
	}
	limit, err := number("limit", q["limit"], eventPage, maxEventPage)
	if err != nil {
		return err
	}
	if streams {
		return h.streamEvents(x, after)
	}
	list, err := h.cfg.Service.Events(x.r.Context(), x.who, x.ref(), after, int(limit))
	return answerList(x, list, err)
}

func (h *Handler) streamEvents(x *exchange, after int64) error {
	s, err := h.openStream(x)
	if err != nil {
		return err
	}
	defer h.closeStream(s)
	ctx, release := h.hold(x.r.Context())
	defer release()
	for {
		// The waits below may end with ctx and without an error.
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		list, err := h.cfg.Service.Events(ctx, x.who, x.ref(), after, eventPage)
		if err != nil {
			return err
		}
		if err := s.start(); err != nil {
			return err
		}
		for _, e := range list {
			if err := s.send(api.StreamEvent, strconv.FormatInt(e.Seq, 10), e); err != nil {
				return err
			}
			after = e.Seq
		}
		if len(list) == 0 {
			if err := clock.Sleep(ctx, clock.Jitter(eventPause)); err != nil {
				return err
			}
		}
		if len(list) < eventPage {
			if err := h.cfg.Service.WaitEvents(ctx, x.who, after); err != nil {
				return err
			}
		}
	}
}

// number reads a parameter that is not negative.
func number(name, text string, absent, high int64) (int64, error) {
	if text == "" {
		return absent, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 || n > high {
		return 0, errs.New(errs.Invalid, "%s is %q", name, text).WithHint("write a number from 0 to %d", high)
	}
	return n, nil
}
