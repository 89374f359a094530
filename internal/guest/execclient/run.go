package execclient

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"syscall"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/billethq/billet/internal/clock"
	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/guest"
	pb "github.com/billethq/billet/internal/guest/processpb"
	"github.com/billethq/billet/internal/guest/processpb/processpbconnect"
)

const (
	// pingEvery is how often the agent shows that a silent stream lives, and
	// silence how long one may be silent: a road can vanish without a word.
	pingEvery = 10 * time.Second
	silence   = 3 * pingEvery
	// firstRetry and lastRetry bound the wait between two attempts to resume.
	firstRetry = 20 * time.Millisecond
	lastRetry  = 2 * time.Second
)

// run is one command's life on the client's side.
type run struct {
	client *Client
	cmd    Command
	tag    string
	reader string

	events *http.Transport // for the stream of events
	calls  *http.Transport // for everything else
	stream processpbconnect.ProcessClient
	unary  processpbconnect.ProcessClient

	acks   *acker
	began  chan struct{} // closed at the first start event: the process exists
	begin  func()
	pid    uint32
	again  bool  // the process was there before this run
	tried  bool  // a Start may have reached the agent
	offset int64 // bytes of output received and written
	fed    int64 // bytes of input before the first of Stdin
	signs  int   // events received
	end    *pb.ProcessEvent_EndEvent

	hungUp   chan struct{} // closed once the caller takes no more output
	hangUp   func()
	writeErr error // of the first writer that failed, when it is no closed pipe

	piece    int   // bytes of input of the next call, at most; feed's own
	inputErr error // of Stdin; set by feed, read after it
}

func newRun(c *Client, cmd Command) *run {
	r := &run{
		client: c, cmd: cmd, tag: "billet-" + rand.Text(), reader: rand.Text(),
		events: transport(c.cfg.Dial), calls: transport(c.cfg.Dial),
		began: make(chan struct{}), piece: pieceSize,
	}
	r.begin = sync.OnceFunc(func() { close(r.began) })
	r.hungUp = make(chan struct{})
	r.hangUp = sync.OnceFunc(func() { close(r.hungUp) })
	r.stream, r.unary = service(r.events), service(r.calls)
	if c := cmd.Again; c != nil {
		r.tag, r.tried, r.again = c.Tag, true, true
		r.offset, r.fed = max(0, c.Output-replay), c.Input
	} else if cmd.Tag != "" {
		r.tag = cmd.Tag
	}
	r.acks = newAcker(r.calls, r.tag, r.reader)
	return r
}

func (r *run) close() {
	r.events.CloseIdleConnections()
	r.calls.CloseIdleConnections()
}

// run follows the process to its end.
func (r *run) run(ctx context.Context) (int, error) {
	feeding, stop := context.WithCancel(ctx)
	var feeds sync.WaitGroup
	feeds.Go(func() { r.acks.run(feeding) })
	feeds.Go(func() { r.forward(feeding) })
	feeds.Go(func() { r.breakPipe(feeding) })
	if r.cmd.Stdin != nil {
		feeds.Go(func() { r.feed(feeding) })
	}
	err := r.follow(ctx)
	stop()
	feeds.Wait()
	if err != nil {
		if r.cmd.Leave && ctx.Err() != nil && r.known() {
			r.acks.leave(ctx, r.calls, r.offset)
		}
		return r.failed(ctx, err)
	}
	r.acks.last(ctx, r.events, r.offset)
	code := int(r.end.GetExitCode())
	if r.end.Signal != nil {
		if r.cmd.KilledBy != nil {
			r.cmd.KilledBy(syscall.Signal(r.end.GetSignal()))
		}
		code = 128 + int(r.end.GetSignal())
	}
	select {
	case <-r.hungUp:
		if r.writeErr != nil {
			return -1, fmt.Errorf("%q has been ended: %w", r.cmd.Args[0], r.writeErr)
		}
		return 128 + int(syscall.SIGPIPE), nil // as of a command here, whatever this one made of it
	default:
	}
	if r.inputErr != nil {
		return code, fmt.Errorf("read input of %q: %w", r.cmd.Args[0], r.inputErr)
	}
	return code, nil
}

