package node

import (
	"context"
	"errors"
	"path/filepath"
	"time"

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
)

// keepRunning brings the guest up and watches it, until something else is
// desired or it has ended.
func (s *supervisor) keepRunning(ctx context.Context) error {
	up, err := s.bringUp(ctx)
	if err != nil || !up {
		return err
	}
	return s.watch(ctx)
}

// bringUp starts what is missing of volume, link and guest, and adopts what is
// there. up says that the guest is; when it is not, and there is no error, what
// there was to do about that has been done.
func (s *supervisor) bringUp(ctx context.Context) (up bool, err error) {
	if err := s.prepare(); err != nil {
		return false, err
	}
	if s.lostTooOften() {
		return false, s.finish(ctx, driver.Exit{Cause: model.CauseVolumeLost, Detail: "the volume process died again and again"})
	}
	if s.losing() {
		return false, s.volumeLost(ctx) // an earlier node died while it did that
	}
	defer s.dropEarly()
	if err := s.openVolume(ctx); err != nil {
		return false, s.startFailed(ctx, "volume", err)
	}
	if s.otherVolume() {
		return false, s.volumeLost(ctx) // its process died while no node was there
	}
	if err := s.listen(); err != nil {
		return false, err
	}
	if up, err = s.ensureGuest(ctx); err != nil {
		return false, s.startFailed(ctx, "guest", err)
	}
	return up, nil
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
		Mounting: s.startEarly(ctx),
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

// volumeStatus is the newest that was read.
func (s *supervisor) volumeStatus() VolumeStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.status
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
	st, err := s.inspect(ctx)
	if err != nil { // unknown is never absent: what may run is not ended for this
		return false, errs.Wrap(errs.Unavailable, err, "look for the guest")
	}
	s.mu.Lock()
	started, boot := s.rec.Started, s.rec.BootID
	s.mu.Unlock()
	switch {
	case st.State == driver.Running && started:
		return true, s.unpause(ctx)
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

// inspect looks for the guest. Before its start began there was none.
func (s *supervisor) inspect(ctx context.Context) (driver.Status, error) {
	if s.earlyStands() {
		return driver.Status{State: driver.Absent}, nil
	}
	return s.node.cfg.Driver.Inspect(ctx, s.ref())
}

func (s *supervisor) startGuest(ctx context.Context, found driver.State) error {
	if found == driver.Exited {
		if err := s.node.cfg.Driver.Delete(ctx, s.ref()); err != nil {
			return err
		}
	}
	rootfs, ns := s.vol.Mount()
	// For good: it says after a power cut that there may be something to save.
	if err := s.update(func() { s.rec.MountNS = ns }); err != nil {
		return err
	}
	how, err := s.wake(ctx, s.guestSpec(rootfs, ns))
	if err != nil {
		return err
	}
	failpoint.Reach(failpoint.CreateGuest)
	s.reachWith(phaseGuest, how, model.StateStarting)
	return nil
}

// guestSpec describes the guest on a disk that is mounted there.
func (s *supervisor) guestSpec(rootfs, mountNS string) driver.Spec {
	d := s.desired()
	return driver.Spec{
		Ref: s.ref(), RootFS: rootfs, MountNS: mountNS, SideDir: s.sideDir(), GuestBinary: s.guestBinary(),
		Hostname: d.Name, Shape: d.Shape,
		Labels: map[string]string{"billet.instance": string(d.ID), "billet.subject": string(d.Subject)},
	}
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
