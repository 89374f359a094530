package node

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/clock"
	"github.com/billethq/billet/internal/driver"
	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/failpoint"
	"github.com/billethq/billet/internal/guest"
	"github.com/billethq/billet/internal/model"
)

const (
	// syncTimeout bounds how long a guest may write out what it holds before it
	// is paused. One that takes longer is paused all the same: what it holds is
	// in its memory image, and only a cold start would miss it.
	syncTimeout = 20 * time.Second
	// goOnTimeout bounds letting a paused guest go on: two commands of the
	// driver. It is not cut short by whoever gave up what the pause was for.
	goOnTimeout = 30 * time.Second
)

// detailHibernated is how an instance that left its memory behind says it ended.
const detailHibernated = "hibernated: its memory is in the snapshot"

// hibernator is the driver, if its guests' memory can be taken.
func (s *supervisor) hibernator() (driver.Hibernator, bool) {
	h, ok := s.node.cfg.Driver.(driver.Hibernator)
	return h, ok
}

// hibernate stores the guest's memory and disk of one instant, commits both,
// and only then ends the guest. Until the commit the guest goes on after any
// failure, and at once when it is wanted again. One that was never up, or whose
// driver takes no memory, is stopped.
func (s *supervisor) hibernate(ctx context.Context) error {
	if _, ok := s.hibernator(); !ok || s.lastPhase() != phaseAttached {
		return s.stop(ctx)
	}
	up, err := s.bringUp(ctx)
	if err != nil || !up {
		return err
	}
	over, err := s.beside(ctx, s.startWaiting(ctx), func(ctx context.Context) error {
		s.awaitFlush(ctx)
		return s.saveAsleep(ctx)
	})
	switch {
	case errs.Is(err, errs.Stale):
		return s.overtaken(ctx, err)
	case errs.Is(err, errs.Unsupported): // such as a volume process of an older release
		s.log.Warn("memory cannot be kept, stopping without", "err", err)
		return s.stop(ctx)
	case err != nil || over:
		return err
	}
	exit := driver.Exit{Cause: model.CauseStopped, Detail: detailHibernated}
	if err := s.update(func() { s.rec.Cause, s.rec.Detail = exit.Cause, exit.Detail }); err != nil {
		s.log.Warn("cause not kept", "cause", exit.Cause, "err", err)
	}
	return s.wind(ctx, 0, exit)
}

// beside runs fn and hears meanwhile what makes it pointless: another wish, the
// guest's end, a fault of the volume. over says that one of them came first;
// what there was to do about it is done, or is the next round's.
func (s *supervisor) beside(ctx context.Context, w *guestWait, fn func(context.Context) error) (over bool, err error) {
	inner, stop := context.WithCancel(ctx)
	defer stop()
	result := make(chan error, 1)
	go func() { result <- fn(inner) }()
	giveUp := func() (done bool) { stop(); return <-result == nil }
	for {
		select {
		case err := <-result:
			return false, err
		case <-ctx.Done():
			return !giveUp(), nil
		case exit := <-w.exit:
			if giveUp() {
				return false, nil // too late to matter
			}
			return true, s.guestEnded(ctx, exit)
		case f := <-w.fault:
			if giveUp() {
				return false, nil
			}
			return true, s.faulted(ctx, f)
		case <-s.changed:
			if s.desired().Desired == model.InstanceHibernate {
				continue
			}
			return !giveUp(), nil
		}
	}
}

// saveAsleep leaves the guest paused and all of it committed, or, with an error,
// going on.
func (s *supervisor) saveAsleep(ctx context.Context) error {
	// Most of the disk while the guest still runs: what is left to store while
	// it sleeps is little. It also commits what an earlier try has sealed, which
	// is of another instant.
	if err := s.save(ctx); err != nil {
		return err
	}
	clean, err := s.capture(ctx)
	if err != nil {
		return err
	}
	failpoint.Reach(failpoint.HibernateCaptured)
	if err := s.storeMemory(ctx, clean); err != nil {
		return errors.Join(err, s.goOn(ctx))
	}
	return nil
}

// saveWithMemory stores memory and disk of one instant of a guest that goes on:
// it stands still only while they are taken.
func (s *supervisor) saveWithMemory(ctx context.Context) error {
	if _, ok := s.hibernator(); !ok || s.lastPhase() != phaseAttached {
		return s.save(ctx)
	}
	if err := s.save(ctx); err != nil {
		return err
	}
	took := clock.Start()
	s.guest.Lock()
	clean, err := s.capture(ctx)
	if err == nil {
		err = s.goOn(ctx)
	}
	s.guest.Unlock()
	if err != nil {
		return err
	}
	s.log.Info("guest was paused for its memory", "pause", took.Lap())
	err = s.storeMemory(ctx, clean)
	s.log.Info("memory of a running guest stored", "took", took.Lap(), "err", err)
	return errors.Join(err, os.RemoveAll(s.memoryDir()))
}

