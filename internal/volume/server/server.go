package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/failpoint"
	"github.com/billethq/billet/internal/volume"
	"github.com/billethq/billet/internal/volume/device"
	"github.com/billethq/billet/internal/volume/mount"
	"github.com/billethq/billet/internal/volume/protocol"
)

// freezeMost bounds how long a guest's writes may stand still. Sealing takes
// milliseconds; whatever takes longer is cut, and the root is then one as
// after a power cut.
const freezeMost = 10 * time.Second

// server is one volume that is being served. A call that changes something
// waits for the one before it.
type server struct {
	cfg     protocol.Config
	place   protocol.Place
	log     *slog.Logger
	mounter *mount.Mounting
	process protocol.Process

	parts   stack
	store   *volume.Store
	cache   *volume.Cache
	fetcher *volume.Fetcher
	dev     *device.Device
	room    *room // the device as the file system has it
	faults  *faults
	watch   *watch
	damaged atomic.Pointer[volume.CorruptError] // the newest that was met

	ns atomic.Pointer[mount.Namespace] // nil: not mounted

	calls  sync.Mutex    // one call at a time
	ended  bool          // guarded by calls
	closed chan struct{} // the volume is closed: the process may end
}

func (s *server) isMounted() bool { return s.ns.Load() != nil }

func (s *server) status() protocol.Status {
	held := s.dev.Stats()
	st := protocol.Status{
		Process: s.process, Root: s.dev.Root(), Size: s.dev.Size(), Sealed: s.dev.Sealed(),
		Mounted: s.isMounted(), Faults: s.faults.all(),
		Counters: protocol.Counters{
			Reads: held.Reads, Writes: held.Writes, Flushes: held.Flushes, Fills: held.Fills, Stalls: held.Stalls,
			ReadBytes: held.ReadBytes, WrittenBytes: held.WrittenBytes,
			Fetch: s.fetcher.Stats(), Cache: s.cache.Stats(),
		},
	}
	if !s.dev.Clean() {
		st.UnsavedBytes = (held.ActivePages + held.SealedPages) * volume.PageSize
	}
	if p := s.dev.Pending(); p != nil {
		st.Pending = p.Root
	}
	return st
}

// seal makes what was written so far ready for an upload, or answers that
// there is nothing.
func (s *server) seal(ctx context.Context, req protocol.SealRequest) (protocol.SealResponse, error) {
	if s.dev.Sealed() {
		return protocol.SealResponse{}, nil // uploaded first; the rest comes with the next seal
	}
	if s.isMounted() {
		// What the guest wrote may still be in the page cache.
		if err := s.mounter.Sync(ctx, s.ns.Load(), s.place.RootFS()); err != nil {
			return protocol.SealResponse{}, err
		}
	}
	if s.dev.Clean() {
		return protocol.SealResponse{Clean: true}, nil
	}
	var sealed bool
	var err error
	switch {
	case !s.isMounted():
		sealed, err = s.sealAsIs()
	case req.Freeze:
		sealed, err = s.sealFrozen(ctx)
	default:
		sealed, err = s.dev.Seal(volume.Crash)
	}
	if err != nil {
		return protocol.SealResponse{}, err
	}
	failpoint.Reach(failpoint.FlushSealed)
	return protocol.SealResponse{Clean: !sealed}, nil
}

func (s *server) sealFrozen(ctx context.Context) (bool, error) {
	frozen, err := s.mounter.Freeze(ctx, s.ns.Load(), s.place.RootFS(), freezeMost)
	if err != nil {
		return false, err
	}
	failpoint.Reach(failpoint.FlushFrozen)
	sealed, err := s.sealAsIs()
	held, thawErr := frozen.Thaw()
	if err != nil || thawErr != nil {
		return sealed, errors.Join(err, thawErr)
	}
	if !held {
		s.log.Warn("freeze ended before the seal", "limit", freezeMost)
		return sealed, s.dev.NotFrozen()
	}
	return sealed, nil
}

func (s *server) upload(ctx context.Context, req protocol.UploadRequest) (protocol.UploadResponse, error) {
	if req.Epoch != s.cfg.Epoch {
		return protocol.UploadResponse{}, errs.New(errs.Stale, "intent of epoch %d, the volume serves epoch %d", req.Epoch, s.cfg.Epoch)
	}
	defer giveBack()
	up, err := s.dev.Upload(ctx, device.Intent{
		ID: req.Intent, Subject: s.cfg.Subject, Epoch: req.Epoch, Seq: req.Seq, Started: req.Started,
	})
	if err != nil {
		return protocol.UploadResponse{}, err
	}
	return protocol.UploadResponse{
		Root: up.Root, Consistency: up.Consistency, StoredBytes: up.StoredBytes, WrittenBytes: up.WrittenBytes, Blocks: up.Blocks,
	}, nil
}

// giveBack returns the memory of blocks and of compression to the host: until
// the next upload it would only lie there. A pool lets go of what it holds in
// the second collection.
func giveBack() {
	runtime.GC()
	debug.FreeOSMemory()
}

func (s *server) committed(_ context.Context, req protocol.CommittedRequest) (struct{}, error) {
	if err := s.dev.Committed(req.Root); err != nil {
		return struct{}{}, err
	}
	failpoint.Reach(failpoint.FlushDropped)
	return struct{}{}, nil
}

// unmount ends the file system's use. An idle one stays clean: what the
// unmount itself writes is not worth a snapshot.
func (s *server) unmount(ctx context.Context, _ struct{}) (struct{}, error) {
	if !s.isMounted() {
		return struct{}{}, nil
	}
	synced := s.mounter.Sync(ctx, s.ns.Load(), s.place.RootFS())
	if synced != nil {
		// A disk that has failed is unmounted all the same.
		s.log.Warn("sync before unmount", "error", synced)
	}
	idle := synced == nil && s.dev.Clean()
	if err := s.unmountDisk(ctx); err != nil {
		return struct{}{}, err
	}
	if err := s.dev.Flush(); err != nil {
		return struct{}{}, fmt.Errorf("flush overlay: %w", err)
	}
	if idle {
		s.dev.Settle()
	}
	failpoint.Reach(failpoint.StopUnmounted)
	return struct{}{}, nil
}

func (s *server) unmountDisk(ctx context.Context) error {
	if !s.isMounted() {
		return nil
	}
	err := s.mounter.Unmount(ctx, s.ns.Load(), mount.UnmountRequest{Dir: s.place.RootFS(), Tag: protocol.Tag(s.cfg.Instance)})
	if err == nil {
		s.ns.Store(nil)
	}
	return err
}

// close ends the process, unmounting first. While something holds the disk it
// is errs.Conflict and the volume is served on.
func (s *server) close(ctx context.Context, _ struct{}) (struct{}, error) {
	if _, err := s.unmount(ctx, struct{}{}); err != nil {
		return struct{}{}, err
	}
	s.ended = true
	err := s.shutdown(ctx)
	close(s.closed)
	return struct{}{}, err
}

// shutdown closes everything that is open.
func (s *server) shutdown(context.Context) error { return s.parts.close() }
