package process

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"syscall"
	"time"

	"connectrpc.com/connect"

	"github.com/billethq/billet/internal/guest"
	pb "github.com/billethq/billet/internal/guest/processpb"
)

const (
	// headerKeepalive is the contract's: seconds between keepalive events.
	headerKeepalive  = "Keepalive-Ping-Interval"
	defaultKeepalive = 90 * time.Second
	maxKeepalive     = time.Hour
	// headerTimeout is the Connect protocol's. On Start it is also the
	// contract's time limit for the process itself.
	headerTimeout = "Connect-Timeout-Ms"
	// firstChunk and lastChunk bound the bytes of one data event. A stream
	// begins with small ones that grow, so that a road which breaks again and
	// again still carries some to their end.
	firstChunk = 4 << 10
	lastChunk  = 64 << 10
)

// Start runs a command and streams its events. The process outlives the stream.
func (s *Service) Start(ctx context.Context, req *connect.Request[pb.StartRequest], stream *connect.ServerStream[pb.StartResponse]) error {
	name, err := readerName(req.Header())
	if err != nil {
		return err
	}
	limit, err := timeLimit(req.Header())
	if err != nil {
		return err
	}
	p, r, err := s.start(req, name, limit)
	if err != nil {
		return err
	}
	stream.ResponseHeader().Set(guest.HeaderOffset, "0")
	return s.events(ctx, p, r, keepalive(req.Header()), func(e *pb.ProcessEvent) error {
		return stream.Send(&pb.StartResponse{Event: e})
	})
}

// Connect streams the events of a process from now on, or from an offset.
func (s *Service) Connect(ctx context.Context, req *connect.Request[pb.ConnectRequest], stream *connect.ServerStream[pb.ConnectResponse]) error {
	name, err := readerName(req.Header())
	if err != nil {
		return err
	}
	from := int64(-1)
	if v := req.Header().Get(guest.HeaderResumeFrom); v != "" {
		if from, err = strconv.ParseInt(v, 10, 64); err != nil || from < 0 {
			return connect.NewError(connect.CodeInvalidArgument, errors.New("malformed "+guest.HeaderResumeFrom))
		}
	}
	p, err := s.find(ctx, req.Msg.GetProcess())
	if err != nil {
		return err
	}
	if s.table.wasSeen(p) {
		return connect.NewError(connect.CodeNotFound, errors.New("process has ended"))
	}
	r, err := p.out.attach(name, from)
	if err != nil {
		return outputError(err)
	}
	stream.ResponseHeader().Set(guest.HeaderOffset, strconv.FormatInt(r.pos, 10))
	return s.events(ctx, p, r, keepalive(req.Header()), func(e *pb.ProcessEvent) error {
		return stream.Send(&pb.ConnectResponse{Event: e})
	})
}

// start spawns the command of req. The reader it returns is attached before
// there is output, so that none of it can be lost.
func (s *Service) start(req *connect.Request[pb.StartRequest], name string, limit time.Duration) (*proc, *reader, error) {
	msg := req.Msg
	if msg.GetProcess().GetCmd() == "" {
		return nil, nil, connect.NewError(connect.CodeInvalidArgument, errors.New("process.cmd is empty"))
	}
	if len(msg.GetTag()) > guest.MaxName {
		return nil, nil, connect.NewError(connect.CodeInvalidArgument, errors.New("tag is too long"))
	}
	u, err := s.user(req.Header())
	if err != nil {
		return nil, nil, err
	}
	p := &proc{tag: msg.GetTag(), config: msg.GetProcess(), ready: make(chan struct{}), table: s.table}
	if err := s.table.reserve(p, name != ""); err != nil {
		return nil, nil, reserveError(err)
	}
	child, files, err := spawn(s.reaper, u, msg)
	if err != nil {
		s.table.fail(p)
		return nil, nil, err
	}
	p.child, p.pid, p.tty = child, uint32(child.PID()), files.tty
	p.in = newInput(files.stdin)
	if files.tty != nil {
		p.in = newInput(files.tty)
	}
	p.out = newOutput(func() { s.table.saw(p) })
	r, err := p.out.attach(name, 0)
	if err != nil {
		panic("process: a new output refused its first reader: " + err.Error())
	}
	if limit > 0 {
		p.kill = time.AfterFunc(limit, func() { _ = p.child.Signal(syscall.SIGKILL) })
	}
	s.table.add(p)
	p.run(files, func() { s.log.Info("process_started", "pid", p.pid, "user", u.Name) })
	return p, r, nil
}

