package node

import (
	"context"
	"errors"
	"path/filepath"
	"time"

	"github.com/billethq/billet/internal/clock"
	"github.com/billethq/billet/internal/driver"
	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/failpoint"
	"github.com/billethq/billet/internal/guest/agentlink"
	"github.com/billethq/billet/internal/model"
)

const (
	// attachTimeout bounds the wait for the agent's first call. It moves
	// nothing that works: a guest that cannot reach its node is no guest.
	attachTimeout = 60 * time.Second
	// statusEvery is how stale the report of unsaved bytes may be.
	statusEvery = 2 * time.Second
	// maxLost volume processes may die under one instance: after that
	// something kills them all, and going on would only loop.
	maxLost = 3
)

// keepRunning brings the guest up and watches it, until something else is
// desired or it has ended.
func (s *supervisor) keepRunning(ctx context.Context) error {
	if err := s.prepare(); err != nil {
		return err
	}
	if s.lostTooOften() {
		return s.finish(ctx, driver.Exit{Cause: model.CauseVolumeLost, Detail: "the volume process died again and again"})
	}
	if s.losing() {
		return s.volumeLost(ctx) // an earlier node died while it did that
	}
	if err := s.openVolume(ctx); err != nil {
		return s.startFailed(ctx, "volume", err)
	}
	if s.otherVolume() {
		return s.volumeLost(ctx) // its process died while no node was there
	}
	if err := s.listen(); err != nil {
		return err
	}
	up, err := s.ensureGuest(ctx)
	if err != nil {
		return s.startFailed(ctx, "guest", err)
	}
	if !up {
		return nil // it had ended: finish has been done
	}
	return s.watch(ctx)
}

func (s *supervisor) lostTooOften() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rec.Lost > maxLost
}

// losing reports a volumeLost that has not come to its end.
func (s *supervisor) losing() bool {
	lost := s.lastPhase() == phaseLost
	s.mu.Lock()
	defer s.mu.Unlock()
	return lost && s.rec.Started
}

// startedIn is the mount namespace in which a guest may be up, "" when none
// can be: none was started, or the host has booted since.
func (s *supervisor) startedIn() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rec.BootID != s.node.bootID {
		return ""
	}
	return s.rec.MountNS
}

// otherVolume reports that the volume is not the one the guest was started on:
// what runs, runs on a dead disk, and what ended may have ended for that.
func (s *supervisor) otherVolume() bool {
	_, ns := s.vol.Mount()
	in := s.startedIn()
	return in != "" && in != ns
}

// openVolume adopts or starts the volume process.
func (s *supervisor) openVolume(ctx context.Context) error {
	if s.vol != nil {
		return nil
	}
	d := s.desired()
	vol, err := s.node.cfg.Volumes.Open(ctx, VolumeSpec{
		Dir: s.volumeDir(), Instance: d.ID, Subject: d.Subject, Tenant: d.Tenant, Epoch: d.Epoch,
		Root: d.Root, Size: d.Shape.Disk, Keys: s.node.projection().DomainKeys,
	})
	if err != nil {
		return err
	}
	s.vol = vol
	if err := s.readStatus(ctx); err != nil {
		s.vol = nil
		return err
	}
	if !s.observedPhase(phaseVolume) {
		s.reach(phaseVolume, model.StateStarting)
	}
	return nil
}

func (s *supervisor) readStatus(ctx context.Context) error {
	st, err := s.vol.Status(ctx)
	if err != nil {
		return err
	}
	s.mu.Lock()
	moved := s.status.Root != st.Root || s.status.UnsavedBytes != st.UnsavedBytes || len(s.status.Faults) != len(st.Faults)
	if len(s.status.Faults) != len(st.Faults) {
		s.rec.Detail = st.Faults[len(st.Faults)-1].Detail
		s.log.Error("volume fault", "faults", st.Faults)
	}
	s.status = st
	s.mu.Unlock()
	if moved {
		s.node.poke()
	}
	return nil
}

// listen makes the agent's socket. It comes before the guest, which dials it
// as soon as it is up.
func (s *supervisor) listen() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.link != nil {
		return nil
	}
	link, err := agentlink.Listen(filepath.Join(s.dir, "side"), s.node.cfg.Log)
	if err != nil {
		return err
	}
	s.link = link
	return nil
}

