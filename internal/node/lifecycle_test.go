package node

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/model"
)

func TestRun_ReachesItsPhasesInOrder(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.create()
	w.start()
	got := w.awaitState(id, model.StateRunning)
	var names []string
	for i, p := range got.Phases {
		names = append(names, p.Name)
		if p.At.IsZero() || i > 0 && p.At.Before(got.Phases[i-1].At) {
			t.Errorf("phase %s at %s is out of order", p.Name, p.At)
		}
	}
	if want := []string{phaseAccepted, phaseVolume, phaseGuest, phaseAttached}; !cmp.Equal(names, want) {
		t.Errorf("phases %q, want %q", names, want)
	}
	if got.Cause != model.CauseNone || got.Detail != "" || got.FlushError != "" {
		t.Errorf("a running instance shows %+v", got)
	}
	if got.Epoch != 7 || got.Base != w.plane.instances[id].head {
		t.Errorf("epoch %d on %s", got.Epoch, got.Base)
	}
}

// The report of the end is all that control has: it stays until control knows.
//
// invariant 2
func TestStop_SavesAndStaysUntilControlKnows(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.create()
	w.start()
	w.awaitState(id, model.StateRunning)
	w.write(id, "a")
	// Control hears of the end and answers as if it had not.
	deaf := true
	w.change(func() {
		w.plane.onSync = func(req api.SyncRequest) error {
			if deaf && slices.ContainsFunc(req.Observed, func(o api.ObservedInstance) bool { return o.State == model.StateEnded }) {
				return errs.New(errs.Unavailable, "the reply is lost")
			}
			return nil
		}
	})
	w.want(id, model.InstanceStop)
	w.await("the volume process is gone", func() bool { return w.volumes[id].pid == 0 })
	w.await("the end is said, not heard", func() bool { return slices.Contains(w.calls, "Close") })
	if _, err := os.Stat(filepath.Join(w.instanceDir(id), recordFile)); err != nil {
		t.Errorf("the record is gone before control knows: %v", err)
	}
	if g := w.guest(id); !slices.Contains(g.stops, time.Second) {
		t.Errorf("stopped with %v, want the grace of the projection", g.stops)
	}
	w.change(func() { deaf = false })
	if got := w.awaitEnded(id); got != model.CauseStopped {
		t.Errorf("cause %q", got)
	}
	w.awaitGone(id)
	if got := w.saved(id); !cmp.Equal(got, []string{"a"}) {
		t.Errorf("saved %q", got)
	}
}

func TestDestroy_NeverSaves(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.create()
	w.start()
	w.awaitState(id, model.StateRunning)
	w.write(id, "a")
	w.want(id, model.InstanceDestroy)
	w.awaitEnded(id)
	w.awaitGone(id)
	if n := len(w.plane.begins) + w.volumes[id].uploads; n != 0 {
		t.Errorf("%d intents and uploads", n)
	}
	ended := 0
	for _, r := range w.plane.requests {
		if slices.ContainsFunc(r.Observed, func(o api.ObservedInstance) bool { return o.State == model.StateEnded }) {
			ended++
		}
	}
	if ended == 0 {
		t.Error("it was removed and its end never reported")
	}
}

// invariant 3
func TestFence_KeepsTheOverlayAside(t *testing.T) {
	t.Parallel()
	for name, overtake := range map[string]func(*world, model.InstanceID){
		"told": func(w *world, id model.InstanceID) { w.want(id, model.InstanceFence) },
		"not named by an answer": func(w *world, id model.InstanceID) {
			w.change(func() { w.plane.instances[id].live = false; w.plane.generation++ })
		},
		"its flush is refused":         func(w *world, id model.InstanceID) { w.refuse(id); w.askFlush(id) },
		"its last flush is refused":    func(w *world, id model.InstanceID) { w.refuse(id); w.want(id, model.InstanceStop) },
		"something is there of before": func(w *world, id model.InstanceID) { w.leaveAside(id); w.want(id, model.InstanceFence) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			id := w.create()
			w.start()
			w.awaitState(id, model.StateRunning)
			w.write(id, "a")
			overtake(w, id)
			got := w.awaitCause(id)
			if got != model.CauseFenced {
				t.Errorf("cause %q", got)
			}
			w.awaitGone(id)
			found, _ := filepath.Glob(filepath.Join(w.dir, "aside", string(id)+"*", "overlay"))
			if len(found) != 1 || !strings.HasSuffix(w.detail(id), "its overlay is in "+filepath.Dir(found[0])) {
				t.Errorf("aside: %q, and the detail is %q", found, w.detail(id))
			}
			if got := w.saved(id); len(got) != 0 {
				t.Errorf("a fenced instance saved %q", got)
			}
			if w.guest(id).running {
				t.Error("its guest runs on")
			}
		})
	}
}

