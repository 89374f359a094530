// Package process is the guest's process service: it runs commands, keeps their
// output for clients that lose their stream, and carries input and signals.
//
// Routes, messages and behaviour are the sandbox contract's; what billet adds
// is described in package guest.
package process

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"sort"
	"strconv"
	"strings"
	"syscall"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/billethq/billet/internal/guest"
	pb "github.com/billethq/billet/internal/guest/processpb"
	"github.com/billethq/billet/internal/guest/processpb/processpbconnect"
	"github.com/billethq/billet/internal/guest/reaper"
	"github.com/billethq/billet/internal/guest/users"
)

// Config holds what a Service needs.
type Config struct {
	Reaper *reaper.Reaper // runs for as long as the Service is used
	Log    *slog.Logger
	Etc    string           // where the account files are; "" is "/etc"
	Now    func() time.Time // nil is time.Now
}

// Service implements the process service. It is safe for concurrent use.
type Service struct {
	reaper   *reaper.Reaper
	log      *slog.Logger
	accounts *users.Accounts
	table    *table
}

var _ processpbconnect.ProcessHandler = (*Service)(nil)

// New returns a Service without processes.
func New(c Config) (*Service, error) {
	if c.Reaper == nil || c.Log == nil {
		return nil, errors.New("process service: Reaper and Log are needed")
	}
	if c.Etc == "" {
		c.Etc = "/etc"
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return &Service{reaper: c.Reaper, log: c.Log, accounts: users.New(c.Etc), table: newTable(c.Now)}, nil
}

// Register adds the service's routes to mux.
func (s *Service) Register(mux *http.ServeMux) {
	mux.Handle(processpbconnect.NewProcessHandler(s, connect.WithReadMaxBytes(guest.MaxMessage)))
	mux.HandleFunc("POST "+guest.AckPath, s.ack)
	mux.HandleFunc("GET "+guest.TerminalsPath, s.terminals)
}

// List names the processes that run.
func (s *Service) List(context.Context, *connect.Request[pb.ListRequest]) (*connect.Response[pb.ListResponse], error) {
	procs := s.table.list()
	sort.Slice(procs, func(i, j int) bool { return procs[i].pid < procs[j].pid })
	res := &pb.ListResponse{}
	for _, p := range procs {
		info := &pb.ProcessInfo{Config: p.config, Pid: p.pid}
		if p.tag != "" {
			info.Tag = proto.String(p.tag)
		}
		res.Processes = append(res.Processes, info)
	}
	return connect.NewResponse(res), nil
}

// sigPipe tells a process that its output is nobody's. The contract's enumeration
// does not name it; the wire carries it all the same.
const sigPipe = pb.Signal(syscall.SIGPIPE)

// SendSignal signals a process group. The signals are those of pb.Signal, and
// sigPipe.
func (s *Service) SendSignal(ctx context.Context, req *connect.Request[pb.SendSignalRequest]) (*connect.Response[pb.SendSignalResponse], error) {
	p, err := s.live(ctx, req.Msg.GetProcess())
	if err != nil {
		return nil, err
	}
	sig := req.Msg.GetSignal()
	if _, known := pb.Signal_name[int32(sig)]; !known && sig != sigPipe || sig == pb.Signal_SIGNAL_UNSPECIFIED {
		return nil, connect.NewError(connect.CodeUnimplemented, errors.New("signal "+itoa(int(sig))+" is not supported"))
	}
	if err := p.child.Signal(syscall.Signal(sig)); err != nil {
		if errors.Is(err, reaper.ErrGone) {
			return nil, connect.NewError(connect.CodeNotFound, err)
		}
		return nil, connect.NewError(connect.CodeInternal, err)
	}
	return connect.NewResponse(&pb.SendSignalResponse{}), nil
}

// Refuse makes every later Start fail: the guest is ending.
func (s *Service) Refuse() { s.table.refuse() }

// SignalAll signals every running process group. To those with a terminal
// SIGTERM is a hang-up too, since an interactive shell ignores the former.
func (s *Service) SignalAll(sig syscall.Signal) {
	for _, p := range s.table.list() {
		_ = p.child.Signal(sig)
		if sig == syscall.SIGTERM && p.tty != nil {
			_ = p.child.Signal(syscall.SIGHUP)
		}
	}
}

// live finds a process that runs.
func (s *Service) live(ctx context.Context, sel *pb.ProcessSelector) (*proc, error) {
	p, err := s.find(ctx, sel)
	if err != nil {
		return nil, err
	}
	if p.exited.Load() {
		return nil, connect.NewError(connect.CodeNotFound, reaper.ErrGone)
	}
	return p, nil
}

// find returns the selected process, running or ended, once it is ready.
func (s *Service) find(ctx context.Context, sel *pb.ProcessSelector) (*proc, error) {
	var (
		p    *proc
		what string
	)
	switch sel := sel.GetSelector().(type) {
	case *pb.ProcessSelector_Pid:
		p, what = s.table.byPID(sel.Pid), "pid "+strconv.FormatUint(uint64(sel.Pid), 10)
	case *pb.ProcessSelector_Tag:
		p, what = s.table.byTag(sel.Tag), "tag "+strconv.Quote(sel.Tag)
	default:
		return nil, connect.NewError(connect.CodeInvalidArgument, errors.New("a process is selected by pid or tag"))
	}
	if p != nil {
		select {
		case <-p.ready:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if p == nil || p.failed {
		return nil, connect.NewError(connect.CodeNotFound, errors.New("process with "+what+" not found"))
	}
	return p, nil
}

// ack serves guest.AckPath. A process that is unknown needs no acknowledgement.
func (s *Service) ack(w http.ResponseWriter, r *http.Request) {
	var a guest.Ack
	const maxAck = 4 << 10
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxAck)).Decode(&a); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if p := s.table.byTag(a.Tag); p != nil && a.Reader != "" {
		select {
		case <-p.ready:
			if !p.failed {
				p.out.ack(a.Reader, a.Offset, a.End)
				if a.Leave {
					p.out.leave(a.Reader)
				}
			}
		default:
		}
	}
	w.WriteHeader(http.StatusNoContent)
}

// user finds the account that a request names by Authorization: Basic, whose
// password is ignored: who may call at all is decided before the guest.
func (s *Service) user(h http.Header) (users.User, error) {
	var name string
	if auth := h.Get("Authorization"); auth != "" {
		scheme, param, _ := strings.Cut(auth, " ")
		raw, err := base64.StdEncoding.DecodeString(strings.TrimSpace(param))
		if !strings.EqualFold(scheme, "Basic") || err != nil {
			return users.User{}, connect.NewError(connect.CodeUnauthenticated, errors.New("malformed Authorization header"))
		}
		name, _, _ = strings.Cut(string(raw), ":")
	}
	u, err := s.accounts.Lookup(name)
	if errors.Is(err, users.ErrUnknown) {
		return u, connect.NewError(connect.CodeUnauthenticated, err)
	}
	if err != nil {
		return u, connect.NewError(connect.CodeInternal, err)
	}
	return u, nil
}
