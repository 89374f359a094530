package control

import (
	"testing"
	"time"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/model"
)

// forked is the answer to a fork that is under way.
type forked struct {
	ws  api.Workspace
	err error
}

// forks begins a fork of workspace one, and returns once the node is told to
// flush for it. had is the newest wish that the node has met.
func (w *world) forks(h *host, d api.DesiredInstance, name string, had uint64) (told uint64, done <-chan forked) {
	w.t.Helper()
	out := make(chan forked, 1)
	go func() {
		ws, err := w.ForkWorkspace(w.t.Context(), w.who, "", "one", api.ForkWorkspaceRequest{Name: name, Stopped: true})
		out <- forked{ws, err}
	}()
	o := seen(d, model.StateRunning)
	o.Flushed = had
	for h.sync(o); h.only().Flush == 0; h.sync(o) {
	}
	return h.only().Flush, out
}

// A wish of an earlier life of the server, which the node has met since, is
// none of those that forks wait for now, whatever the clock says.
func TestFork_AfterARestartOfTheServer(t *testing.T) {
	for name, by := range map[string]time.Duration{"clock set back": -time.Hour, "clock set on": time.Hour} {
		w := newWorld(t)
		h := w.host("a")
		d := w.runs(h, "one", "small")
		before, lost := w.forks(h, d, "two", 0)
		o := seen(d, model.StateRunning)
		o.Flushed = before
		h.sync(o)
		if f := <-lost; f.err != nil {
			t.Fatal(f.err)
		}
		w.clock.advance(by)
		w.open()
		now, done := w.forks(h, d, "three", before)
		if now <= before {
			t.Errorf("%s: wish %d after %d, want a higher one", name, now, before)
		}
		h.sync(o)
		select {
		case f := <-done:
			t.Errorf("%s: forked on the echo of an older wish: %+v", name, f)
		default:
		}
		if err := w.flush(h, d, root0, rootN("5")); err != nil {
			t.Fatal(err)
		}
		o.Flushed = now
		h.sync(o)
		if f := <-done; f.err != nil || f.ws.Head != rootN("5") {
			t.Errorf("%s: got %+v, want a fork of the flushed root", name, f)
		}
	}
}

// Nobody forks an older state than they asked for without being told.
func TestFork_OfWhatIsFencedMeanwhile(t *testing.T) {
	w := newWorld(t)
	h := w.host("a")
	d := w.runs(h, "one", "small")
	_, done := w.forks(h, d, "two", 0)
	o := seen(d, model.StateEnded)
	o.Cause = model.CauseFenced
	h.sync(o)
	if f := <-done; !errs.Is(f.err, errs.Conflict) || errs.HintOf(f.err) == "" {
		t.Errorf("got %+v, want a conflict with a hint", f)
	}
	if _, err := w.ForkWorkspace(t.Context(), w.who, "", "one", api.ForkWorkspaceRequest{Name: "two", Stopped: true}); err != nil {
		t.Errorf("asked again: %v, want a fork of what is saved", err)
	}
}

// A node says how long ago, and never at what time: what is shown is of one
// clock.
func TestShow_DurableByOurClock(t *testing.T) {
	w := newWorld(t)
	h := w.host("a")
	d := w.runs(h, "one", "small")
	w.clock.advance(30 * time.Second)
	o := seen(d, model.StateRunning)
	o.DurableAge = 10 * time.Second
	h.sync(o)
	o.DurableAge += durableSlack / 2 // a report that came quicker
	h.sync(o)
	ws, err := w.Workspace(t.Context(), w.who, "one")
	if err != nil {
		t.Fatal(err)
	}
	if want := w.clock.Now().Add(-o.DurableAge); !ws.DurableAt.Equal(want) || ws.DurableAge != o.DurableAge.Seconds() {
		t.Errorf("durable at %s (%v s ago), want %s", ws.DurableAt, ws.DurableAge, want)
	}
	o.DurableAge = time.Second
	h.sync(o)
	if ws, err = w.Workspace(t.Context(), w.who, "one"); err != nil || ws.DurableAge != 1 {
		t.Errorf("after another flush: durable %v s ago, %v, want 1", ws.DurableAge, err)
	}
}
