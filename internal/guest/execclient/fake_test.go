package execclient_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"connectrpc.com/connect"

	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/guest"
	"github.com/billethq/billet/internal/guest/execclient"
	"github.com/billethq/billet/internal/guest/guesttest"
	pb "github.com/billethq/billet/internal/guest/processpb"
	"github.com/billethq/billet/internal/guest/processpb/processpbconnect"
)

// fake is an agent whose answers a test writes.
type fake struct {
	processpbconnect.UnimplementedProcessHandler
	start   func(*connect.ServerStream[pb.StartResponse]) error
	connect func(from string, s *connect.ServerStream[pb.ConnectResponse]) error
	starts  atomic.Int64
}

func (f *fake) Start(_ context.Context, _ *connect.Request[pb.StartRequest], s *connect.ServerStream[pb.StartResponse]) error {
	f.starts.Add(1)
	return f.start(s)
}

func (f *fake) Connect(_ context.Context, r *connect.Request[pb.ConnectRequest], s *connect.ServerStream[pb.ConnectResponse]) error {
	return f.connect(r.Header().Get(guest.HeaderResumeFrom), s)
}

func (f *fake) client(t *testing.T) *execclient.Client {
	mux := http.NewServeMux()
	mux.Handle(processpbconnect.NewProcessHandler(f))
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	var d net.Dialer
	return guesttest.Client(t, func(ctx context.Context) (net.Conn, error) {
		return d.DialContext(ctx, "tcp", s.Listener.Addr().String())
	})
}

func started() *pb.ProcessEvent {
	return &pb.ProcessEvent{Event: &pb.ProcessEvent_Start{Start: &pb.ProcessEvent_StartEvent{Pid: 42}}}
}

func wrote(s string) *pb.ProcessEvent {
	return &pb.ProcessEvent{Event: &pb.ProcessEvent_Data{Data: &pb.ProcessEvent_DataEvent{Output: &pb.ProcessEvent_DataEvent_Stdout{Stdout: []byte(s)}}}}
}

func exited(code int32) *pb.ProcessEvent {
	return &pb.ProcessEvent{Event: &pb.ProcessEvent_End{End: &pb.ProcessEvent_EndEvent{ExitCode: code, Exited: true}}}
}

// broken ends a stream as a lost connection does.
func broken() error { panic(http.ErrAbortHandler) }

func TestRun_SaysWhatItCannotResume(t *testing.T) {
	for _, c := range []struct {
		code connect.Code
		kind errs.Kind
		want string
	}{
		{connect.CodeOutOfRange, errs.Stale, "may still run"},
		{connect.CodeNotFound, errs.Stale, "the process is gone"},
		{connect.CodeUnauthenticated, errs.Unavailable, "may still run"},
	} {
		f := &fake{
			start: func(s *connect.ServerStream[pb.StartResponse]) error {
				_ = s.Send(&pb.StartResponse{Event: started()})
				_ = s.Send(&pb.StartResponse{Event: wrote("some")})
				return broken()
			},
			connect: func(string, *connect.ServerStream[pb.ConnectResponse]) error {
				return connect.NewError(c.code, errors.New("told by the agent"))
			},
		}
		var out bytes.Buffer
		code, err := f.client(t).Run(guesttest.Context(t), execclient.Command{Args: []string{"work"}, Stdout: &out})
		if code != -1 || !errs.Is(err, c.kind) || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "pid 42") {
			t.Errorf("%s: code %d, %s, %v; want %s, %q", c.code, code, errs.KindOf(err), err, c.kind, c.want)
		}
		if out.String() != "some" || f.starts.Load() != 1 {
			t.Errorf("%s: output %q of %d starts", c.code, &out, f.starts.Load())
		}
	}
}

func TestRun_ResumesAtWhatItHas(t *testing.T) {
	var asked []string
	f := &fake{
		start: func(s *connect.ServerStream[pb.StartResponse]) error {
			_ = s.Send(&pb.StartResponse{Event: started()})
			_ = s.Send(&pb.StartResponse{Event: wrote("abc")})
			return broken()
		},
		connect: func(from string, s *connect.ServerStream[pb.ConnectResponse]) error {
			asked = append(asked, from)
			_ = s.Send(&pb.ConnectResponse{Event: started()})
			if len(asked) < 3 {
				_ = s.Send(&pb.ConnectResponse{Event: wrote("de")})
				return broken()
			}
			return s.Send(&pb.ConnectResponse{Event: exited(6)})
		},
	}
	var out bytes.Buffer
	code, err := f.client(t).Run(guesttest.Context(t), execclient.Command{Args: []string{"work"}, Stdout: &out})
	if code != 6 || err != nil || out.String() != "abcdede" || fmt.Sprint(asked) != "[3 5 7]" {
		t.Errorf("code %d, %v, output %q, resumed at %v", code, err, &out, asked)
	}
}

func TestRun_LateFirstStartIsNotASecond(t *testing.T) {
	// The first Start is lost before its answer; the agent does not know it yet
	// when it is asked, and has begun it when the second Start arrives.
	known := false
	f := &fake{connect: func(_ string, s *connect.ServerStream[pb.ConnectResponse]) error {
		if !known {
			return connect.NewError(connect.CodeNotFound, errors.New("not yet"))
		}
		_ = s.Send(&pb.ConnectResponse{Event: started()})
		return s.Send(&pb.ConnectResponse{Event: exited(0)})
	}}
	f.start = func(*connect.ServerStream[pb.StartResponse]) error {
		if f.starts.Load() == 1 {
			return broken()
		}
		known = true
		return connect.NewError(connect.CodeAlreadyExists, errors.New("used"))
	}
	code, err := f.client(t).Run(guesttest.Context(t), execclient.Command{Args: []string{"work"}})
	if code != 0 || err != nil || f.starts.Load() != 2 {
		t.Errorf("code %d, %v after %d starts", code, err, f.starts.Load())
	}
}

func TestRun_AgentRestartedMeanwhile(t *testing.T) {
	a := guesttest.New(t)
	out, in := io.Pipe()
	input, typed := io.Pipe()
	defer typed.Close()
	result := make(chan error, 1)
	go func() {
		_, err := a.Client().Run(guesttest.Context(t), execclient.Command{Args: []string{"sh", "-c", "echo up; cat"}, User: "root", Stdin: input, Stdout: in})
		result <- err
	}()
	guesttest.WaitFor(t, out, "up\n")
	a.Restart() // cat ends with its input
	if err := <-result; !errs.Is(err, errs.Stale) || !strings.Contains(err.Error(), "gone") {
		t.Errorf("got %v (%s), want that the process is gone", err, errs.KindOf(err))
	}
}
