// Package filesystem is the guest's filesystem service: it describes, changes
// and watches files for clients, with the rights of the user whom each names.
//
// Routes, messages and behaviour are the sandbox contract's.
package filesystem

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/guest"
	pb "github.com/billethq/billet/internal/guest/filesystempb"
	"github.com/billethq/billet/internal/guest/filesystempb/filesystempbconnect"
	"github.com/billethq/billet/internal/guest/userfs"
)

// Config holds what a Service needs.
type Config struct {
	Etc string           // where the account files are; "" is "/etc"
	Now func() time.Time // nil is time.Now
}

// Service implements the filesystem service. It is safe for concurrent use.
type Service struct {
	etc string
	now func() time.Time

	mu       sync.Mutex
	watching int                 // watches, streamed and gathered
	watchers map[string]*watcher // those that gather, by id
}

var _ filesystempbconnect.FilesystemHandler = (*Service)(nil)

// New returns a Service without watchers.
func New(c Config) *Service {
	if c.Etc == "" {
		c.Etc = "/etc"
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return &Service{etc: c.Etc, now: c.Now, watchers: make(map[string]*watcher)}
}

// Register adds the service's routes to mux.
func (s *Service) Register(mux *http.ServeMux) {
	mux.Handle(filesystempbconnect.NewFilesystemHandler(s, connect.WithReadMaxBytes(guest.MaxMessage)))
}

// Stat describes what is at a path; of a link, the link.
func (s *Service) Stat(_ context.Context, req *connect.Request[pb.StatRequest]) (*connect.Response[pb.StatResponse], error) {
	e, err := s.one(req.Header(), req.Msg.GetPath(), (*userfs.FS).Stat)
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&pb.StatResponse{Entry: e}), nil
}

// MakeDir makes a directory, already_exists if it is there.
func (s *Service) MakeDir(_ context.Context, req *connect.Request[pb.MakeDirRequest]) (*connect.Response[pb.MakeDirResponse], error) {
	e, err := s.one(req.Header(), req.Msg.GetPath(), (*userfs.FS).MakeDir)
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&pb.MakeDirResponse{Entry: e}), nil
}

// Move renames what is at a path.
func (s *Service) Move(_ context.Context, req *connect.Request[pb.MoveRequest]) (*connect.Response[pb.MoveResponse], error) {
	e, err := s.one(req.Header(), req.Msg.GetSource(), func(fs *userfs.FS, from string) (userfs.Entry, error) {
		to, err := userfs.Resolve(req.Msg.GetDestination(), fs.User())
		if err != nil {
			return userfs.Entry{}, err
		}
		return fs.Move(from, to)
	})
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&pb.MoveResponse{Entry: e}), nil
}

// ListDir describes what is in a directory.
func (s *Service) ListDir(_ context.Context, req *connect.Request[pb.ListDirRequest]) (*connect.Response[pb.ListDirResponse], error) {
	res := &pb.ListDirResponse{}
	depth := int(min(max(req.Msg.GetDepth(), 1), userfs.MaxDepth+1)) // 1 more: a deeper tree is told
	err := s.as(req.Header(), req.Msg.GetPath(), func(fs *userfs.FS, path string) error {
		all, err := fs.List(path, depth)
		for _, e := range all {
			res.Entries = append(res.Entries, info(e))
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(res), nil
}

// Remove removes what is at a path, and everything below.
func (s *Service) Remove(_ context.Context, req *connect.Request[pb.RemoveRequest]) (*connect.Response[pb.RemoveResponse], error) {
	err := s.as(req.Header(), req.Msg.GetPath(), (*userfs.FS).Remove)
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&pb.RemoveResponse{}), nil
}

// as calls do with the rights of the user that a request names, and with the
// absolute form of the path.
func (s *Service) as(h http.Header, path string, do func(*userfs.FS, string) error) error {
	u, err := userfs.Caller(s.etc, h)
	if err != nil {
		return wire(err)
	}
	if path, err = userfs.Resolve(path, u); err != nil {
		return wire(err)
	}
	return wire(userfs.Do(s.etc, u, func(fs *userfs.FS) error { return do(fs, path) }))
}

// one is as for what describes one entry.
func (s *Service) one(h http.Header, path string, do func(*userfs.FS, string) (userfs.Entry, error)) (*pb.EntryInfo, error) {
	var e userfs.Entry
	err := s.as(h, path, func(fs *userfs.FS, path string) (err error) {
		e, err = do(fs, path)
		return err
	})
	if err != nil {
		return nil, err
	}
	return info(e), nil
}

func info(e userfs.Entry) *pb.EntryInfo {
	kinds := map[userfs.Kind]pb.FileType{
		userfs.KindFile: pb.FileType_FILE_TYPE_FILE,
		userfs.KindDir:  pb.FileType_FILE_TYPE_DIRECTORY,
	}
	return &pb.EntryInfo{
		Name: e.Name, Type: kinds[e.Kind], Path: e.Path, Size: e.Size, Mode: e.Mode, Permissions: e.Permissions,
		Owner: e.Owner, Group: e.Group, ModifiedTime: timestamppb.New(e.Modified), SymlinkTarget: e.Target,
		Metadata: e.Metadata,
	}
}

// wire gives an error its code on the wire.
func wire(err error) error {
	if err == nil {
		return nil
	}
	return connect.NewError(code(err), err)
}

func code(err error) connect.Code {
	if errors.Is(err, userfs.ErrExists) {
		return connect.CodeAlreadyExists
	}
	switch errs.KindOf(err) {
	case errs.Invalid:
		return connect.CodeInvalidArgument
	case errs.NotFound:
		return connect.CodeNotFound
	case errs.Conflict:
		return connect.CodeFailedPrecondition
	case errs.Stale:
		return connect.CodeDataLoss
	case errs.Exhausted:
		return connect.CodeResourceExhausted
	case errs.Unavailable:
		return connect.CodeUnavailable
	case errs.Unauthenticated:
		return connect.CodeUnauthenticated
	case errs.Denied:
		return connect.CodePermissionDenied
	case errs.Unsupported:
		return connect.CodeUnimplemented
	case errs.Internal:
	}
	return connect.CodeInternal
}
