package node

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/clock"
	"github.com/billethq/billet/internal/model"
)

// patience bounds every wait of these tests; only a broken build takes it.
const patience = 30 * time.Second

// world is everything that outlives a node: a control plane, guests, volume
// processes, an object store. Its parts are fakes which obey no order of calls,
// and write down what must never be done to them.
type world struct {
	t   *testing.T
	top string

	mu         sync.Mutex
	moved      chan struct{} // closed and replaced whenever something changes
	dir        string        // of the present node
	violations []string
	plane      plane
	guests     map[model.InstanceID]*fakeGuest
	volumes    map[model.InstanceID]*fakeVolume
	objects    map[model.Root][]string // what a root holds
	memories   map[model.Root]fakeMemory
	stall      func() <-chan struct{} // an upload waits for it, or for its end
	calls      []string
	cut        cut
	log        io.Writer
	images     ImageBuilder
	attach     time.Duration
	skew       time.Duration // of the node's clock
	running    sync.WaitGroup
}

func newWorld(t *testing.T) *world {
	t.Helper()
	// Not t.TempDir: a socket's path holds 107 bytes.
	top, err := os.MkdirTemp("", "node")
	if err != nil {
		t.Fatal(err)
	}
	w := &world{
		t: t, top: top, dir: filepath.Join(top, "0"), moved: make(chan struct{}),
		guests: map[model.InstanceID]*fakeGuest{}, volumes: map[model.InstanceID]*fakeVolume{}, objects: map[model.Root][]string{},
		memories: map[model.Root]fakeMemory{},
	}
	w.plane = plane{instances: map[model.InstanceID]*instance{}, generation: 1, flushEvery: time.Hour}
	t.Cleanup(func() {
		w.endGuests()
		w.running.Wait()
		_ = os.RemoveAll(top)
		for _, v := range w.violations {
			t.Errorf("violation: %s", v)
		}
		if t.Failed() {
			t.Logf("calls: %q", w.calls)
		}
	})
	return w
}

// change runs fn under the lock and wakes everybody who waits.
func (w *world) change(fn func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	fn()
	w.broadcast()
}

func (w *world) broadcast() {
	close(w.moved)
	w.moved = make(chan struct{})
}

func (w *world) violate(what string) { w.violations = append(w.violations, what) }

// await waits until cond, which runs under the lock, holds.
func (w *world) await(what string, cond func() bool) {
	w.t.Helper()
	late := time.NewTimer(patience)
	defer late.Stop()
	for {
		w.mu.Lock()
		ok, moved := cond(), w.moved
		w.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-moved:
		case <-late.C:
			w.mu.Lock()
			defer w.mu.Unlock()
			w.t.Fatalf("still not: %s\nobserved: %+v\ncalls: %q", what, w.plane.observed, w.calls)
		}
	}
}

// hold waits under ctx until cond holds: how a fake blocks.
func (w *world) hold(ctx context.Context, cond func() bool) error {
	for {
		w.mu.Lock()
		ok, moved := cond(), w.moved
		w.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// cut is where a node's life ends: at its n-th call of any fake.
type cut struct {
	at    int  // 0: nowhere
	after bool // the call has had its effect, and its answer is lost
	kill  bool // as kill -9: what the node writes afterwards never was
	done  bool
}

// errCut is what a call of a dead node gets.
var errCut = errors.New("the node has died")

// life is one process of the node.
type life struct {
	w      *world
	cancel context.CancelFunc
	over   chan struct{} // closed when Run has returned
	node   *Node
	dead   bool
	held   map[model.InstanceID]bool // starts that wait
	err    error                     // of Run
}

// call is how every fake runs its effect, so that a life can end before or
// after each of them.
func (l *life) call(ctx context.Context, name string, effect func() error) error {
	w := l.w
	w.mu.Lock()
	defer w.mu.Unlock()
	if l.dead {
		return errCut
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	w.calls = append(w.calls, name)
	hit := w.cut.at > 0 && !w.cut.done && len(w.calls) == w.cut.at
	if hit && !w.cut.after {
		l.die()
		return errCut
	}
	err := effect()
	w.broadcast()
	if hit {
		l.die()
		return errCut
	}
	return err
}

// die ends the life at this very moment.
func (l *life) die() {
	l.w.cut.done, l.dead = true, true
	if l.w.cut.kill {
		next := l.w.dir + "k"
		if err := copyDir(l.w.dir, next); err != nil {
			l.w.violate("copy the directory: " + err.Error())
		}
		l.w.dir = next
	}
	l.cancel()
	l.w.broadcast()
}

// copyDir copies what a disk keeps: directories and files, no sockets.
func copyDir(from, to string) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			if errors.Is(err, fs.ErrNotExist) {
				return nil // replaced while it was listed
			}
			return err
		}
		rel, _ := filepath.Rel(from, path)
		switch {
		case d.IsDir():
			return os.MkdirAll(filepath.Join(to, rel), 0o700)
		case d.Type().IsRegular():
			b, err := os.ReadFile(path)
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			if err != nil {
				return err
			}
			return os.WriteFile(filepath.Join(to, rel), b, 0o600)
		}
		return nil
	})
}

