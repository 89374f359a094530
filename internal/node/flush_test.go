package node

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/driver"
	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/model"
)

// running starts a node with one running instance that has written a.
func running(t *testing.T) (*world, *life, model.InstanceID) {
	t.Helper()
	w := newWorld(t)
	id := w.create()
	l := w.start()
	w.awaitState(id, model.StateRunning)
	w.write(id, "a")
	return w, l, id
}

// awaitDurable waits until the node says that a flush has covered what was
// asked.
func (w *world) awaitDurable(id model.InstanceID) {
	w.t.Helper()
	w.await("what was written is durable", func() bool {
		o, _ := w.observed(id)
		return o.Flushed >= w.plane.instances[id].want.Flush && o.FlushError == "" && o.UnsavedBytes == 0
	})
}

func TestFlush_OnTheTimer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.plane.flushEvery = 20 * time.Millisecond
	id := w.create()
	w.start()
	w.awaitState(id, model.StateRunning)
	w.write(id, "a")
	w.await("a flush", func() bool { return w.plane.instances[id].seq == 1 })
	w.write(id, "b")
	w.await("another flush", func() bool { return w.plane.instances[id].seq == 2 })
	if got := w.saved(id); !cmp.Equal(got, []string{"a", "b"}) {
		t.Errorf("saved %q", got)
	}
	// An idle disk is sealed again and again, and nothing is uploaded.
	seals := w.count("Seal")
	w.await("the timer goes on", func() bool { return w.countLocked("Seal") >= seals+3 })
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.volumes[id].uploads != 2 || len(w.plane.begins) != 2 {
		t.Errorf("%d uploads and %d intents of 2 writes", w.volumes[id].uploads, len(w.plane.begins))
	}
}

func (w *world) count(name string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.countLocked(name)
}

func (w *world) countLocked(name string) (n int) {
	for _, c := range w.calls {
		if c == name {
			n++
		}
	}
	return n
}

// Somebody waits for an asked flush: it is tried again soon, and not only by a
// timer of minutes.
func TestFlush_AskedAndFailing(t *testing.T) {
	t.Parallel()
	w, _, id := running(t)
	left := 2
	w.change(func() {
		w.plane.onBegin = func(*api.BeginFlushResponse) error {
			if left == 0 {
				return nil
			}
			left--
			return errs.New(errs.Unavailable, "the ledger is busy")
		}
	})
	w.askFlush(id)
	w.await("the reason is shown", func() bool {
		o, _ := w.observed(id)
		return o.FlushError == "the ledger is busy" && o.State == model.StateRunning
	})
	w.awaitDurable(id)
	if got := w.saved(id); !cmp.Equal(got, []string{"a"}) {
		t.Errorf("saved %q", got)
	}
}

// Whoever asks while a flush runs has another one, which begins after they did.
func TestFlush_AskedWhileOneRuns(t *testing.T) {
	t.Parallel()
	w, _, id := running(t)
	more := 1
	w.change(func() {
		w.volumes[id].before = func(call string) error {
			if call == "Upload" && more > 0 {
				more--
				f := w.volumes[id]
				f.fresh = append(f.fresh, "b")
				w.plane.instances[id].want.Flush++
				w.plane.generation++
			}
			return nil
		}
	})
	w.askFlush(id)
	w.awaitDurable(id)
	if got := w.saved(id); !cmp.Equal(got, []string{"a", "b"}) {
		t.Errorf("saved %q", got)
	}
}

// invariant 13, invariant 16
func TestFlush_TheAnswerToACommitIsLost(t *testing.T) {
	t.Parallel()
	w, _, id := running(t)
	lost := 0
	w.change(func() {
		w.plane.onCommit = func(api.CommitFlushRequest) (before, after error) {
			lost++
			return nil, errs.New(errs.Unavailable, "connection reset")
		}
	})
	w.askFlush(id)
	w.awaitDurable(id)
	w.mu.Lock()
	defer w.mu.Unlock()
	if lost != 1 || w.volumes[id].uploads != 1 || w.plane.instances[id].seq != 1 {
		t.Errorf("%d lost, %d uploads, number %d: want one of each", lost, w.volumes[id].uploads, w.plane.instances[id].seq)
	}
	if w.volumes[id].pending != "" || w.volumes[id].root != w.plane.instances[id].head {
		t.Error("the volume does not stand on the head")
	}
}

// An intent that expired under a long upload is no reason to fence its owner.
func TestFlush_AnExpiredIntent(t *testing.T) {
	t.Parallel()
	w, _, id := running(t)
	expired := false
	w.change(func() {
		w.plane.onCommit = func(req api.CommitFlushRequest) (before, after error) {
			if expired {
				return nil, nil
			}
			expired = true
			return errs.New(errs.Stale, "flush intent %s expired", req.Intent), nil
		}
	})
	w.askFlush(id)
	w.awaitDurable(id)
	if got := w.saved(id); !cmp.Equal(got, []string{"a"}) || !expired {
		t.Errorf("saved %q, expired %t", got, expired)
	}
	if !w.guest(id).running {
		t.Error("the guest was ended for it")
	}
}

// Commits that are refused again and again are shown, and end nothing while
// control still gives intents under this epoch.
func TestFlush_CommitsRefused(t *testing.T) {
	t.Parallel()
	w, _, id := running(t)
	refused := true
	w.change(func() {
		w.plane.onCommit = func(api.CommitFlushRequest) (before, after error) {
			if refused {
				return errs.New(errs.Stale, "flush intent expired"), nil
			}
			return nil, nil
		}
	})
	w.askFlush(id)
	w.await("the refusal is shown", func() bool {
		o, _ := w.observed(id)
		return o.FlushError != "" && o.State == model.StateRunning
	})
	w.change(func() { refused = false })
	w.awaitDurable(id)
}

