package node

import (
	"context"
	"time"

	"github.com/billethq/billet/internal/clock"
	"github.com/billethq/billet/internal/driver"
	"github.com/billethq/billet/internal/failpoint"
	"github.com/billethq/billet/internal/model"
)

// guestWait watches a guest and its volume from goroutines of their own.
type guestWait struct {
	stop  context.CancelFunc
	exit  chan driver.Exit
	fault chan Fault
	done  chan struct{}
}

func (s *supervisor) startWaiting(ctx context.Context) *guestWait {
	if s.waits != nil {
		return s.waits
	}
	ctx, stop := context.WithCancel(ctx)
	w := &guestWait{stop: stop, exit: make(chan driver.Exit, 1), fault: make(chan Fault, 1), done: make(chan struct{})}
	s.waits = w
	vol, ref := s.vol, s.ref()
	exitDone := make(chan struct{})
	go func() {
		defer close(exitDone)
		waitFor(ctx, w.exit, func() (driver.Exit, error) { return s.node.cfg.Driver.Wait(ctx, ref) })
	}()
	go func() {
		defer close(w.done)
		waitFor(ctx, w.fault, func() (Fault, error) { return vol.Fault(ctx) })
		<-exitDone
	}()
	return w
}

// waitFor delivers the first result of fn, trying again while it fails.
func waitFor[T any](ctx context.Context, out chan<- T, fn func() (T, error)) {
	for ctx.Err() == nil {
		v, err := fn()
		if err == nil {
			out <- v
			return
		}
		if clock.Sleep(ctx, clock.Jitter(retryMin)) != nil {
			return
		}
	}
}

func (s *supervisor) stopWaiting() {
	if s.waits == nil {
		return
	}
	s.waits.stop()
	<-s.waits.done
	s.waits = nil
}

// watch waits for the agent, then for whatever comes first: another wish, the
// guest's end, a fault of the volume, the time of a flush, the end of one. A
// flush that runs when it returns is whoever's who needs the volume next.
func (s *supervisor) watch(ctx context.Context) error {
	w := s.startWaiting(ctx)
	attached := s.link.Attached()
	greeted := make(chan string, 1)
	var g greeting
	defer g.end()
	deadline := time.NewTimer(s.node.attachWithin)
	defer deadline.Stop()
	if s.lastPhase() == phaseAttached {
		deadline.Stop() // adopted: it has called before, and no timer ends what works
	}
	status := time.NewTicker(statusEvery)
	defer status.Stop()
	s.flushes = time.NewTimer(s.untilFlush())
	defer s.flushes.Stop()
	for !s.over() { // a flush may find that the instance has been overtaken
		select {
		case <-ctx.Done():
			return nil
		case <-attached:
			attached = nil
			failpoint.Reach(failpoint.CreateAttached)
			s.greet(ctx, &g, greeted)
		case found := <-greeted:
			deadline.Stop()
			s.up(found)
			s.flushIfAsked(ctx)
		case err := <-s.flight.done():
			if err := s.flushed(ctx, err); err != nil {
				return err
			}
		case <-deadline.C:
			return s.finish(ctx, driver.Exit{Cause: model.CauseStartFailed, Detail: "the guest agent has not called within " + s.node.attachWithin.String()})
		case exit := <-w.exit:
			return s.guestEnded(ctx, exit)
		case f := <-w.fault:
			return s.faulted(ctx, f)
		case <-s.changed:
			if s.desired().Desired != model.InstanceRun {
				return nil
			}
			s.flushIfAsked(ctx)
		case <-status.C:
			if err := s.readStatus(ctx); err != nil {
				s.log.Warn("volume status", "err", err)
			}
			if f := s.grave(); f != nil {
				return s.faulted(ctx, *f)
			}
		case <-s.flushes.C:
			s.startFlush(ctx)
		}
	}
	return nil
}

// over reports whether the instance has ended.
func (s *supervisor) over() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rec.Ended
}

// grave returns a fault under which a guest must not go on.
func (s *supervisor) grave() *Fault {
	for _, f := range s.volumeStatus().Faults {
		if f.Kind != FaultCorrupt {
			return &f
		}
	}
	return nil
}

// up publishes that the guest can be entered; why that took several tries is
// history. found is what a restore has to say.
func (s *supervisor) up(found string) {
	s.publish(func() {
		s.trouble = ""
		if len(s.status.Faults) == 0 {
			s.rec.Detail = ""
		}
	})
	if s.lastPhase() == phaseAttached { // an adopted guest, or an agent that dialled again
		s.publish(func() { s.state = model.StateRunning })
		return
	}
	s.reachWith(phaseAttached, found, model.StateRunning)
}