// start begins a life of the node on the world's directory.
func (w *world) start() *life {
	w.t.Helper()
	l, err := w.tryStart()
	if err != nil {
		w.t.Fatal(err)
	}
	return l
}

func (w *world) tryStart() (*life, error) {
	ctx, cancel := context.WithCancel(context.Background())
	l := &life{w: w, cancel: cancel, over: make(chan struct{}), held: map[model.InstanceID]bool{}}
	out := w.log
	if out == nil {
		out = io.Discard
	}
	w.mu.Lock()
	dir := w.dir
	w.mu.Unlock()
	agent := filepath.Join(w.top, "billet-guest")
	if err := os.WriteFile(agent, nil, 0o755); err != nil {
		cancel()
		return nil, err
	}
	n, err := New(Config{
		Dir: dir, Name: "n1", Version: "test", Plane: planeView{l}, Driver: driverView{l}, Volumes: volumesView{l},
		Images: w.images, GuestBinary: agent, Clock: skewed(w.skew), Log: slog.New(slog.NewTextHandler(out, nil)),
	})
	if err != nil {
		cancel()
		return nil, err
	}
	if w.attach > 0 {
		n.attachWithin = w.attach
	}
	l.node = n
	go func() {
		l.err = n.Run(ctx)
		close(l.over)
	}()
	w.t.Cleanup(l.stop)
	return l, nil
}

// skewed is the clock of a host that is so far ahead of the others.
type skewed time.Duration

func (s skewed) Now() time.Time { return clock.Real{}.Now().Add(time.Duration(s)) }

// stop ends the life as SIGTERM does, and waits for Run.
func (l *life) stop() {
	l.cancel()
	l.wait()
}

// wait waits until Run has returned.
func (l *life) wait() {
	select {
	case <-l.over:
	case <-time.After(patience):
		l.w.t.Error("Run has not returned")
	}
}

// observed is what the newest sync said of an instance; the caller holds mu.
func (w *world) observed(id model.InstanceID) (api.ObservedInstance, bool) {
	i := slices.IndexFunc(w.plane.observed, func(o api.ObservedInstance) bool { return o.ID == id })
	if i < 0 {
		return api.ObservedInstance{}, false
	}
	return w.plane.observed[i], true
}

func (w *world) awaitState(id model.InstanceID, st model.InstanceState) api.ObservedInstance {
	w.t.Helper()
	var got api.ObservedInstance
	w.await(string(id)+" is "+string(st), func() bool {
		got, _ = w.observed(id)
		return got.State == st
	})
	return got
}

// awaitEnded waits until control has recorded the end.
func (w *world) awaitEnded(id model.InstanceID) model.Cause {
	w.t.Helper()
	var cause model.Cause
	w.await(string(id)+" ended at control", func() bool {
		cause = w.plane.instances[id].cause
		return !w.plane.instances[id].live
	})
	return cause
}

// awaitGone waits until the node reports the instance no longer.
func (w *world) awaitGone(id model.InstanceID) {
	w.t.Helper()
	w.await(string(id)+" is gone from the node", func() bool {
		_, there := w.observed(id)
		return !there
	})
	if _, err := os.Stat(w.instanceDir(id)); !errors.Is(err, fs.ErrNotExist) {
		w.t.Errorf("the directory of %s is still there: %v", id, err)
	}
}

func (w *world) instanceDir(id model.InstanceID) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return filepath.Join(w.dir, "instances", string(id))
}
