package node

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/clock"
	"github.com/billethq/billet/internal/driver"
	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/failpoint"
	"github.com/billethq/billet/internal/model"
)

// save makes everything written so far durable: seal, intent, upload, commit
// (storage.md, flush). It may be repeated from any point, by another process
// too. errs.Stale: the instance has been overtaken.
func (s *supervisor) save(ctx context.Context) error {
	began := clock.Start()
	clean, err := s.vol.Seal(ctx)
	if err != nil {
		return err
	}
	if !clean {
		if err := s.upload(ctx); err != nil {
			return err
		}
	}
	s.publish(func() { s.saved, s.trouble = began, "" })
	return nil
}

// upload stores what is sealed and commits it. A commit may be refused as
// stale because its intent has expired, and to fence the rightful owner for
// that would take its work from it: the next intent, which is refused when
// another epoch owns the subject, tells the two apart.
func (s *supervisor) upload(ctx context.Context) error {
	refused, err := s.tryUpload(ctx)
	if refused {
		refused, err = s.tryUpload(ctx)
	}
	if refused {
		return errs.Wrap(errs.Conflict, err, "commit what is stored")
	}
	return err
}

// tryUpload does one upload and its commit, unless an earlier one has been
// committed already and only the answer was lost. refused: the commit was
// refused as stale.
func (s *supervisor) tryUpload(ctx context.Context) (refused bool, err error) {
	if err := s.readStatus(ctx); err != nil {
		return false, err
	}
	st := s.volumeStatus()
	d, base, pending := s.desired(), st.Root, st.Pending
	intent, err := s.node.cfg.Plane.BeginFlush(ctx, api.BeginFlushRequest{Node: s.node.id, Instance: d.ID, Epoch: d.Epoch, Base: base, Pending: pending})
	if err != nil {
		return false, err
	}
	if intent.Committed {
		return false, s.vol.Committed(ctx, pending)
	}
	failpoint.Reach(failpoint.FlushIntent)
	up, err := s.vol.Upload(ctx, Upload{Intent: intent.Intent, Epoch: d.Epoch, Seq: intent.Seq, Started: intent.Started})
	if err != nil {
		return false, err
	}
	failpoint.Reach(failpoint.FlushUncommitted)
	_, err = s.node.cfg.Plane.CommitFlush(ctx, api.CommitFlushRequest{
		Node: s.node.id, Instance: d.ID, Epoch: d.Epoch, Intent: intent.Intent, Base: base, Root: up.Root, Seq: intent.Seq,
		Consistency: up.Consistency, StoredBytes: up.StoredBytes, WrittenBytes: up.WrittenBytes,
	})
	if err != nil {
		return errs.Is(err, errs.Stale), err
	}
	return false, s.vol.Committed(ctx, up.Root)
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
	s.awaitFlush(ctx)
	switch {
	case !s.written():
		// Nor is it opened: a disk that could not be is why the guest never
		// came up, and would be tried for ever.
		s.vol = nil
		if err := s.node.cfg.Volumes.Clear(ctx, s.volumeDir()); err != nil {
			return err
		}
	case s.vol != nil || s.node.cfg.Volumes.Exists(s.volumeDir()):
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

// written reports whether a guest may have written to the disk: one has been
// started on it, in this life of the volume or an earlier one.
func (s *supervisor) written() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rec.MountNS != "" || s.rec.Started || s.rec.Lost > 0
}

// end records that the instance is over.
func (s *supervisor) end(exit driver.Exit) error {
	err := s.update(func() {
		s.rec.Ended, s.rec.Cause, s.rec.Detail = true, exit.Cause, exit.Detail
		s.state, s.trouble = model.StateEnded, ""
	})
	s.log.Info("instance ended", "cause", exit.Cause)
	return err
}

// endGuest proves the guest gone.
func (s *supervisor) endGuest(ctx context.Context, grace time.Duration) error {
	s.stopWaiting()
	if !s.guest.TryLock() { // a flush has it paused, and gives up
		s.flight.stop()
		s.guest.Lock()
	}
	defer s.guest.Unlock()
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
	if err := s.saveAll(ctx); err != nil {
		return s.volumeTrouble(ctx, err)
	}
	if err := s.vol.Close(ctx); err != nil {
		return s.volumeTrouble(ctx, err)
	}
	s.vol = nil
	return nil
}

// lastFlushes bounds the flushes in a row of a disk that nobody writes any
// more: one for what was sealed already, one for the rest, one for luck.
const lastFlushes = 3

// saveAll flushes until nothing is unsaved.
func (s *supervisor) saveAll(ctx context.Context) error {
	for range lastFlushes {
		if err := s.save(ctx); err != nil {
			return err
		}
		if err := s.readStatus(ctx); err != nil {
			return err
		}
		if st := s.volumeStatus(); st.UnsavedBytes == 0 && !st.Sealed {
			return nil
		}
	}
	return errs.New(errs.Internal, "%d bytes are still unsaved after %d flushes of an unmounted disk", s.volumeStatus().UnsavedBytes, lastFlushes)
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
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return errs.Wrap(errs.Internal, err, "create the instance's directory")
	}
	// Kept first: a node that dies now must not run the instance again, on an
	// empty overlay, because the refusal died with it.
	err := s.update(func() {
		s.state, s.rec.Cause, s.rec.Detail = model.StateStopping, model.CauseFenced, detailFenced
		if s.rec.Aside == "" {
			s.rec.Aside = filepath.Base(freeName(s.asidePath(string(s.id))))
		}
	})
	if err != nil {
		s.log.Warn("cause not kept", "cause", model.CauseFenced, "err", err)
	}
	if err := s.drop(ctx); err != nil {
		return err
	}
	kept, err := s.keepAside()
	if err != nil {
		return err
	}
	return s.end(driver.Exit{Cause: model.CauseFenced, Detail: detailFenced + "; " + kept})
}

