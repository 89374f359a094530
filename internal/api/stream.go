package api

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/billethq/billet/internal/clock"
	"github.com/billethq/billet/internal/errs"
)

// EventStreamType is the media type of server-sent events.
const EventStreamType = "text/event-stream"

// The event names of the streams.
const (
	StreamProgress = "progress" // data: Progress
	StreamDone     = "done"     // data: Progress, the last one
	StreamPhase    = "phase"    // data: ConnectUpdate
	StreamOver     = "over"     // data: ConnectUpdate, the last one
	StreamEntry    = "entry"    // data: VisitUpdate
	StreamEvent    = "event"    // data: Event, id: its seq
)

// StreamKeepalive is how often a server sends a comment on a silent stream; a
// client takes a stream that is silent for three times as long for dead.
const StreamKeepalive = 15 * time.Second

const (
	// streamRetry is the pause before a broken stream is opened again.
	streamRetry = 500 * time.Millisecond
	// streamPatience is how long a stream may stay broken: a server restarts
	// within it, and a person does not wait for one that is gone.
	streamPatience = time.Minute
	// maxStreamLine bounds one line of a stream.
	maxStreamLine = 1 << 20
)

// Until says what ends a wait.
type Until string

// What a wait can be for. UntilSettled: what the owner wants, whichever it is.
const (
	UntilSettled Until = ""
	UntilRunning Until = "running"
	UntilStopped Until = "stopped"
)

// Progress calls fn with the state of a workspace and each change of it, in
// order, until the wait is over; it survives a restart of the server. It
// returns nil when what was waited for came to be, else why it will not. The
// last call of fn has Done set.
func (c *Client) Progress(ctx context.Context, ref string, until Until, fn func(Progress) error) error {
	path := "/v1/workspaces/" + url.PathEscape(ref) + "/progress"
	if until != UntilSettled {
		path += "?until=" + string(until)
	}
	done := false
	var problem *Problem
	err := c.stream(ctx, http.MethodGet, path, "", nil, func(m message) (bool, error) {
		var p Progress
		if err := json.Unmarshal(m.data, &p); err != nil {
			return false, errs.Wrap(errs.Internal, err, "decode progress")
		}
		done, problem = p.Done, p.Problem
		return !p.Done, fn(p)
	})
	if err != nil || !done || problem == nil {
		return err
	}
	return problem.Err()
}

// Connect resumes a workspace that sleeps and returns the road into it; tell is
// called with each phase, some again after a restart of the server, which the
// wait survives.
func (c *Client) Connect(ctx context.Context, ref string, req ConnectRequest, tell func(ConnectPhase)) (Attachment, error) {
	var out Attachment
	var problem *Problem
	path := "/v1/workspaces/" + url.PathEscape(ref) + "/connect"
	err := c.stream(ctx, http.MethodPost, path, "", req, func(m message) (bool, error) {
		var u ConnectUpdate
		if err := json.Unmarshal(m.data, &u); err != nil {
			return false, errs.Wrap(errs.Internal, err, "decode the phase of a connection")
		}
		switch {
		case u.Phase != nil:
			tell(*u.Phase)
			return true, nil
		case u.Attachment != nil:
			out = *u.Attachment
		case u.Problem != nil:
			problem = u.Problem
		}
		return false, nil
	})
	if err != nil || problem == nil {
		return out, err
	}
	return out, problem.Err()
}

// FollowEvents calls fn with every event after seq, in order and each once, of
// one workspace when ref is not empty, until fn fails or ctx ends; it survives
// a restart of the server.
func (c *Client) FollowEvents(ctx context.Context, ref string, after int64, fn func(Event) error) error {
	return c.stream(ctx, http.MethodGet, eventsPath(ref), strconv.FormatInt(after, 10), nil, func(m message) (bool, error) {
		if m.name != StreamEvent {
			return true, nil
		}
		var e Event
		if err := json.Unmarshal(m.data, &e); err != nil {
			return false, errs.Wrap(errs.Internal, err, "decode event")
		}
		return true, fn(e)
	})
}

// message is one server-sent event.
type message struct {
	name string
	id   string
	data []byte
}

// errStreamEnded is a stream that the server closed, or that broke, before the
// last message: it is opened again.
var errStreamEnded = errs.New(errs.Unavailable, "the stream ended early")

// enough carries out of a stream that its reader wants no more of it, so that
// an error of the reader is never taken for a broken connection.
type enough struct{ err error }

func (enough) Error() string { return "the reader of the stream ended it" }

// stream asks for path and reads until fn wants no more. The request may be
// made again. A stream that worked and broke is
// opened again after the last id that was read; a refusal ends it.
func (c *Client) stream(ctx context.Context, method, path, lastID string, body any, fn func(message) (more bool, err error)) error {
	var worked time.Time // the last time that a connection was good; zero: never
	for {
		opened, err := c.streamOnce(ctx, method, path, &lastID, body, fn)
		var end enough
		if errors.As(err, &end) {
			return end.err
		}
		now := clock.Real{}.Now()
		if opened {
			worked = now
		}
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case !errs.Is(err, errs.Unavailable), worked.IsZero(), now.Sub(worked) > streamPatience:
			return err
		}
		if err := clock.Sleep(ctx, clock.Jitter(streamRetry)); err != nil {
			return err
		}
	}
}

// streamOnce reads one connection's worth and keeps *lastID current. opened
// says that the server accepted the request.
func (c *Client) streamOnce(ctx context.Context, method, path string, lastID *string, body any, fn func(message) (bool, error)) (opened bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	h := http.Header{"Accept": {EventStreamType}}
	if *lastID != "" {
		h.Set("Last-Event-ID", *lastID)
	}
	res, err := c.open(ctx, method, path, h, body)
	if err != nil {
		return false, err
	}
	defer res.Body.Close()
	if mediaType(res) != EventStreamType {
		return false, foreign("did not answer with a stream")
	}
	// A peer that vanished without closing is found by its silence.
	watchdog := time.AfterFunc(3*StreamKeepalive, cancel)
	defer watchdog.Stop()
	return true, readStream(res.Body, func(m message) (bool, error) {
		if m.id != "" {
			*lastID = m.id
		}
		return fn(m)
	}, func() { watchdog.Reset(3 * StreamKeepalive) })
}

// readStream parses server-sent events (WHATWG HTML, section 9.2.6), as far as
// billet sends them. alive is called for every line. Its error is enough when
// fn ended it.
func readStream(r io.Reader, fn func(message) (bool, error), alive func()) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 0, 4096), maxStreamLine)
	var m message
	for lines.Scan() {
		alive()
		line := lines.Text()
		if line == "" {
			if len(m.data) > 0 {
				if more, err := fn(m); err != nil || !more {
					return enough{err}
				}
			}
			m = message{}
			continue
		}
		field, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch field {
		case "event":
			m.name = value
		case "id":
			m.id = value
		case "data":
			if len(m.data) > 0 {
				m.data = append(m.data, '\n')
			}
			m.data = append(m.data, value...)
			if len(m.data) > maxStreamLine {
				return errs.New(errs.Internal, "one message of the stream is larger than %d bytes", maxStreamLine)
			}
		}
	}
	return errStreamEnded
}
