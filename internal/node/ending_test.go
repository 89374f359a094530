package node

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/driver"
	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/model"
)

// invariant 14
func TestExit_IsSavedAndNeverRestarted(t *testing.T) {
	t.Parallel()
	for _, cause := range []model.Cause{
		model.CauseExited, model.CauseOutOfMemory, model.CauseTooManyProcesses, model.CauseCrashed, model.CauseKilled,
	} {
		t.Run(string(cause), func(t *testing.T) {
			t.Parallel()
			w, _, id := running(t)
			w.exitGuest(id, driver.Exit{Cause: cause, Detail: "its last words"})
			got := w.awaitState(id, model.StateEnded)
			if got.Cause != cause || got.Detail != "its last words" {
				t.Errorf("ended as %q, %q", got.Cause, got.Detail)
			}
			w.awaitGone(id)
			if got := w.saved(id); !cmp.Equal(got, []string{"a"}) || w.starts(id) != 1 {
				t.Errorf("saved %q, started %d times", got, w.starts(id))
			}
		})
	}
}

// The evidence of an end is gone when the guest is cleared away: the next node
// knows of it from the record, also when a stop comes in between.
func TestExit_CauseSurvivesARestartWhileSaving(t *testing.T) {
	t.Parallel()
	for _, stop := range []bool{false, true} {
		t.Run(fmt.Sprintf("stop %t", stop), func(t *testing.T) {
			t.Parallel()
			w, l, id := running(t)
			w.change(func() {
				w.plane.onBegin = func(*api.BeginFlushResponse) error { return errs.New(errs.Unavailable, "not now") }
			})
			w.exitGuest(id, driver.Exit{Cause: model.CauseOutOfMemory, Detail: "the counter"})
			w.await("it cannot be saved", func() bool {
				o, _ := w.observed(id)
				return o.FlushError == "not now" && o.State == model.StateStopping
			})
			l.stop()
			if stop {
				w.want(id, model.InstanceStop)
			}
			w.start()
			w.await("it is tried again", func() bool { return len(w.plane.begins) > 2 })
			w.change(func() { w.plane.onBegin = nil })
			if got := w.awaitEnded(id); got != model.CauseOutOfMemory {
				t.Errorf("cause %q", got)
			}
			w.awaitGone(id)
			if got := w.saved(id); !cmp.Equal(got, []string{"a"}) || w.starts(id) != 1 {
				t.Errorf("saved %q, started %d times", got, w.starts(id))
			}
		})
	}
}

func TestFault_EndsTheGuestForItsCause(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		faults []FaultKind
		want   model.Cause
	}{
		{[]FaultKind{FaultDiskFull}, model.CauseDiskFull},
		{[]FaultKind{FaultReadOnly}, model.CauseVolumeCorrupt},
		{[]FaultKind{FaultCorrupt, FaultReadOnly}, model.CauseVolumeCorrupt},
	} {
		t.Run(fmt.Sprint(c.faults), func(t *testing.T) {
			t.Parallel()
			w, _, id := running(t)
			w.change(func() {
				for _, k := range c.faults {
					w.volumes[id].faults = append(w.volumes[id].faults, Fault{Kind: k, Detail: "words"})
				}
			})
			if got := w.awaitEnded(id); got != c.want {
				t.Errorf("cause %q, want %q", got, c.want)
			}
			w.awaitGone(id)
			if got := w.saved(id); !cmp.Equal(got, []string{"a"}) || w.starts(id) != 1 {
				t.Errorf("saved %q, started %d times", got, w.starts(id))
			}
		})
	}
}

// A corrupt block alone is an I/O error where it is, told and survived.
func TestFault_CorruptBlockIsToldAndSurvived(t *testing.T) {
	t.Parallel()
	w, _, id := running(t)
	w.fault(id, Fault{Kind: FaultCorrupt, Detail: "block 7 of object x"})
	w.await("it is told", func() bool {
		o, _ := w.observed(id)
		return strings.Contains(o.Detail, "block 7") && o.State == model.StateRunning
	})
	if !w.guest(id).running {
		t.Error("the guest was ended")
	}
}

// The guest is ended before its overlay is opened again, and started cold under
// the same epoch; not for ever.
func TestVolume_DiesAgainAndAgain(t *testing.T) {
	t.Parallel()
	w, _, id := running(t)
	for n := 1; n <= maxLost; n++ {
		w.killVolume(id)
		w.await("the guest is up again", func() bool {
			o, _ := w.observed(id)
			return w.guest(id).starts == n+1 && o.State == model.StateRunning
		})
	}
	w.killVolume(id)
	if got := w.awaitEnded(id); got != model.CauseVolumeLost {
		t.Errorf("cause %q", got)
	}
	w.awaitGone(id)
	if got := w.saved(id); !cmp.Equal(got, []string{"a"}) || w.starts(id) != maxLost+1 {
		t.Errorf("saved %q, started %d times, want %d", got, w.starts(id), maxLost+1)
	}
}

