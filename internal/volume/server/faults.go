package server

import (
	"context"
	"errors"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/billethq/billet/internal/clock"
	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/volume"
	"github.com/billethq/billet/internal/volume/device"
	"github.com/billethq/billet/internal/volume/protocol"
)

// faults keeps the first fault of each kind and wakes who waits for one.
type faults struct {
	mu    sync.Mutex
	seen  []protocol.Fault
	any   chan struct{} // closed with the first fault
	close sync.Once
}

func newFaults() *faults { return &faults{any: make(chan struct{})} }

// add reports whether the fault is the first of its kind.
func (f *faults) add(fault protocol.Fault) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if slices.ContainsFunc(f.seen, func(s protocol.Fault) bool { return s.Kind == fault.Kind }) {
		return false
	}
	f.seen = append(f.seen, fault)
	f.close.Do(func() { close(f.any) })
	return true
}

func (f *faults) all() []protocol.Fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.seen)
}

// first waits for a fault, for the end of ctx or for the end of the volume.
func (f *faults) first(ctx context.Context, closed <-chan struct{}) (protocol.Fault, error) {
	select {
	case <-f.any:
		return f.all()[0], nil
	case <-ctx.Done():
		return protocol.Fault{}, context.Cause(ctx)
	case <-closed:
		return protocol.Fault{}, errs.New(errs.NotFound, "the volume was closed without a fault")
	}
}

// deviceError is called with each error of the device, before the file system
// above is given it.
func (s *server) deviceError(err error) {
	if errors.Is(err, context.Canceled) || errors.Is(err, os.ErrClosed) {
		return // the volume is closing
	}
	s.watch.hurry()
	var corrupt *volume.CorruptError
	switch {
	case device.IsFull(err):
		if !s.faults.add(protocol.Fault{Kind: protocol.FaultDiskFull, Detail: err.Error()}) {
			return // a held write is tried over and over
		}
	case errors.As(err, &corrupt):
		s.damaged.Store(corrupt)
		s.faults.add(protocol.Fault{
			Kind: protocol.FaultCorruptBlock, Detail: err.Error(), Block: corrupt.Block, Key: corrupt.Key, Root: s.dev.Root(),
		})
	}
	s.log.Error("input/output error", "error", err)
}

// The looks at the mount table: the kernel tells nobody that it has made a
// file system read-only. After an error it does so at the next commit of the
// journal, at the latest.
const (
	watchCalm  = 30 * time.Second
	watchHurry = 200 * time.Millisecond
	hurryFor   = 45 * time.Second // longer than the mount's commit interval
)

// watch looks whether the file system is still writable.
type watch struct {
	s     *server
	wake  chan struct{}
	stop  chan struct{}
	ended chan struct{}
}

func newWatch(s *server) *watch {
	w := &watch{s: s, wake: make(chan struct{}, 1), stop: make(chan struct{}), ended: make(chan struct{})}
	go w.run()
	return w
}

// hurry says that an error was given: look often for a while.
func (w *watch) hurry() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

func (w *watch) close() error {
	close(w.stop)
	<-w.ended
	return nil
}

func (w *watch) run() {
	defer close(w.ended)
	every, hurried := watchCalm, clock.Start()
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		select {
		case <-w.stop:
			return
		case <-w.wake:
			every, hurried = watchHurry, clock.Start()
			t.Reset(every)
		case <-t.C:
			if w.look() {
				return
			}
			if every == watchHurry && hurried.Elapsed() > hurryFor {
				every = watchCalm
				t.Reset(every)
			}
		}
	}
}

// look reports whether the answer is known for good.
func (w *watch) look() bool {
	ns := w.s.ns.Load()
	if ns == nil {
		return false
	}
	readOnly, err := ns.ReadOnly(w.s.place.RootFS())
	if err != nil || !readOnly {
		return false
	}
	w.s.faults.add(protocol.Fault{Kind: protocol.FaultReadOnly, Detail: "the kernel made the file system read-only after an error"})
	return true
}
