package node

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/billethq/billet/internal/driver"
	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/model"
)

var _ driver.Hibernator = driverView{}

// fakeMemory is a memory image in the store.
type fakeMemory struct {
	disk model.Root
	file string
}

// memoryName is the one file of a fake memory image: what the guest's memory
// held, and what its disk did at that instant.
const memoryName = "ram"

// diskOf is everything the guest has written; the caller holds mu.
func (w *world) diskOf(id model.InstanceID) string {
	f := w.volumes[id]
	return strings.Join(slices.Concat(w.objects[f.root], f.sealed, f.fresh), "\n")
}

// Pause implements driver.Hibernator.
func (v driverView) Pause(ctx context.Context, ref driver.Ref) error {
	return v.l.call(ctx, "Pause", func() error {
		g := v.l.w.guest(ref.ID)
		if !g.running {
			return errs.New(errs.NotFound, "it does not run")
		}
		g.paused = true
		return nil
	})
}

// Checkpoint implements driver.Hibernator.
func (v driverView) Checkpoint(ctx context.Context, ref driver.Ref, dir string) error {
	w := v.l.w
	return v.l.call(ctx, "Checkpoint", func() error {
		g := w.guest(ref.ID)
		switch {
		case !g.running:
			return errs.New(errs.NotFound, "it does not run")
		case !g.paused:
			w.violate("memory taken of a guest that runs")
		}
		if g.onCheckpoint != nil {
			if err := g.onCheckpoint(); err != nil {
				return err
			}
		}
		return os.WriteFile(filepath.Join(dir, memoryName), []byte(g.ram+"\x00"+w.diskOf(ref.ID)), 0o600)
	})
}

// Continue implements driver.Hibernator.
func (v driverView) Continue(ctx context.Context, ref driver.Ref) error {
	return v.l.call(ctx, "Continue", func() error {
		g := v.l.w.guest(ref.ID)
		if !g.running {
			return errs.New(errs.NotFound, "it does not run")
		}
		g.paused = false
		return nil
	})
}

// Restore implements driver.Hibernator.
func (v driverView) Restore(ctx context.Context, spec driver.Spec, dir string) error {
	w := v.l.w
	return v.start(ctx, "Restore", spec, func() (string, error) {
		if g := w.guest(spec.ID); g.onRestore != nil {
			if err := g.onRestore(); err != nil {
				return "", err
			}
		}
		b, err := os.ReadFile(filepath.Join(dir, memoryName))
		if err != nil {
			return "", err
		}
		ram, disk, _ := strings.Cut(string(b), "\x00")
		if disk != w.diskOf(spec.ID) {
			w.violate("memory restored on another disk than it was taken on")
		}
		return ram, nil
	})
}

// SaveMemory implements Volume.
func (v volumeView) SaveMemory(ctx context.Context, dir string, disk model.Root, _ model.Machine, _ time.Time) (out SavedMemory, err error) {
	w := v.l.w
	err = v.call(ctx, "SaveMemory", func() error {
		b, err := os.ReadFile(filepath.Join(dir, memoryName))
		if err != nil {
			return err
		}
		if disk != v.f.root && disk != v.f.pending {
			w.violate("memory stored with a disk that is not")
		}
		if _, then, _ := strings.Cut(string(b), "\x00"); then != strings.Join(w.objects[disk], "\n") {
			w.violate("memory stored with the disk of another instant")
		}
		out = SavedMemory{Root: rootOf("memory", string(disk), string(b)), Bytes: int64(len(b))}
		w.memories[out.Root] = fakeMemory{disk: disk, file: string(b)}
		return nil
	})
	return out, err
}

// LoadMemory implements Volume.
func (v volumeView) LoadMemory(ctx context.Context, root model.Root, dir string, _ model.Machine) (out LoadedMemory, err error) {
	w := v.l.w
	err = v.call(ctx, "LoadMemory", func() error {
		m, there := w.memories[root]
		switch {
		case !there:
			return ErrDamaged
		case m.disk != v.f.root:
			return errs.New(errs.Unsupported, "the memory is of another disk")
		}
		if err := os.WriteFile(filepath.Join(dir, guestFile), nil, 0o600); err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(dir, memoryName), []byte(m.file), 0o600)
	})
	return out, err
}

// remember puts something into the memory of a running guest.
func (w *world) remember(id model.InstanceID, ram string) {
	w.change(func() { w.guest(id).ram = ram })
}

// asleep gives an instance that has not started a memory image.
func (w *world) asleep(id model.InstanceID, ram string) {
	w.change(func() {
		in := w.plane.instances[id]
		in.memory = rootOf("memory", string(id))
		w.memories[in.memory] = fakeMemory{disk: in.head, file: ram + "\x00" + strings.Join(w.objects[in.head], "\n")}
	})
}

