package node

import (
	"context"
	"slices"
	"testing"

	"github.com/billethq/billet/internal/driver"
	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/model"
)

// Prepare implements driver.Preparer. What waits dies with the life it is of.
func (v driverView) Prepare(ctx context.Context, spec driver.Spec) (driver.Prepared, error) {
	err := v.l.call(ctx, "Prepare", func() error {
		if v.l.w.guest(spec.ID).running {
			return errs.New(errs.Conflict, "it runs already")
		}
		v.l.held[spec.ID] = true
		return nil
	})
	return preparedView{v, spec}, err
}

// preparedView is a start that waits, as one life of the node sees it.
type preparedView struct {
	v    driverView
	spec driver.Spec
}

// Start implements driver.Prepared.
func (p preparedView) Start(ctx context.Context) error {
	defer p.letGo()
	return p.v.Start(ctx, p.spec)
}

// Drop implements driver.Prepared.
func (p preparedView) Drop() {
	_ = p.v.l.call(context.Background(), "Drop", func() error { return nil })
	p.letGo()
}

func (p preparedView) letGo() {
	w := p.v.l.w
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(p.v.l.held, p.spec.ID)
}

func TestEarly_StartsWhatWaits(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.create()
	w.start()
	w.awaitState(id, model.StateRunning)
	w.change(func() {
		if !slices.Contains(w.calls, "Prepare") || slices.Contains(w.calls, "Drop") {
			t.Errorf("calls %q, want a start that began early and was taken", w.calls)
		}
	})
}

// A disk that cannot be opened has the start given up, or nobody could clear
// the disk away; the next try begins another.
func TestEarly_IsGivenUpWithItsDisk(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.create()
	tries := 0
	w.change(func() {
		w.volumes[id] = &fakeVolume{root: w.plane.instances[id].head, epoch: 7, onMount: func() error {
			if tries++; tries == 1 {
				return errs.New(errs.Unavailable, "the object store does not answer")
			}
			return nil
		}}
	})
	w.start()
	w.awaitState(id, model.StateRunning)
	w.change(func() {
		if got := len(slices.DeleteFunc(slices.Clone(w.calls), func(c string) bool { return c != "Drop" })); got != 1 {
			t.Errorf("given up %d times, want once: calls %q", got, w.calls)
		}
	})
}

// One that waits under a name that is not the guest's any more is given up.
func TestEarly_IsOfThisVeryGuest(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.create()
	w.change(func() {
		w.volumes[id] = &fakeVolume{root: w.plane.instances[id].head, epoch: 7, elsewhere: true}
	})
	w.start()
	w.awaitState(id, model.StateRunning)
	w.change(func() {
		if !slices.Contains(w.calls, "Drop") {
			t.Errorf("calls %q, want the start on another disk given up", w.calls)
		}
	})
}
