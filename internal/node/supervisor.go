package node

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/clock"
	"github.com/billethq/billet/internal/driver"
	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/guest/agentlink"
	"github.com/billethq/billet/internal/model"
)

// Back-off of a step that is tried until it works.
const (
	retryMin = 200 * time.Millisecond
	retryMax = 20 * time.Second
)

// supervisor walks one instance towards what is desired of it. Its goroutine
// is the only one that acts; the others read what it publishes.
type supervisor struct {
	node *Node
	id   model.InstanceID
	dir  string
	log  interface {
		Info(string, ...any)
		Warn(string, ...any)
		Error(string, ...any)
	}
	changed chan struct{} // capacity 1: desired has changed
	removed bool          // set before run returns: nothing of it is left

	// Owned by run's goroutine.
	vol       Volume
	early     *early // the guest's start, while its disk is mounted
	waits     *guestWait
	guest     sync.Mutex    // held by a flush while it has the guest paused
	flight    *flight       // the flush under way
	flushes   *time.Timer   // while the guest is watched: the next flush
	flushWait time.Duration // back-off of a flush that failed

	keeping sync.Mutex // held while the record is written

	mu       sync.Mutex
	shown    *api.ObservedInstance // what is reported while the record is written
	rec      record
	state    model.InstanceState
	released bool // control knows that it has ended: it may be removed
	status   VolumeStatus
	saved    *clock.Stopwatch // runs since everything written before is durable; nil: unknown
	served   uint64           // the newest wish for a flush that was met
	trouble  string           // why the newest flush or step failed
	link     *agentlink.Link
}

func newSupervisor(n *Node, r record) *supervisor {
	s := &supervisor{
		node: n, id: r.Desired.ID, dir: filepath.Join(n.cfg.Dir, "instances", string(r.Desired.ID)), changed: make(chan struct{}, 1),
		rec: r, state: model.StateStarting, flushWait: retryMin,
		log: n.cfg.Log.With("instance", r.Desired.ID, "epoch", r.Desired.Epoch),
	}
	switch {
	case r.Ended:
		s.state = model.StateEnded
	case s.lastPhase() == phaseAttached && r.BootID == n.bootID && r.Cause == model.CauseNone:
		// It ran when it was last looked at, and nothing says otherwise yet: a
		// restart of the node is no restart of the guest, and who follows a
		// command in it will find it again.
		s.state = model.StateRunning
	}
	return s
}

// tell gives the supervisor its part of an answer.
func (s *supervisor) tell(d api.DesiredInstance) {
	s.mu.Lock()
	old := s.rec.Desired
	released := d.Subject == ""
	if released { // remains: control has no live record, and says only what should become of it
		wanted := d.Desired
		d = old
		d.Desired = wanted
	}
	same := old == d && s.released == released
	s.rec.Desired, s.released = d, released
	s.mu.Unlock()
	if same {
		return
	}
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

func (s *supervisor) desired() api.DesiredInstance {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rec.Desired
}

func (s *supervisor) epoch() model.Epoch { return s.desired().Epoch }

func (s *supervisor) ref() driver.Ref {
	return driver.Ref{ID: s.id, Dir: filepath.Join(s.dir, "driver")}
}

func (s *supervisor) sideDir() string   { return filepath.Join(s.dir, "side") }
func (s *supervisor) volumeDir() string { return filepath.Join(s.dir, "volume") }
func (s *supervisor) memoryDir() string { return filepath.Join(s.dir, "memory") }

// guestBinary is the guest agent that this instance runs, as long as it lives:
// an upgrade of billet must not change a program under its process, neither
// while it runs nor while it sleeps.
func (s *supervisor) guestBinary() string { return filepath.Join(s.dir, guestFile) }

const guestFile = "billet-guest"

// prepare makes the instance's directory and its record.
func (s *supervisor) prepare() error {
	for _, d := range []string{s.ref().Dir, s.sideDir(), s.volumeDir()} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return errs.Wrap(errs.Internal, err, "create the instance's directory")
		}
	}
	if s.observedPhase(phaseAccepted) {
		return nil
	}
	if err := s.update(func() {}); err != nil {
		return err
	}
	s.reach(phaseAccepted, model.StateStarting)
	return nil
}

// run acts until the instance is removed or ctx ends. Each round reads what is
// desired and does one thing about it; what fails is tried again, later and
// later, and said in the report.
func (s *supervisor) run(ctx context.Context) {
	defer s.letGo()
	wait := retryMin
	for ctx.Err() == nil {
		err := s.round(ctx)
		if s.removed || ctx.Err() != nil {
			return
		}
		if err == nil {
			wait = retryMin
			continue
		}
		s.log.Warn("step failed, trying again", "desired", s.desired().Desired, "err", err)
		s.publish(func() { s.trouble = err.Error() })
		timer := time.NewTimer(clock.Jitter(wait))
		select {
		case <-timer.C:
		case <-s.changed:
		case <-ctx.Done():
		}
		timer.Stop()
		wait = min(2*wait, retryMax)
	}
}

// round does the next thing that is desired, and blocks while there is nothing.
func (s *supervisor) round(ctx context.Context) error {
	s.mu.Lock()
	d, ended := s.rec.Desired, s.rec.Ended
	ending := driver.Exit{Cause: s.rec.Cause, Detail: s.rec.Detail}
	s.mu.Unlock()
	switch {
	case d.Desired == model.InstanceDestroy:
		return s.destroy(ctx)
	case ended: // until it is told that it may be removed
	case d.Desired == model.InstanceFence || ending.Cause == model.CauseFenced:
		return s.fence(ctx)
	case ending.Cause != model.CauseNone:
		return s.finish(ctx, ending) // on its way down already, and for this cause
	case d.Desired == model.InstanceStop:
		return s.stop(ctx)
	case d.Desired == model.InstanceHibernate:
		return s.hibernate(ctx)
	case d.Desired == model.InstanceRun:
		return s.keepRunning(ctx)
	}
	s.await(ctx)
	return nil
}

// await blocks until something else is desired.
func (s *supervisor) await(ctx context.Context) {
	select {
	case <-s.changed:
	case <-ctx.Done():
	}
}

// letGo drops what this process holds of the instance. Guest and volume run on.
func (s *supervisor) letGo() {
	s.stopWaiting()
	s.cancelFlush()
	s.mu.Lock()
	link := s.link
	s.link = nil
	s.mu.Unlock()
	if link != nil {
		_ = link.Close()
	}
}

// openAgent opens a stream to the guest agent.
func (s *supervisor) openAgent(ctx context.Context) (net.Conn, error) {
	s.mu.Lock()
	link, st := s.link, s.state
	s.mu.Unlock()
	if link == nil || st != model.StateRunning {
		return nil, errs.New(errs.Unavailable, "the guest of instance %s (%s) cannot be reached yet", s.id, st).WithHint("try again in a moment")
	}
	return link.Open(ctx)
}