// detailFenced begins what is said of a fenced instance.
const detailFenced = "overtaken by a higher epoch"

func (s *supervisor) asidePath(name string) string {
	return filepath.Join(s.node.cfg.Dir, "aside", name)
}

// keepAside moves the overlay, which an earlier try may have done, and says
// where it lies.
func (s *supervisor) keepAside() (where string, err error) {
	s.mu.Lock()
	aside := s.asidePath(s.rec.Aside)
	s.mu.Unlock()
	if s.node.cfg.Volumes.Exists(s.volumeDir()) {
		if err := os.Rename(s.volumeDir(), aside); err != nil {
			return "", errs.Wrap(errs.Internal, err, "keep the overlay aside")
		}
	}
	if _, err := os.Lstat(aside); err != nil {
		return "it had no overlay", nil
	}
	return "its overlay is in " + aside, nil
}

// freeName is path, or path with a number where something is kept already:
// neither overlay may replace the other, nor keep the instance from ending.
func freeName(path string) string {
	free := path
	for n := 2; ; n++ {
		if _, err := os.Lstat(free); err != nil {
			return free
		}
		free = path + "." + strconv.Itoa(n)
	}
}

// drop ends the guest and the volume process without saving.
func (s *supervisor) drop(ctx context.Context) error {
	if err := os.MkdirAll(s.ref().Dir, 0o700); err != nil {
		return errs.Wrap(errs.Internal, err, "create the instance's directory")
	}
	if err := s.endGuest(ctx, 0); err != nil {
		return err
	}
	s.cancelFlush()
	s.vol = nil
	return s.node.cfg.Volumes.Clear(ctx, s.volumeDir())
}

// destroy ends the instance without saving. What is left locally is removed
// only when control knows that the compute is gone: until then the record is
// the report.
func (s *supervisor) destroy(ctx context.Context) error {
	s.mu.Lock()
	ended, released := s.rec.Ended, s.released
	exit := driver.Exit{Cause: s.rec.Cause, Detail: s.rec.Detail}
	s.mu.Unlock()
	if !ended {
		if exit.Cause == model.CauseNone {
			exit = driver.Exit{Cause: model.CauseStopped}
		}
		s.publish(func() { s.state = model.StateStopping })
		if err := s.drop(ctx); err != nil {
			return err
		}
		return s.end(exit)
	}
	if !released {
		s.await(ctx)
		return nil
	}
	if err := s.drop(ctx); err != nil {
		return err
	}
	// The record last: without it nobody would remove the rest.
	for _, dir := range []string{s.volumeDir(), s.memoryDir(), s.sideDir(), s.ref().Dir, s.guestBinary(), s.dir} {
		if err := os.RemoveAll(dir); err != nil {
			return errs.Wrap(errs.Internal, err, "remove the instance's directory")
		}
	}
	failpoint.Reach(failpoint.StopCleaned)
	s.removed = true
	return nil
}