// The clocks of two hosts differ, and a flush that is asked for is made all the
// same: nobody compares them.
func TestFlush_AskedByAnotherClock(t *testing.T) {
	for name, skew := range map[string]time.Duration{"an hour ahead": time.Hour, "an hour behind": -time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.skew = skew
			id := w.create()
			w.start()
			w.awaitState(id, model.StateRunning)
			for _, text := range []string{"a", "b"} {
				w.write(id, text)
				w.askFlush(id)
				w.awaitDurable(id)
			}
			if got := w.saved(id); !cmp.Equal(got, []string{"a", "b"}) {
				t.Errorf("saved %q", got)
			}
			w.mu.Lock()
			defer w.mu.Unlock()
			if o, _ := w.observed(id); o.DurableAge <= 0 || o.DurableAge > patience {
				t.Errorf("durable as of %s ago, want a moment", o.DurableAge)
			}
		})
	}
}

// stuck has every upload of the node hang, waits for one, and returns what lets
// them go on.
func (w *world) stuck(id model.InstanceID) (free func()) {
	w.t.Helper()
	reached, open := make(chan struct{}), make(chan struct{})
	first := true
	w.change(func() {
		w.stall = func() <-chan struct{} {
			if first {
				first = false
				close(reached)
			}
			return open
		}
	})
	w.askFlush(id)
	select {
	case <-reached:
	case <-time.After(patience):
		w.t.Fatal("no flush uploads")
	}
	return func() { close(open) }
}

// While a flush is stuck in the store, the node hears everything else, and does
// at once what does not need the volume.
func TestFlush_StuckHoldsUpNothing(t *testing.T) {
	for name, tc := range map[string]struct {
		do    func(w *world, id model.InstanceID)
		cause model.Cause
	}{
		"stop": {func(w *world, id model.InstanceID) { w.want(id, model.InstanceStop) }, model.CauseStopped},
		"exit": {func(w *world, id model.InstanceID) {
			w.exitGuest(id, driver.Exit{Cause: model.CauseOutOfMemory})
		}, model.CauseOutOfMemory},
		"exit on the way to sleep": {func(w *world, id model.InstanceID) {
			w.want(id, model.InstanceHibernate)
			w.await("the node has taken that", func() bool {
				return w.plane.requests[len(w.plane.requests)-1].Have == w.plane.generation
			})
			w.exitGuest(id, driver.Exit{Cause: model.CauseOutOfMemory})
		}, model.CauseOutOfMemory},
		"full": {func(w *world, id model.InstanceID) { w.fault(id, Fault{Kind: FaultDiskFull}) }, model.CauseDiskFull},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, _, id := running(t)
			free := w.stuck(id)
			tc.do(w, id)
			w.await("it is acted on while the flush hangs", func() bool {
				o, _ := w.observed(id)
				return !w.guest(id).running && slices.Contains(w.calls, "Delete") && o.State == model.StateStopping
			})
			free()
			if cause := w.awaitEnded(id); cause != tc.cause {
				t.Errorf("cause %q, want %q", cause, tc.cause)
			}
			if got := w.saved(id); !cmp.Equal(got, []string{"a"}) {
				t.Errorf("saved %q", got)
			}
		})
	}
}

// Whoever needs the volume alone and saves nothing ends a flush that hangs: it
// is never let go on here.
func TestFlush_StuckIsGivenUp(t *testing.T) {
	for name, tc := range map[string]struct {
		do   func(w *world, id model.InstanceID)
		then func(w *world, id model.InstanceID) bool
	}{
		"destroy": {
			func(w *world, id model.InstanceID) { w.want(id, model.InstanceDestroy) },
			func(w *world, id model.InstanceID) bool { return !w.plane.instances[id].live },
		},
		"fence": {
			func(w *world, id model.InstanceID) { w.want(id, model.InstanceFence) },
			func(w *world, id model.InstanceID) bool { return w.plane.instances[id].cause == model.CauseFenced },
		},
		"the volume process dies": {
			(*world).killVolume,
			func(w *world, id model.InstanceID) bool { return w.guest(id).running && w.guest(id).starts == 2 },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, l, id := running(t)
			w.stuck(id)
			tc.do(w, id)
			w.await(name+" is done", func() bool { return tc.then(w, id) })
			if got := w.saved(id); len(got) != 0 {
				t.Errorf("saved %q", got)
			}
			l.stop() // waits for every goroutine
		})
	}
}

// A disk that says it is never clean is not flushed without end.
func TestStop_ADiskThatIsNeverClean(t *testing.T) {
	t.Parallel()
	w, _, id := running(t)
	dirty := true
	w.change(func() {
		w.volumes[id].before = func(call string) error {
			if dirty && call == "Status" {
				w.volumes[id].fresh = append(w.volumes[id].fresh, "x")
			}
			return nil
		}
	})
	w.want(id, model.InstanceStop)
	w.await("it is said", func() bool {
		o, _ := w.observed(id)
		return o.State == model.StateStopping && o.FlushError != ""
	})
	w.change(func() { dirty = false })
	if got := w.awaitEnded(id); got != model.CauseStopped {
		t.Errorf("cause %q", got)
	}
}