// ensureGuest starts the guest or adopts the one that runs. A guest that was
// up and is gone has ended while nobody looked; it is never started again
// into the same end. One whose start this node never saw succeed is started
// once more, which leaves alone what runs.
func (s *supervisor) ensureGuest(ctx context.Context) (up bool, err error) {
	st, err := s.node.cfg.Driver.Inspect(ctx, s.ref())
	if err != nil { // unknown is never absent: what may run is not ended for this
		return false, errs.Wrap(errs.Unavailable, err, "look for the guest")
	}
	s.mu.Lock()
	started, boot := s.rec.Started, s.rec.BootID
	s.mu.Unlock()
	switch {
	case st.State == driver.Running && started:
		return true, nil
	case boot != s.node.bootID:
		return false, s.finish(ctx, driver.Exit{Cause: model.CauseHostRebooted, Detail: "the host has booted anew"})
	case started:
		exit := st.Exit
		if st.State == driver.Absent || exit.Cause == model.CauseNone {
			exit = driver.Exit{Cause: model.CauseKilled, Detail: "the sandbox is gone and left no trace of its end"}
		}
		return false, s.finish(ctx, exit)
	default:
		if err := s.startGuest(ctx, st.State); err != nil {
			return false, err
		}
	}
	return true, s.note(func() { s.rec.Started = true })
}

func (s *supervisor) startGuest(ctx context.Context, found driver.State) error {
	if found == driver.Exited {
		if err := s.node.cfg.Driver.Delete(ctx, s.ref()); err != nil {
			return err
		}
	}
	d := s.desired()
	rootfs, ns := s.vol.Mount()
	// For good: it says after a power cut that there may be something to save.
	if err := s.update(func() { s.rec.MountNS = ns }); err != nil {
		return err
	}
	err := s.node.cfg.Driver.Start(ctx, driver.Spec{
		Ref: s.ref(), RootFS: rootfs, MountNS: ns, SideDir: s.sideDir(), GuestBinary: s.node.cfg.GuestBinary,
		Hostname: d.Name, Shape: d.Shape,
		Labels: map[string]string{"billet.instance": string(d.ID), "billet.subject": string(d.Subject)},
	})
	if err != nil {
		return err
	}
	failpoint.Reach(failpoint.CreateGuest)
	s.reach(phaseGuest, model.StateStarting)
	return nil
}

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
// guest's end, a fault of the volume, the time of a flush.
func (s *supervisor) watch(ctx context.Context) error {
	w := s.startWaiting(ctx)
	attached := s.link.Attached()
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
			deadline.Stop()
			failpoint.Reach(failpoint.CreateAttached)
			s.up()
			if err := s.flushIfAsked(ctx); err != nil {
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
			if err := s.flushIfAsked(ctx); err != nil {
				return err
			}
		case <-status.C:
			if err := s.readStatus(ctx); err != nil {
				s.log.Warn("volume status", "err", err)
			}
			if f := s.grave(); f != nil {
				return s.faulted(ctx, *f)
			}
		case <-s.flushes.C:
			if err := s.flushNow(ctx); err != nil {
				return err
			}
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
	for _, f := range s.status.Faults {
		if f.Kind != FaultCorrupt {
			return &f
		}
	}
	return nil
}

// up publishes that the guest can be entered; why that took several tries is
// history.
func (s *supervisor) up() {
	s.publish(func() {
		s.flush = ""
		if len(s.status.Faults) == 0 {
			s.rec.Detail = ""
		}
	})
	if s.lastPhase() == phaseAttached { // an adopted guest, or an agent that dialled again
		s.publish(func() { s.state = model.StateRunning })
		return
	}
	s.reach(phaseAttached, model.StateRunning)
}

// untilFlush is the time between two flushes.
func (s *supervisor) untilFlush() time.Duration {
	every := s.node.projection().FlushEvery
	if every <= 0 {
		every = 5 * time.Minute // seed 002, decision 2
	}
	return clock.Jitter(every)
}

// flushIfAsked flushes when somebody wants to build on what was written until
// now.
func (s *supervisor) flushIfAsked(ctx context.Context) error {
	if !s.asked() {
		return nil
	}
	return s.flushNow(ctx)
}

// asked reports whether somebody waits for a flush.
func (s *supervisor) asked() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.rec.Desired.FlushAfter.IsZero() && s.saved.Before(s.rec.Desired.FlushAfter)
}