// follow receives events until the end, over as many streams as it takes.
func (r *run) follow(ctx context.Context) error {
	lost, wait := time.Now(), firstRetry
	for {
		before := r.signs
		err := r.attempt(ctx)
		if r.signs > before {
			lost, wait = time.Now(), firstRetry
		}
		switch {
		case r.end != nil:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case final(err):
			return err
		case time.Since(lost) > r.client.cfg.Window:
			return errs.Wrap(errs.Unavailable, err, "the guest has not been reached for %s", r.client.cfg.Window)
		}
		r.client.cfg.Log.Debug("exec_stream_lost", "error", err, "offset", r.offset)
		if err := clock.Sleep(ctx, clock.Jitter(wait)); err != nil {
			return err
		}
		wait = min(2*wait, lastRetry)
	}
}

// attempt opens one stream and receives from it. The first is a Start; if it
// broke before an answer, the process may exist or not: Connect tells, and a
// Start is repeated only if it does not. The agent refuses a second with this
// tag, also when the first arrives late.
func (r *run) attempt(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watch := time.AfterFunc(silence, func() { cancel(errSilent) })
	defer watch.Stop()
	if !r.tried {
		return r.start(ctx, watch)
	}
	err := r.connect(ctx, watch)
	if connect.CodeOf(err) == connect.CodeNotFound && !r.known() && !r.again {
		return r.start(ctx, watch)
	}
	return err
}

var errSilent = errors.New("the stream fell silent")

func (r *run) known() bool {
	select {
	case <-r.began:
		return true
	default:
		return false
	}
}

func (r *run) start(ctx context.Context, watch *time.Timer) error {
	req := connect.NewRequest(&pb.StartRequest{
		Process: &pb.ProcessConfig{Cmd: r.cmd.Args[0], Args: r.cmd.Args[1:], Envs: r.cmd.Env},
		Tag:     proto.String(r.tag),
		Stdin:   proto.Bool(r.cmd.Stdin != nil),
	})
	if r.cmd.Cwd != "" {
		req.Msg.Process.Cwd = proto.String(r.cmd.Cwd)
	}
	if s := r.cmd.PTY; s != nil {
		req.Msg.Pty = &pb.PTY{Size: &pb.PTY_Size{Cols: uint32(s.Cols), Rows: uint32(s.Rows)}}
	}
	r.headers(req.Header())
	r.tried = true
	s, err := r.stream.Start(ctx, req)
	if err != nil {
		return err
	}
	defer s.Close()
	return receive(r, s, watch)
}

func (r *run) connect(ctx context.Context, watch *time.Timer) error {
	req := connect.NewRequest(&pb.ConnectRequest{Process: r.selector()})
	r.headers(req.Header())
	req.Header().Set(guest.HeaderResumeFrom, strconv.FormatInt(r.offset, 10))
	s, err := r.stream.Connect(ctx, req)
	if err != nil {
		return err
	}
	defer s.Close()
	return receive(r, s, watch)
}

func (r *run) headers(h http.Header) {
	h.Set(guest.HeaderReader, r.reader)
	h.Set("Keepalive-Ping-Interval", strconv.Itoa(int(pingEvery/time.Second)))
	if r.cmd.User != "" {
		h.Set("Authorization", basic(r.cmd.User))
	}
}

func (r *run) selector() *pb.ProcessSelector {
	return &pb.ProcessSelector{Selector: &pb.ProcessSelector_Tag{Tag: r.tag}}
}

// receive takes the events of one stream until its end or the process's. It
// is a function, since methods have no type parameters.
func receive[M any, P interface {
	*M
	GetEvent() *pb.ProcessEvent
}](r *run, s *connect.ServerStreamForClient[M], watch *time.Timer) error {
	for s.Receive() {
		watch.Reset(silence)
		r.signs++
		switch e := P(s.Msg()).GetEvent().GetEvent().(type) {
		case *pb.ProcessEvent_Start:
			r.pid = e.Start.GetPid()
			r.begin()
		case *pb.ProcessEvent_Data:
			watch.Stop() // the writer may be slow; that is not the road's fault
			if err := r.write(e.Data); err != nil {
				return err
			}
			watch.Reset(silence)
		case *pb.ProcessEvent_End:
			r.end = e.End
			for s.Receive() { // to the stream's own end, so that its connection serves the last acknowledgement
			}
			return nil
		}
	}
	if err := s.Err(); err != nil {
		return err
	}
	return io.ErrUnexpectedEOF
}