// refuse has every flush of an instance refused as overtaken.
func (w *world) refuse(id model.InstanceID) {
	w.change(func() {
		w.plane.onBegin = func(*api.BeginFlushResponse) error { return errs.New(errs.Stale, "another epoch owns it") }
	})
}

// leaveAside puts an overlay where this one will be kept.
func (w *world) leaveAside(id model.InstanceID) {
	dir := filepath.Join(w.dir, "aside", string(id))
	if err := errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(filepath.Join(dir, "of-before"), nil, 0o600)); err != nil {
		w.t.Error(err)
	}
}

// awaitCause waits for the report of an end, control may know the instance or
// not.
func (w *world) awaitCause(id model.InstanceID) (cause model.Cause) {
	w.t.Helper()
	w.await("an end is reported", func() bool {
		i := slices.IndexFunc(w.plane.requests, func(r api.SyncRequest) bool {
			return slices.ContainsFunc(r.Observed, func(o api.ObservedInstance) bool {
				cause = o.Cause
				return o.ID == id && o.State == model.StateEnded
			})
		})
		return i >= 0
	})
	return cause
}

// detail is what the newest report of an instance that has one says of it.
func (w *world) detail(id model.InstanceID) (said string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range w.plane.requests {
		for _, o := range r.Observed {
			if o.ID == id && o.Detail != "" {
				said = o.Detail
			}
		}
	}
	return said
}

// A start that takes long does not keep a stop from being heard afterwards.
func TestStop_ArrivesWhileStarting(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.create()
	w.change(func() {
		w.guest(id).mute = true // it is up, and never attached
	})
	w.start()
	w.await("the guest is up", func() bool { return w.guest(id).running })
	w.want(id, model.InstanceStop)
	if got := w.awaitEnded(id); got != model.CauseStopped {
		t.Errorf("cause %q", got)
	}
	w.awaitGone(id)
}

// A step that fails is tried again, its reason is shown meanwhile, and is gone
// when it has worked.
func TestStop_FailsForAWhile(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.create()
	left := 2
	w.change(func() {
		w.guest(id).onStop = func() error {
			if left == 0 {
				return nil
			}
			left--
			return errs.New(errs.Unavailable, "the sandbox does not answer")
		}
	})
	w.start()
	w.awaitState(id, model.StateRunning)
	w.write(id, "a")
	w.want(id, model.InstanceStop)
	w.await("the reason is shown", func() bool {
		o, _ := w.observed(id)
		return o.State == model.StateStopping && o.FlushError == "the sandbox does not answer"
	})
	w.awaitEnded(id)
	if got := w.saved(id); !cmp.Equal(got, []string{"a"}) {
		t.Errorf("saved %q", got)
	}
}

func TestRun_ManyAtOnce(t *testing.T) {
	t.Parallel()
	const many = 200
	w := newWorld(t)
	var ids []model.InstanceID
	for range many {
		ids = append(ids, w.create())
	}
	l := w.start()
	w.await("all run", func() bool {
		n := 0
		for _, o := range w.plane.observed {
			if o.State == model.StateRunning {
				n++
			}
		}
		return n == many
	})
	w.change(func() {
		for _, id := range ids {
			w.volumes[id].fresh = []string{"a"}
			w.plane.instances[id].want.Desired = model.InstanceStop
		}
		w.plane.generation++
	})
	w.await("all are gone", func() bool { return len(w.plane.observed) == 0 })
	l.stop()
	for _, id := range ids {
		if got := w.saved(id); !cmp.Equal(got, []string{"a"}) || w.starts(id) != 1 {
			t.Errorf("%s: saved %q, started %d times", id, got, w.starts(id))
		}
	}
}