// flushNow makes one flush. That it failed is reported and no reason to end
// anything; that the instance has been overtaken is.
func (s *supervisor) flushNow(ctx context.Context) error {
	err := s.save(ctx)
	if errs.Is(err, errs.Stale) {
		return s.overtaken(ctx, err)
	}
	if err != nil {
		s.log.Warn("flush failed", "err", err)
		s.publish(func() { s.flush = err.Error() })
		s.flushSoon()
		return nil
	}
	if s.asked() { // asked by a clock that is ahead of ours
		s.flushSoon()
	} else {
		s.flushWait = retryMin
		s.flushes.Reset(s.untilFlush())
	}
	return s.readStatus(ctx)
}

// flushSoon has the flush done again: the next by the timer may be far, and
// somebody may wait for it.
func (s *supervisor) flushSoon() {
	s.flushes.Reset(clock.Jitter(s.flushWait))
	s.flushWait = min(2*s.flushWait, retryMax)
}

// guestEnded decides whether the guest ended by itself or because its disk
// went away under it.
func (s *supervisor) guestEnded(ctx context.Context, exit driver.Exit) error {
	if _, err := s.vol.Status(ctx); err != nil {
		if ctx.Err() != nil {
			return nil // the node ends: that says nothing of the volume
		}
		return s.volumeLost(ctx)
	}
	return s.finish(ctx, exit)
}

// faulted acts on a fault of the volume. A guest is never left on a disk that
// has become read-only (storage.md, front-ends).
func (s *supervisor) faulted(ctx context.Context, f Fault) error {
	s.log.Error("volume fault", "kind", f.Kind, "detail", f.Detail)
	switch f.Kind {
	case FaultGone:
		return s.volumeLost(ctx)
	case FaultDiskFull:
		return s.finish(ctx, driver.Exit{Cause: model.CauseDiskFull, Detail: f.Detail})
	case FaultCorrupt, FaultReadOnly:
	}
	return s.finish(ctx, driver.Exit{Cause: s.readOnlyCause(), Detail: f.Detail})
}

// readOnlyCause says why a file system went read-only: by what came before it.
func (s *supervisor) readOnlyCause() model.Cause {
	for _, f := range s.status.Faults {
		if f.Kind == FaultDiskFull {
			return model.CauseDiskFull
		}
	}
	return model.CauseVolumeCorrupt
}

// volumeLost ends the guest at once and has the overlay opened again: the
// next round starts the guest cold, under the same epoch.
func (s *supervisor) volumeLost(ctx context.Context) error {
	if s.lastPhase() != phaseLost {
		s.reach(phaseLost, model.StateStarting)
	}
	if err := s.endGuest(ctx, 0); err != nil {
		return err
	}
	s.vol = nil
	if err := s.node.cfg.Volumes.Clear(ctx, s.volumeDir()); err != nil {
		return err
	}
	return s.note(func() {
		s.rec.Started, s.rec.MountNS = false, ""
		s.rec.Lost++
	})
}

// startFailed tells a step that may yet work from one that never will.
func (s *supervisor) startFailed(ctx context.Context, step string, err error) error {
	switch {
	case ctx.Err() != nil:
		return nil
	case errors.Is(err, ErrDamaged):
		return s.finish(ctx, driver.Exit{Cause: model.CauseVolumeCorrupt, Detail: err.Error()})
	case s.volumeDied(ctx, err):
		return s.volumeLost(ctx)
	case errs.Is(err, errs.Unavailable):
		s.publish(func() { s.rec.Detail = step + ": " + err.Error() })
		return err
	}
	return s.finish(ctx, driver.Exit{Cause: model.CauseStartFailed, Detail: step + ": " + err.Error()})
}

// volumeDied reports whether a step of the way up failed because the volume
// process died: after it was opened, or under a guest that an earlier node
// started, which keeps another from being started.
func (s *supervisor) volumeDied(ctx context.Context, err error) bool {
	if s.vol != nil {
		_, serr := s.vol.Status(ctx)
		return serr != nil && ctx.Err() == nil
	}
	return s.startedIn() != "" && !errs.Is(err, errs.Unavailable)
}