// write hands output on and counts it. What is for a writer that has failed is
// dropped from there on, and the process is told; what it says on the other one
// may be why it ends, and goes on.
func (r *run) write(d *pb.ProcessEvent_DataEvent) error {
	w, data := &r.cmd.Stdout, []byte(nil)
	switch o := d.GetOutput().(type) {
	case *pb.ProcessEvent_DataEvent_Stdout:
		data = o.Stdout
	case *pb.ProcessEvent_DataEvent_Stderr:
		w, data = &r.cmd.Stderr, o.Stderr
	case *pb.ProcessEvent_DataEvent_Pty:
		data = o.Pty
	}
	if *w != nil {
		_, err := (*w).Write(data)
		broken := errors.Is(err, syscall.EPIPE)
		switch {
		case err == nil:
		case r.cmd.Leave && !broken:
			return &writeError{err}
		default:
			*w = nil
			if !broken && r.writeErr == nil {
				r.writeErr = &writeError{err}
			}
			r.hangUp()
		}
	}
	r.offset += int64(len(data))
	r.acks.received(r.offset)
	return nil
}

// writeError is an error of the caller's own writer.
type writeError struct{ err error }

func (e *writeError) Error() string { return "write output: " + e.err.Error() }
func (e *writeError) Unwrap() error { return e.err }

// final reports whether trying again cannot help.
func final(err error) bool {
	var w *writeError
	if errors.As(err, &w) {
		return true
	}
	var e *errs.Error // of the dial function
	if errors.As(err, &e) {
		return e.Kind != errs.Unavailable && e.Kind != errs.Internal
	}
	if !connect.IsWireError(err) {
		return false
	}
	switch connect.CodeOf(err) {
	case connect.CodeCanceled, connect.CodeUnknown, connect.CodeDeadlineExceeded, connect.CodeUnavailable,
		connect.CodeAborted, connect.CodeInternal, connect.CodeAlreadyExists:
		return false // AlreadyExists: the first Start came late; Connect will find it
	case connect.CodeInvalidArgument, connect.CodeNotFound, connect.CodePermissionDenied, connect.CodeResourceExhausted,
		connect.CodeFailedPrecondition, connect.CodeOutOfRange, connect.CodeUnimplemented, connect.CodeDataLoss, connect.CodeUnauthenticated:
		return true
	}
	return true
}

// failed says what an error leaves behind.
func (r *run) failed(ctx context.Context, err error) (int, error) {
	code := connect.CodeOf(err)
	if connect.IsWireError(err) && !r.known() {
		return refused(err, code)
	}
	if !r.tried || !r.known() && final(err) {
		return -1, fmt.Errorf("run %q: %w", r.cmd.Args[0], err)
	}
	what := fmt.Sprintf("follow %q (pid %d)", r.cmd.Args[0], r.pid)
	switch {
	case !r.known():
		return -1, errs.New(errs.Unavailable, "run %q: %v; it may have been started", r.cmd.Args[0], err)
	case code == connect.CodeNotFound:
		return -1, errs.New(errs.Stale, "%s: the process is gone, and its exit code with it; the guest may have been restarted", what)
	case code == connect.CodeOutOfRange:
		return -1, errs.New(errs.Stale, "%s: %v; the process may still run", what, err)
	case guestGone(err):
		return -1, errs.Wrap(errs.KindOf(err), err, "%s: its guest is gone", what)
	case ctx.Err() != nil:
		return -1, fmt.Errorf("%s: %w; the process may still run", what, err)
	}
	return -1, errs.Wrap(errs.Unavailable, err, "%s: the process may still run", what)
}

// guestGone reports whether the dial function was told that the guest to which
// the run belongs is not there any more.
func guestGone(err error) bool {
	var e *errs.Error
	if !errors.As(err, &e) {
		return false
	}
	return e.Kind == errs.NotFound || e.Kind == errs.Stale || e.Kind == errs.Conflict
}

// refused gives the agent's refusal of a Start its kind and exit code.
func refused(err error, code connect.Code) (int, error) {
	var e *connect.Error
	if !errors.As(err, &e) {
		return -1, err
	}
	kind := errs.Internal
	switch code {
	case connect.CodeInvalidArgument, connect.CodeFailedPrecondition:
		kind = errs.Invalid
	case connect.CodeUnauthenticated: // the contract's code for a user that does not exist
		kind = errs.NotFound
	case connect.CodeResourceExhausted:
		kind = errs.Exhausted
	case connect.CodePermissionDenied:
		kind = errs.Denied
	case connect.CodeUnimplemented:
		kind = errs.Unsupported
	}
	if n, convErr := strconv.Atoi(e.Meta().Get(guest.HeaderExitCode)); convErr == nil && (n == 126 || n == 127) {
		return n, errs.New(errs.NotFound, "%s", e.Message())
	}
	return -1, errs.New(kind, "%s", e.Message())
}