// memoryStories are told in TestRestart_AtEveryCall beside the others.
func memoryStories() map[string]story {
	return map[string]story{
		"hibernate": {starts: 1, cause: model.CauseStopped, saved: []string{"a"}, ram: "thought", tell: func(w *world, id model.InstanceID) {
			w.awaitState(id, model.StateRunning)
			w.write(id, "a")
			w.remember(id, "thought")
			w.want(id, model.InstanceHibernate)
		}},
		"hibernate, taken back": {starts: 1, cause: model.CauseStopped, saved: []string{"a", "b"}, late: true, tell: func(w *world, id model.InstanceID) {
			w.awaitState(id, model.StateRunning)
			w.write(id, "a")
			w.want(id, model.InstanceHibernate)
			w.await("it is being hibernated", func() bool { return w.countLocked("Pause") > 0 || !w.plane.instances[id].live })
			w.want(id, model.InstanceRun)
			w.await("it runs on, or it was too late", func() bool {
				o, _ := w.observed(id)
				return !w.plane.instances[id].live || !w.guest(id).paused && o.State == model.StateRunning
			})
			w.mu.Lock()
			live := w.plane.instances[id].live
			w.mu.Unlock()
			if live {
				w.write(id, "b")
				w.want(id, model.InstanceStop)
			}
		}},
	}
}

func TestHibernate_ThenResume(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.create()
	w.asleep(id, "thought")
	w.start()
	o := w.awaitState(id, model.StateRunning)
	w.mu.Lock()
	defer w.mu.Unlock()
	if got := w.guest(id).ram; got != "thought" {
		t.Errorf("its memory holds %q", got)
	}
	i := slices.IndexFunc(o.Phases, func(p model.Phase) bool { return p.Name == phaseGuest })
	if i < 0 || !strings.HasPrefix(o.Phases[i].Detail, "from memory") {
		t.Errorf("phases %+v do not say how it was started", o.Phases)
	}
}

// invariant 18
//
// A memory image that cannot be used costs the memory, not the workspace, and
// the reason is told.
func TestResume_FallsBackToCold(t *testing.T) {
	for name, spoil := range map[string]struct {
		do   func(w *world, id model.InstanceID)
		want string
	}{
		"of another disk": {func(w *world, id model.InstanceID) {
			w.memories[w.plane.instances[id].memory] = fakeMemory{disk: "b3:other"}
		}, "another disk"},
		"damaged": {func(w *world, id model.InstanceID) { delete(w.memories, w.plane.instances[id].memory) }, "lost or altered"},
		"refused by the driver": {func(w *world, id model.InstanceID) {
			w.guest(id).onRestore = func() error { return errs.New(errs.Internal, "bad magic") }
		}, "bad magic"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			id := w.create()
			w.asleep(id, "thought")
			w.change(func() { spoil.do(w, id) })
			w.start()
			o := w.awaitState(id, model.StateRunning)
			i := slices.IndexFunc(o.Phases, func(p model.Phase) bool { return p.Name == phaseGuest })
			if i < 0 || !strings.HasPrefix(o.Phases[i].Detail, "cold: ") || !strings.Contains(o.Phases[i].Detail, spoil.want) {
				t.Errorf("phases %+v, want a cold start that says %q", o.Phases, spoil.want)
			}
		})
	}
}

// A checkpoint that fails leaves the guest running, and hibernating is tried
// again.
func TestHibernate_FailedCheckpoint(t *testing.T) {
	t.Parallel()
	w, _, id := running(t)
	left := 2
	w.change(func() {
		w.guest(id).onCheckpoint = func() error {
			if left == 0 {
				return nil
			}
			left--
			return errs.New(errs.Exhausted, "no space left on device")
		}
	})
	w.want(id, model.InstanceHibernate)
	w.await("the reason is shown, of a guest that goes on", func() bool {
		o, _ := w.observed(id)
		return strings.Contains(o.FlushError, "no space") && !w.guest(id).paused && w.guest(id).running
	})
	if cause := w.awaitEnded(id); cause != model.CauseStopped {
		t.Errorf("cause %q", cause)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.plane.instances[id].memory == "" {
		t.Error("no memory was committed")
	}
}

// A fork asks for the memory of a guest that runs on: it stands still while the
// memory is taken, and no longer.
func TestFlush_WithMemory(t *testing.T) {
	t.Parallel()
	w, _, id := running(t)
	w.remember(id, "thought")
	w.change(func() {
		w.volumes[id].before = func(call string) error {
			if (call == "Upload" || call == "SaveMemory") && w.guest(id).paused {
				w.violate("paused while it is stored")
			}
			return nil
		}
		in := w.plane.instances[id]
		in.want.Flush, in.want.FlushMemory = in.want.Flush+1, true
		w.plane.generation++
	})
	w.awaitDurable(id)
	w.mu.Lock()
	defer w.mu.Unlock()
	in := w.plane.instances[id]
	if m := w.memories[in.memory]; m.disk != in.head || m.file != "thought\x00a" || w.guest(id).paused || w.guest(id).starts != 1 {
		t.Errorf("got %+v of head %s, guest %+v", m, in.head, w.guest(id))
	}
}