// A volume that died while no node was there is lost all the same: the guest
// is not adopted on a dead disk.
func TestVolume_DiesWithTheNode(t *testing.T) {
	t.Parallel()
	w, l, id := running(t)
	l.stop()
	w.killVolume(id)
	w.start()
	w.await("the guest is up again", func() bool {
		o, _ := w.observed(id)
		return w.guest(id).starts == 2 && o.State == model.StateRunning
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.guest(id).ns != w.volumes[id].ns() || len(w.volumes[id].fresh) != 1 {
		t.Errorf("the guest stands on %s, the volume is in %s", w.guest(id).ns, w.volumes[id].ns())
	}
}

func TestStart_FailsForGood(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		spoil  func(*world, model.InstanceID)
		cause  model.Cause
		detail string
	}{
		"guest": {func(w *world, id model.InstanceID) {
			w.guest(id).onStart = func() error { return errs.New(errs.Unsupported, "no such platform") }
		}, model.CauseStartFailed, "guest: no such platform"},
		"agent": {func(w *world, id model.InstanceID) {
			w.guest(id).mute, w.attach = true, 10*time.Millisecond
		}, model.CauseStartFailed, "the guest agent has not called within 10ms"},
		"volume": {func(w *world, id model.InstanceID) {
			w.volumes[id] = &fakeVolume{root: w.plane.instances[id].head, epoch: 7, onOpen: func() error {
				return errs.New(errs.Invalid, "no disk of that size")
			}}
		}, model.CauseStartFailed, "volume: no disk of that size"},
		"damaged": {func(w *world, id model.InstanceID) {
			w.volumes[id] = &fakeVolume{root: w.plane.instances[id].head, epoch: 7, onOpen: func() error {
				return fmt.Errorf("object x: %w", ErrDamaged)
			}}
		}, model.CauseVolumeCorrupt, "object x"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			id := w.create()
			w.change(func() { c.spoil(w, id) })
			w.start()
			got := w.awaitState(id, model.StateEnded)
			if got.Cause != c.cause || !strings.Contains(got.Detail, c.detail) {
				t.Errorf("ended as %q, %q", got.Cause, got.Detail)
			}
			w.awaitGone(id)
		})
	}
}

// What is only not there now is waited for.
func TestStart_FailsForAWhile(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.create()
	left := 2
	w.change(func() {
		w.guest(id).onStart = func() error {
			if left == 0 {
				return nil
			}
			left--
			return errs.New(errs.Unavailable, "no memory just now")
		}
	})
	w.start()
	w.await("the reason is shown", func() bool {
		o, _ := w.observed(id)
		return strings.Contains(o.FlushError, "no memory just now")
	})
	got := w.awaitState(id, model.StateRunning)
	if got.FlushError != "" || got.Detail != "" {
		t.Errorf("running, and still shown: %q, %q", got.FlushError, got.Detail)
	}
}

// The volume process dies between its opening and the guest's start.
func TestStart_VolumeDiesBeforeTheGuest(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.create()
	died := false
	w.change(func() {
		w.guest(id).onStart = func() error {
			if !died {
				died = true
				w.volumes[id].pid, w.volumes[id].mounted = 0, false
			}
			return nil
		}
	})
	w.start()
	w.awaitState(id, model.StateRunning)
	if !died || w.starts(id) != 1 {
		t.Errorf("died %t, %d starts", died, w.starts(id))
	}
}

// No timer ends a guest that has called once: its agent may take long to call
// the next node.
//
// invariant 9
func TestAdopt_AGuestWhoseAgentIsSilent(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.create()
	l := w.start()
	w.awaitState(id, model.StateRunning)
	l.stop()
	w.change(func() {
		close(w.guest(id).ended) // of its agent only
		w.guest(id).ended = make(chan struct{})
		w.attach = time.Millisecond
	})
	w.start()
	statuses := w.count("Status")
	w.await("it is watched for longer than an attachment may take", func() bool { return w.countLocked("Status") >= statuses+2 })
	w.mu.Lock()
	defer w.mu.Unlock()
	if o, _ := w.observed(id); o.State != model.StateRunning || !w.guest(id).running {
		t.Errorf("it is %s, running %t", o.State, w.guest(id).running)
	}
}