// events sends a process's events to one reader until the end or ctx's end.
func (s *Service) events(ctx context.Context, p *proc, r *reader, every time.Duration, send func(*pb.ProcessEvent) error) error {
	defer p.out.detach(r)
	err := send(&pb.ProcessEvent{Event: &pb.ProcessEvent_Start{Start: &pb.ProcessEvent_StartEvent{Pid: p.pid}}})
	for size := firstChunk; err == nil; {
		wait, cancel := context.WithTimeout(ctx, every)
		var c chunk
		c, err = p.out.next(wait, r, size)
		cancel()
		switch {
		case errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil:
			err = send(&pb.ProcessEvent{Event: &pb.ProcessEvent_Keepalive{Keepalive: &pb.ProcessEvent_KeepAlive{}}})
		case err != nil:
			return outputError(err)
		case c.end != nil:
			if err = send(&pb.ProcessEvent{Event: &pb.ProcessEvent_End{End: c.end}}); err == nil {
				p.out.sent(r, true)
				return nil
			}
		default:
			if err = send(dataEvent(c)); err == nil {
				p.out.sent(r, false)
				size = min(2*size, lastChunk)
			}
		}
	}
	return err
}

func dataEvent(c chunk) *pb.ProcessEvent {
	d := &pb.ProcessEvent_DataEvent{}
	switch c.channel {
	case stdout:
		d.Output = &pb.ProcessEvent_DataEvent_Stdout{Stdout: c.data}
	case stderr:
		d.Output = &pb.ProcessEvent_DataEvent_Stderr{Stderr: c.data}
	case terminal:
		d.Output = &pb.ProcessEvent_DataEvent_Pty{Pty: c.data}
	}
	return &pb.ProcessEvent{Event: &pb.ProcessEvent_Data{Data: d}}
}

// outputError gives an output's error its code on the wire.
func outputError(err error) error {
	switch {
	case errors.Is(err, errGap):
		return connect.NewError(connect.CodeOutOfRange, err)
	case errors.Is(err, errAhead):
		return connect.NewError(connect.CodeInvalidArgument, err)
	case errors.Is(err, errReplaced):
		return connect.NewError(connect.CodeAborted, err)
	case errors.Is(err, errReaders):
		return connect.NewError(connect.CodeResourceExhausted, err)
	}
	return err
}

// reserveError gives a refused Start its code on the wire.
func reserveError(err error) error {
	code := connect.CodeResourceExhausted
	switch {
	case errors.Is(err, errTag):
		code = connect.CodeAlreadyExists
	case errors.Is(err, errEnding):
		code = connect.CodeUnavailable
	}
	return connect.NewError(code, err)
}

func readerName(h http.Header) (string, error) {
	name := h.Get(guest.HeaderReader)
	if len(name) > guest.MaxName {
		return "", connect.NewError(connect.CodeInvalidArgument, errors.New(guest.HeaderReader+" is too long"))
	}
	return name, nil
}

func keepalive(h http.Header) time.Duration {
	n, err := strconv.Atoi(h.Get(headerKeepalive))
	if err != nil || n <= 0 || n > int(maxKeepalive/time.Second) {
		return defaultKeepalive
	}
	return time.Duration(n) * time.Second
}

func timeLimit(h http.Header) (time.Duration, error) {
	v := h.Get(headerTimeout)
	if v == "" {
		return 0, nil
	}
	ms, err := strconv.ParseInt(v, 10, 64)
	if err != nil || ms < 0 || ms > int64(1<<63-1)/int64(time.Millisecond) {
		return 0, connect.NewError(connect.CodeInvalidArgument, errors.New("malformed "+headerTimeout))
	}
	return time.Duration(ms) * time.Millisecond, nil
}
