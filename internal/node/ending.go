package node

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/driver"
	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/failpoint"
	"github.com/billethq/billet/internal/model"
)

// save makes everything written so far durable: seal, intent, upload, commit
// (storage.md, flush). It may be repeated from any point, by another process
// too. errs.Stale: the instance has been overtaken.
func (s *supervisor) save(ctx context.Context) error {
	began := s.node.cfg.Clock.Now()
	clean, err := s.vol.Seal(ctx)
	if err != nil {
		return err
	}
	if !clean {
		if err := s.upload(ctx); err != nil {
			return err
		}
	}
	s.publish(func() { s.saved, s.flush = began, "" })
	return nil
}

// upload stores what is sealed and commits it, unless an earlier try has been
// committed already and only the answer was lost.
func (s *supervisor) upload(ctx context.Context) error {
	if err := s.readStatus(ctx); err != nil {
		return err
	}
	d, base, pending := s.desired(), s.status.Root, s.status.Pending
	intent, err := s.node.cfg.Plane.BeginFlush(ctx, api.BeginFlushRequest{Node: s.node.id, Instance: d.ID, Epoch: d.Epoch, Base: base, Pending: pending})
	if err != nil {
		return err
	}
	if intent.Committed {
		return s.vol.Committed(ctx, pending)
	}
	failpoint.Reach(failpoint.FlushIntent)
	up, err := s.vol.Upload(ctx, Upload{Intent: intent.Intent, Epoch: d.Epoch, Seq: intent.Seq, Started: intent.Started})
	if err != nil {
		return err
	}
	failpoint.Reach(failpoint.FlushUncommitted)
	_, err = s.node.cfg.Plane.CommitFlush(ctx, api.CommitFlushRequest{
		Node: s.node.id, Instance: d.ID, Epoch: d.Epoch, Intent: intent.Intent, Base: base, Root: up.Root, Seq: intent.Seq,
		Consistency: up.Consistency, StoredBytes: up.StoredBytes, WrittenBytes: up.WrittenBytes,
	})
	if err != nil {
		return err
	}
	return s.vol.Committed(ctx, up.Root)
}

// finish ends an instance that ended by itself, for a cause: its disk is saved
// first, and it is not started again.
func (s *supervisor) finish(ctx context.Context, exit driver.Exit) error {
	s.log.Warn("guest ended", "cause", exit.Cause, "detail", exit.Detail)
	// Kept before anything is torn down: after a restart of the node the
	// evidence is gone. A disk too full for that is no reason to leave the
	// guest on it.
	if err := s.update(func() { s.rec.Cause, s.rec.Detail = exit.Cause, exit.Detail }); err != nil {
		s.log.Warn("cause not kept", "cause", exit.Cause, "err", err)
	}
	return s.wind(ctx, 0, exit)
}

// stop ends the guest because it is wanted, and saves the disk.
func (s *supervisor) stop(ctx context.Context) error {
	return s.wind(ctx, s.node.projection().StopGrace, driver.Exit{Cause: model.CauseStopped})
}

// wind is the one way down that keeps the disk: guest, mount, last flush,
// volume process, record. Every step may be repeated.
func (s *supervisor) wind(ctx context.Context, grace time.Duration, exit driver.Exit) error {
	if err := os.MkdirAll(s.ref().Dir, 0o700); err != nil {
		return errs.Wrap(errs.Internal, err, "create the instance's directory")
	}
	s.publish(func() { s.state = model.StateStopping })
	if err := s.endGuest(ctx, grace); err != nil {
		return err
	}
	failpoint.Reach(failpoint.StopGuestEnded)
	if s.vol != nil || s.node.cfg.Volumes.Exists(s.volumeDir()) {
		if err := s.saveLast(ctx); err != nil {
			if errs.Is(err, errs.Stale) {
				return s.overtaken(ctx, err)
			}
			return err
		}
	}
	failpoint.Reach(failpoint.StopSaved)
	return s.end(exit)
}

// end records that the instance is over.
func (s *supervisor) end(exit driver.Exit) error {
	err := s.update(func() {
		s.rec.Ended, s.rec.Cause, s.rec.Detail = true, exit.Cause, exit.Detail
		s.state, s.flush = model.StateEnded, ""
	})
	s.log.Info("instance ended", "cause", exit.Cause)
	return err
}

