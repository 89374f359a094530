package node

import (
	"context"
	"time"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/clock"
	"github.com/billethq/billet/internal/errs"
)

// untilFlush is the time between two flushes.
func (s *supervisor) untilFlush() time.Duration {
	every := s.node.projection().FlushEvery
	if every <= 0 {
		every = 5 * time.Minute // seed 002, decision 2
	}
	return clock.Jitter(every)
}

// flight is a flush under way: it runs beside the watch, which hears a fault,
// the guest's end or another wish meanwhile. A nil flight is none.
type flight struct {
	stop   context.CancelFunc
	result chan error
}

func (f *flight) done() <-chan error {
	if f == nil {
		return nil
	}
	return f.result
}

// flushIfAsked flushes when somebody wants to build on what was written until
// now.
func (s *supervisor) flushIfAsked(ctx context.Context) {
	if s.asked() {
		s.startFlush(ctx)
	}
}

// asked reports whether somebody waits for a flush.
func (s *supervisor) asked() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rec.Desired.Flush > s.served
}

// startFlush begins a flush unless one runs, which looks again when it is done.
func (s *supervisor) startFlush(ctx context.Context) {
	if s.flight != nil {
		return
	}
	d := s.desired()
	ctx, stop := context.WithCancel(ctx)
	f := &flight{stop: stop, result: make(chan error, 1)}
	s.flight = f
	go func() { f.result <- s.flush(ctx, d) }()
}

// flush makes one flush and notes whose wish it has served.
func (s *supervisor) flush(ctx context.Context, d api.DesiredInstance) error {
	if d.Flush > s.servedFlush() && d.FlushMemory {
		if err := s.saveWithMemory(ctx); err != nil {
			return err
		}
	} else if err := s.save(ctx); err != nil {
		return err
	}
	s.publish(func() { s.served = max(s.served, d.Flush) })
	return nil
}

func (s *supervisor) servedFlush() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.served
}

// awaitFlush waits for a flush under way; afterwards there is none. Its result
// is nobody's: what it has not saved, the next one does.
func (s *supervisor) awaitFlush(ctx context.Context) {
	if s.flight == nil {
		return
	}
	defer context.AfterFunc(ctx, s.flight.stop)()
	if err := <-s.flight.result; err != nil {
		s.log.Warn("flush failed", "err", err)
	}
	s.flight.stop()
	s.flight = nil
}

// cancelFlush ends a flush under way.
func (s *supervisor) cancelFlush() {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	s.awaitFlush(ctx)
}

// flushed takes the result of a flush. That it failed is reported and no reason
// to end anything; that the instance has been overtaken is.
func (s *supervisor) flushed(ctx context.Context, err error) error {
	s.flight.stop()
	s.flight = nil
	if errs.Is(err, errs.Stale) {
		return s.overtaken(ctx, err)
	}
	if err != nil {
		s.log.Warn("flush failed", "err", err)
		s.publish(func() { s.trouble = err.Error() })
		s.flushSoon()
		return nil
	}
	s.flushWait = retryMin
	s.flushes.Reset(s.untilFlush())
	s.flushIfAsked(ctx) // asked for while it ran
	return s.readStatus(ctx)
}

// flushSoon has the flush done again: the next by the timer may be far, and
// somebody may wait for it.
func (s *supervisor) flushSoon() {
	s.flushes.Reset(clock.Jitter(s.flushWait))
	s.flushWait = min(2*s.flushWait, retryMax)
}
