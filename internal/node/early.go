package node

import (
	"context"
	"reflect"

	"github.com/billethq/billet/internal/driver"
	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/model"
)

// early is a guest's start that began while its disk was being mounted.
type early struct {
	spec     driver.Spec
	done     chan struct{}
	prepared driver.Prepared // once done; nil: it could not be
}

// startEarly returns what begins the guest's start as soon as it is known where
// its disk will be; nil when that start must wait for the disk. Only a guest
// that comes up from nothing, and for the first time, can begin so.
func (s *supervisor) startEarly(ctx context.Context) func(rootfs, mountNS string) {
	d, ok := s.node.cfg.Driver.(driver.Preparer)
	s.mu.Lock()
	first := s.rec.BootID == s.node.bootID && !s.rec.Started && s.rec.MountNS == "" && s.rec.Lost == 0 &&
		s.rec.Cause == model.CauseNone && s.rec.Desired.Memory == ""
	s.mu.Unlock()
	if !ok || !first {
		return nil
	}
	return func(rootfs, mountNS string) {
		e := &early{spec: s.guestSpec(rootfs, mountNS), done: make(chan struct{})}
		s.early = e
		go func() {
			defer close(e.done)
			var err error
			if e.prepared, err = s.prepareGuest(ctx, d, e.spec); err != nil {
				s.log.Info("guest's start waits for its disk", "err", err)
			}
		}()
	}
}

// prepareGuest begins the start of a guest of which nothing is there.
func (s *supervisor) prepareGuest(ctx context.Context, d driver.Preparer, spec driver.Spec) (driver.Prepared, error) {
	st, err := d.Inspect(ctx, spec.Ref)
	if err != nil {
		return nil, err
	}
	if st.State != driver.Absent {
		return nil, errs.New(errs.Conflict, "a guest is there already (%s)", st.State)
	}
	if err := s.placeGuest(s.node.cfg.GuestBinary); err != nil {
		return nil, err
	}
	return d.Prepare(ctx, spec)
}

// earlyStands reports whether the guest's start has begun.
func (s *supervisor) earlyStands() bool {
	if s.early == nil {
		return false
	}
	<-s.early.done
	return s.early.prepared != nil
}

// takeEarly returns the start that has begun, if it is of this very guest.
func (s *supervisor) takeEarly(spec driver.Spec) driver.Prepared {
	e := s.early
	if e == nil {
		return nil
	}
	s.early = nil
	<-e.done
	if e.prepared != nil && !reflect.DeepEqual(e.spec, spec) {
		e.prepared.Drop() // it has been renamed, say
		return nil
	}
	return e.prepared
}

// dropEarly gives a start up that nobody has taken.
func (s *supervisor) dropEarly() {
	if s.early == nil {
		return
	}
	<-s.early.done
	if p := s.early.prepared; p != nil {
		p.Drop()
	}
	s.early = nil
}