// endGuest proves the guest gone.
func (s *supervisor) endGuest(ctx context.Context, grace time.Duration) error {
	s.stopWaiting()
	if err := s.node.cfg.Driver.Stop(ctx, s.ref(), grace); err != nil {
		return err
	}
	if err := s.node.cfg.Driver.Delete(ctx, s.ref()); err != nil {
		return err
	}
	s.mu.Lock()
	link := s.link
	s.link = nil
	s.mu.Unlock()
	if link != nil {
		_ = link.Close()
	}
	return nil
}

// saveLast unmounts, flushes until nothing is unsaved, and ends the process.
func (s *supervisor) saveLast(ctx context.Context) error {
	if s.vol == nil {
		if err := s.openVolume(ctx); err != nil {
			return err
		}
		s.publish(func() { s.state = model.StateStopping })
	}
	if err := s.vol.Unmount(ctx); err != nil {
		return s.volumeTrouble(ctx, err)
	}
	for {
		if err := s.save(ctx); err != nil {
			return s.volumeTrouble(ctx, err)
		}
		if err := s.readStatus(ctx); err != nil {
			return s.volumeTrouble(ctx, err)
		}
		if s.status.UnsavedBytes == 0 && !s.status.Sealed {
			break
		}
	}
	if err := s.vol.Close(ctx); err != nil {
		return s.volumeTrouble(ctx, err)
	}
	s.vol = nil
	return nil
}

// volumeTrouble lets go of a volume process that no longer answers, so that
// the next try opens the overlay anew.
func (s *supervisor) volumeTrouble(ctx context.Context, err error) error {
	if ctx.Err() != nil || errs.Is(err, errs.Stale) {
		return err
	}
	if _, serr := s.vol.Status(ctx); serr != nil {
		s.vol = nil
		if cerr := s.node.cfg.Volumes.Clear(ctx, s.volumeDir()); cerr != nil {
			return cerr
		}
	}
	return err
}

// overtaken obeys a refusal as stale: another epoch owns the subject.
func (s *supervisor) overtaken(ctx context.Context, err error) error {
	s.log.Error("overtaken: the guest ends and its overlay is kept aside", "err", err)
	return s.fence(ctx)
}

// fence ends the guest and keeps its overlay aside, for a person to look at.
func (s *supervisor) fence(ctx context.Context) error {
	if err := s.drop(ctx); err != nil {
		return err
	}
	aside := filepath.Join(s.node.cfg.Dir, "aside", string(s.desired().ID))
	if s.node.cfg.Volumes.Exists(s.volumeDir()) {
		if err := os.Rename(s.volumeDir(), aside); err != nil {
			return errs.Wrap(errs.Internal, err, "keep the overlay aside")
		}
	}
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return errs.Wrap(errs.Internal, err, "create the instance's directory")
	}
	return s.end(driver.Exit{Cause: model.CauseFenced, Detail: "overtaken by a higher epoch; its overlay is in " + aside})
}

// drop ends the guest and the volume process without saving.
func (s *supervisor) drop(ctx context.Context) error {
	if err := os.MkdirAll(s.ref().Dir, 0o700); err != nil {
		return errs.Wrap(errs.Internal, err, "create the instance's directory")
	}
	if err := s.endGuest(ctx, 0); err != nil {
		return err
	}
	s.vol = nil
	return s.node.cfg.Volumes.Clear(ctx, s.volumeDir())
}

// destroy ends the instance without saving. What is left locally is removed
// only when control knows that the compute is gone: until then the record is
// the report.
func (s *supervisor) destroy(ctx context.Context) error {
	s.mu.Lock()
	ended, released := s.rec.Ended, s.released
	s.mu.Unlock()
	if !ended {
		if err := s.drop(ctx); err != nil {
			return err
		}
		return s.end(driver.Exit{Cause: model.CauseStopped})
	}
	if !released {
		s.await(ctx)
		return nil
	}
	if err := s.drop(ctx); err != nil {
		return err
	}
	if err := os.RemoveAll(s.dir); err != nil {
		return errs.Wrap(errs.Internal, err, "remove the instance's directory")
	}
	failpoint.Reach(failpoint.StopCleaned)
	s.removed = true
	return nil
}
