package node

import (
	"context"

	"github.com/billethq/billet/internal/driver"
	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/model"
)

// maxLost volume processes may die under one instance: after that something
// kills them all, and going on would only loop.
const maxLost = 3

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
	for _, f := range s.volumeStatus().Faults {
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
	s.cancelFlush()
	s.vol = nil
	if err := s.node.cfg.Volumes.Clear(ctx, s.volumeDir()); err != nil {
		return err
	}
	return s.note(func() {
		s.rec.Started, s.rec.MountNS, s.rec.Paused, s.rec.Restored = false, "", false, false
		s.rec.Lost++
	})
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
