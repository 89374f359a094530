package process

import (
	"context"
	"errors"
	"os"
	"strconv"
	"syscall"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	"github.com/billethq/billet/internal/guest"
	pb "github.com/billethq/billet/internal/guest/processpb"
)

// SendInput feeds a process and returns when the process's end has taken it.
func (s *Service) SendInput(ctx context.Context, req *connect.Request[pb.SendInputRequest]) (*connect.Response[pb.SendInputResponse], error) {
	at := int64(-1)
	if v := req.Header().Get(guest.HeaderInputOffset); v != "" {
		var err error
		if at, err = strconv.ParseInt(v, 10, 64); err != nil || at < 0 {
			return nil, connect.NewError(connect.CodeInvalidArgument, errors.New("malformed "+guest.HeaderInputOffset))
		}
	}
	p, err := s.live(ctx, req.Msg.GetProcess())
	if err != nil {
		return nil, err
	}
	if err := p.feed(ctx, at, req.Msg.GetInput()); err != nil {
		return nil, err
	}
	return connect.NewResponse(&pb.SendInputResponse{}), nil
}

// StreamInput feeds a process from a stream that names it first.
func (s *Service) StreamInput(ctx context.Context, stream *connect.ClientStream[pb.StreamInputRequest]) (*connect.Response[pb.StreamInputResponse], error) {
	var p *proc
	for stream.Receive() {
		switch e := stream.Msg().GetEvent().(type) {
		case *pb.StreamInputRequest_Start:
			var err error
			if p, err = s.live(ctx, e.Start.GetProcess()); err != nil {
				return nil, err
			}
		case *pb.StreamInputRequest_Data:
			if p == nil {
				return nil, connect.NewError(connect.CodeFailedPrecondition, errors.New("data before start"))
			}
			if err := p.feed(ctx, -1, e.Data.GetInput()); err != nil {
				return nil, err
			}
		}
	}
	if err := stream.Err(); err != nil {
		return nil, err
	}
	return connect.NewResponse(&pb.StreamInputResponse{}), nil
}

// CloseStdin ends a process's input. A terminal's ends with the byte 0x04.
func (s *Service) CloseStdin(ctx context.Context, req *connect.Request[pb.CloseStdinRequest]) (*connect.Response[pb.CloseStdinResponse], error) {
	p, err := s.live(ctx, req.Msg.GetProcess())
	if err != nil {
		return nil, err
	}
	if p.tty != nil {
		return nil, connect.NewError(connect.CodeFailedPrecondition, errors.New("a terminal has no stdin to close: send 0x04"))
	}
	if err := p.in.end(ctx); err != nil {
		return nil, err
	}
	return connect.NewResponse(&pb.CloseStdinResponse{}), nil
}

// Update changes the size of a process's terminal.
func (s *Service) Update(ctx context.Context, req *connect.Request[pb.UpdateRequest]) (*connect.Response[pb.UpdateResponse], error) {
	p, err := s.live(ctx, req.Msg.GetProcess())
	if err != nil {
		return nil, err
	}
	if req.Msg.GetPty() != nil {
		if err := p.resize(req.Msg.GetPty().GetSize()); err != nil {
			return nil, connect.NewError(connect.CodeFailedPrecondition, err)
		}
	}
	return connect.NewResponse(&pb.UpdateResponse{}), nil
}

// feed writes to the input of the kind that the process has.
func (p *proc) feed(ctx context.Context, at int64, in *pb.ProcessInput) error {
	var data []byte
	switch in := in.GetInput().(type) {
	case *pb.ProcessInput_Stdin:
		if p.tty != nil {
			return connect.NewError(connect.CodeFailedPrecondition, errors.New("the process has a terminal: send pty input"))
		}
		data = in.Stdin
	case *pb.ProcessInput_Pty:
		if p.tty == nil {
			return connect.NewError(connect.CodeFailedPrecondition, errors.New("the process has no terminal: send stdin input"))
		}
		data = in.Pty
	default:
		return connect.NewError(connect.CodeUnimplemented, errors.New("unknown input"))
	}
	err := p.in.write(ctx, at, data)
	switch {
	case errors.Is(err, errInputSkip):
		return connect.NewError(connect.CodeOutOfRange, err)
	case errors.Is(err, errNoInput), errors.Is(err, syscall.EPIPE), errors.Is(err, syscall.EIO), errors.Is(err, os.ErrClosed):
		return connect.NewError(connect.CodeFailedPrecondition, err)
	}
	return err
}

// resize sets the terminal's size; the kernel tells the foreground group.
func (p *proc) resize(size *pb.PTY_Size) error {
	if p.tty == nil {
		return errors.New("the process has no terminal")
	}
	conn, err := p.tty.SyscallConn() // Fd would make the file blocking
	if err != nil {
		return err
	}
	w := winsize(size)
	var ioctl error
	if err := conn.Control(func(fd uintptr) {
		ioctl = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Row: w.Rows, Col: w.Cols})
	}); err != nil {
		return err
	}
	return ioctl
}
