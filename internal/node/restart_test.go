package node

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/billethq/billet/internal/driver"
	"github.com/billethq/billet/internal/model"
)

// story is a life of one instance, told so that the node may die anywhere in
// it. It only acts on what is outside the node, and waits for what control
// sees.
type story struct {
	tell func(w *world, id model.InstanceID)
	// starts is how often the guest comes up, cause how it ends, saved what
	// its head holds, and aside whether its overlay is kept.
	starts int
	cause  model.Cause
	saved  []string
	aside  bool
	// ram is what the memory of its head holds, where there is one.
	ram string
	// late: it may end before its last word, and then saves less.
	late bool
	// few: without these starts too, where the node may die before the first.
	few bool
}

func stories() map[string]story {
	return map[string]story{
		"stop": {starts: 1, cause: model.CauseStopped, saved: []string{"a", "b"}, tell: func(w *world, id model.InstanceID) {
			w.awaitState(id, model.StateRunning)
			w.write(id, "a")
			w.askFlush(id)
			w.await("the asked flush is committed", func() bool { return w.plane.instances[id].seq > 0 })
			w.write(id, "b")
			w.want(id, model.InstanceStop)
		}},
		"exit": {starts: 1, cause: model.CauseOutOfMemory, saved: []string{"a"}, tell: func(w *world, id model.InstanceID) {
			w.awaitState(id, model.StateRunning)
			w.write(id, "a")
			w.exitGuest(id, driver.Exit{Cause: model.CauseOutOfMemory, Detail: "the counter moved"})
		}},
		"volume": {starts: 2, cause: model.CauseStopped, saved: []string{"a", "b"}, tell: func(w *world, id model.InstanceID) {
			w.awaitState(id, model.StateRunning)
			w.write(id, "a")
			w.killVolume(id)
			w.await("the guest is up again", func() bool {
				o, _ := w.observed(id)
				return w.guest(id).starts == 2 && o.State == model.StateRunning
			})
			w.write(id, "b")
			w.want(id, model.InstanceStop)
		}},
		"destroy": {starts: 1, cause: model.CauseStopped, saved: nil, tell: func(w *world, id model.InstanceID) {
			w.awaitState(id, model.StateRunning)
			w.write(id, "a")
			w.want(id, model.InstanceDestroy)
		}},
		"fence": {starts: 1, cause: model.CauseFenced, saved: nil, aside: true, tell: func(w *world, id model.InstanceID) {
			w.awaitState(id, model.StateRunning)
			w.write(id, "a")
			w.want(id, model.InstanceFence)
		}},
		"stop while starting": {starts: 1, few: true, cause: model.CauseStopped, saved: nil, tell: func(w *world, id model.InstanceID) {
			w.await("it is accepted", func() bool { return w.volumes[id] != nil })
			w.want(id, model.InstanceStop)
		}},
	}
}

// TestRestart_AtEveryCall ends the node at its n-th call of anything outside
// it, for every n, and expects the next node to bring the story to its end:
// nothing is started twice, nothing that was acknowledged is lost, no cause is
// forgotten, nothing is left behind.
//
// invariant 6, invariant 12, invariant 14, invariant 16
func TestRestart_AtEveryCall(t *testing.T) {
	ways := map[string]cut{
		"killed before": {kill: true},
		"killed after":  {kill: true, after: true},
		"ended after":   {after: true},
	}
	var telling sync.WaitGroup // t.Parallel would run one a core, and they wait most of the time
	defer telling.Wait()
	all := stories()
	maps.Copy(all, memoryStories())
	for name, s := range all {
		for way, c := range ways {
			telling.Go(func() { t.Run(name+"/"+way, func(t *testing.T) { s.everywhere(t, c) }) })
		}
	}
}

// everywhere tells the story again and again, until it needs fewer calls than
// the node lives for.
func (s story) everywhere(t *testing.T, c cut) {
	for died := true; died; {
		c.at++
		if !t.Run(fmt.Sprint(c.at), func(t *testing.T) { died = s.run(t, c) }) {
			return
		}
	}
	if c.at < 15 {
		t.Errorf("only %d calls: the story is not told", c.at)
	}
}

// run tells the story to a node that dies as c says and to those after it. It
// reports whether one died.
func (s story) run(t *testing.T, c cut) bool {
	w := newWorld(t)
	w.cut = c
	id := w.create()
	told := make(chan struct{})
	go w.keepAlive(told)
	s.tell(w, id)
	if got := w.awaitEnded(id); got != s.cause {
		t.Errorf("cause %q, want %q", got, s.cause)
	}
	w.awaitGone(id)
	told <- struct{}{}
	<-told
	s.check(t, w, id)
	return w.cut.done
}

func (s story) check(t *testing.T, w *world, id model.InstanceID) {
	if got := w.starts(id); got != s.starts && (!s.few || got > s.starts) {
		t.Errorf("%d starts, want %d", got, s.starts)
	}
	if got := w.saved(id); !slices.Equal(got, s.saved) && (!s.late || len(got) == 0 || !slices.Equal(got, s.saved[:len(got)])) {
		t.Errorf("saved %q, want %q", got, s.saved)
	}
	in := w.plane.instances[id]
	if ram, _, _ := strings.Cut(w.memories[in.memory].file, "\x00"); ram != s.ram && !s.late {
		t.Errorf("memory of the head holds %q, want %q", ram, s.ram)
	}
	if in.ended != 1 {
		t.Errorf("ended %d times", in.ended)
	}
	_, err := os.Stat(filepath.Join(w.dir, "aside", string(id), "overlay"))
	if got := err == nil; got != s.aside {
		t.Errorf("overlay aside: %t, want %t", got, s.aside)
	}
	if f := w.volumes[id]; f != nil && f.pid != 0 {
		t.Error("a volume process is left")
	}
	if g := w.guests[id]; g != nil && g.there {
		t.Error("a guest is left")
	}
}

// keepAlive starts a node whenever there is none, until it is told to end.
func (w *world) keepAlive(told chan struct{}) {
	defer close(told)
	for {
		l := w.start()
		select {
		case <-l.over:
		case <-told:
			l.stop()
			return
		}
	}
}