// capture takes the guest's memory into a directory and seals the disk of the
// same instant: nothing of the guest runs from before the one until after the
// other. It leaves the guest paused; after an error it goes on.
func (s *supervisor) capture(ctx context.Context) (clean bool, err error) {
	h, _ := s.hibernator()
	if err := freshDir(s.memoryDir()); err != nil {
		return false, err
	}
	s.writeOut(ctx)
	if err := s.note(func() { s.rec.Paused = true }); err != nil {
		return false, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.goOn(ctx))
		}
	}()
	if err := h.Pause(ctx, s.ref()); err != nil {
		return false, err
	}
	failpoint.Reach(failpoint.HibernatePaused)
	if err := h.Checkpoint(ctx, s.ref(), s.memoryDir()); err != nil {
		return false, err
	}
	// A process is its memory and the program that the memory was mapped from.
	switch err := os.Link(s.guestBinary(), filepath.Join(s.memoryDir(), guestFile)); {
	case errors.Is(err, fs.ErrNotExist):
		return false, errs.Wrap(errs.Unsupported, err, "an older release started this guest")
	case err != nil:
		return false, errs.Wrap(errs.Internal, err, "keep the guest agent")
	}
	failpoint.Reach(failpoint.HibernateMemory)
	return s.vol.Seal(ctx)
}

func freshDir(dir string) error {
	if err := os.RemoveAll(dir); err != nil {
		return errs.Wrap(errs.Internal, err, "empty %s", dir)
	}
	return errs.Wrap(errs.Internal, os.MkdirAll(dir, 0o700), "make %s", dir)
}

// writeOut asks the guest to write out what it holds, so that a cold start from
// this snapshot misses nothing.
func (s *supervisor) writeOut(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, syncTimeout)
	defer cancel()
	res, err := s.callAgent(ctx, guest.SyncPath, nil)
	if err == nil {
		_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, maxAgentAnswer))
		err = res.Body.Close()
		if res.StatusCode != http.StatusNoContent {
			err = errs.New(errs.Internal, "it answers %s", res.Status)
		}
	}
	if err != nil {
		s.log.Warn("guest has not written out what it holds", "err", err)
	}
}

// storeMemory stores what capture has taken, and commits it as one snapshot. A
// root that is not committed is completed by the next flush.
func (s *supervisor) storeMemory(ctx context.Context, clean bool) error {
	if err := s.readStatus(ctx); err != nil {
		return err
	}
	d, base := s.desired(), s.volumeStatus().Root
	intent, err := s.node.cfg.Plane.BeginFlush(ctx, api.BeginFlushRequest{Node: s.node.id, Instance: d.ID, Epoch: d.Epoch, Base: base})
	if err != nil {
		return err
	}
	up := Uploaded{Root: base, Consistency: consistencyFrozen}
	if !clean {
		if up, err = s.vol.Upload(ctx, Upload{Intent: intent.Intent, Epoch: d.Epoch, Seq: intent.Seq, Started: intent.Started}); err != nil {
			return err
		}
	}
	mem, err := s.vol.SaveMemory(ctx, s.memoryDir(), up.Root, s.node.cfg.Machine, intent.Started)
	if err != nil {
		return err
	}
	failpoint.Reach(failpoint.HibernateUploaded)
	_, err = s.node.cfg.Plane.CommitFlush(ctx, api.CommitFlushRequest{
		Node: s.node.id, Instance: d.ID, Epoch: d.Epoch, Intent: intent.Intent, Base: base, Root: up.Root, Seq: intent.Seq,
		Consistency: up.Consistency, StoredBytes: up.StoredBytes, WrittenBytes: up.WrittenBytes,
		Memory: &api.CommitMemory{Root: mem.Root, Machine: s.node.cfg.Machine.Fingerprint(), Bytes: mem.Bytes},
	})
	if errs.Is(err, errs.Stale) {
		// Its intent may have expired: the next try's, which is refused when
		// another epoch owns the subject, tells.
		return errs.Wrap(errs.Conflict, err, "commit what is stored")
	}
	if err != nil {
		return err
	}
	failpoint.Reach(failpoint.HibernateCommitted)
	if !clean {
		// It is committed whether the volume process hears it or not: the next
		// one finds it out.
		if err := s.vol.Committed(ctx, up.Root); err != nil {
			s.log.Warn("volume process does not know of its commit", "err", err)
		}
	}
	return nil
}

// consistencyFrozen is that of a disk on which nothing was written since the
// root it stands on.
const consistencyFrozen = "frozen"

// goOn lets a paused guest go on, whatever became of ctx.
func (s *supervisor) goOn(ctx context.Context) error {
	h, ok := s.hibernator()
	if !ok {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), goOnTimeout)
	defer cancel()
	if err := h.Continue(ctx, s.ref()); err != nil {
		return err
	}
	return s.note(func() { s.rec.Paused = false })
}

// unpause ends a pause that another life of this node, or an earlier try, has
// left behind.
func (s *supervisor) unpause(ctx context.Context) error {
	s.mu.Lock()
	paused := s.rec.Paused
	s.mu.Unlock()
	if !paused {
		return nil
	}
	s.log.Warn("guest was left paused, it goes on")
	return s.goOn(ctx)
}
