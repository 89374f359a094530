package control

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/model"
)

// connecting is a client that waits.
type connecting struct {
	phases []api.ConnectPhaseName
	road   api.Attachment
	err    error
	done   chan struct{}
}

func (w *world) connect(name string, req api.ConnectRequest) *connecting {
	k := &connecting{done: make(chan struct{})}
	go func() {
		defer close(k.done)
		k.road, k.err = w.Connect(w.t.Context(), w.who, name, req, func(p api.ConnectPhase) error {
			k.phases = append(k.phases, p.Name)
			return nil
		})
	}()
	return k
}

// TestConnect_IsTheResume: it starts what sleeps, once, and tells each phase.
func TestConnect_IsTheResume(t *testing.T) {
	w := newWorld(t)
	h := w.host("a")
	h.req.Machine = "machine"
	w.asleep(h, "one", rootN("1"))
	k := w.connect("one", api.ConnectRequest{})
	for h.sync(); len(h.last.Instances) == 0; h.sync() {
	}
	d := h.only()
	o := seen(d, model.StateStarting)
	for _, phase := range []string{"accepted", "volume", "memory", "guest"} {
		o.Phases = append(o.Phases, model.Phase{Name: phase, At: w.clock.Now()})
		h.sync(o)
	}
	o.State = model.StateRunning
	h.sync(o)
	<-k.done
	if k.err != nil || k.road.Instance != d.ID || k.road.Ticket == "" {
		t.Fatalf("got %+v, %v", k.road, k.err)
	}
	// Some may be passed between two looks; none comes twice or out of order.
	order := []api.ConnectPhaseName{api.PhaseAuthorised, api.PhasePlaced, api.PhaseFetchingBlocks, api.PhaseRestoringMemory, api.PhaseAttached}
	at := -1
	for _, p := range k.phases {
		i := indexOf(order, p)
		if i <= at {
			t.Fatalf("phases %v, want them in the order %v", k.phases, order)
		}
		at = i
	}
	if k.phases[0] != api.PhaseAuthorised || k.phases[len(k.phases)-1] != api.PhaseAttached {
		t.Errorf("phases %v", k.phases)
	}
}

func indexOf(order []api.ConnectPhaseName, p api.ConnectPhaseName) int {
	for i, o := range order {
		if o == p {
			return i
		}
	}
	return -1
}

// A deadline ends the wait and nothing else, and says why.
func TestConnect_Deadline(t *testing.T) {
	synctest.Test(t, testConnectDeadline) // a busy host's 50 ms are over before anything is done
}

// A deadline that passes before the workspace is looked at names it all the
// same.
func TestConnect_DeadlineNamesTheWorkspace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.asleep(w.host("a"), "one", rootN("1"))
		_, err := w.Connect(t.Context(), w.who, "one", api.ConnectRequest{DeadlineMilli: 50}, func(api.ConnectPhase) error {
			time.Sleep(time.Second) // a client that takes its time
			return nil
		})
		if !errs.Is(err, errs.Unavailable) || !strings.Contains(err.Error(), "workspace one was not up") || !strings.Contains(errs.HintOf(err), "show one") {
			t.Errorf("got %v (hint %q), want the workspace's name in both", err, errs.HintOf(err))
		}
	})
}

func testConnectDeadline(t *testing.T) {
	w := newWorld(t)
	h := w.host("a")
	w.asleep(h, "one", rootN("1"))
	k := w.connect("one", api.ConnectRequest{DeadlineMilli: 50})
	<-k.done
	if !errs.Is(k.err, errs.Unavailable) || !strings.Contains(k.err.Error(), "placed") || errs.HintOf(k.err) == "" {
		t.Errorf("got %v (hint %q), want unavailable, the phase and a hint", k.err, errs.HintOf(k.err))
	}
	ws, err := w.Workspace(t.Context(), w.who, "one")
	if err != nil || ws.Desired != model.DesiredRunning || ws.State != api.WorkspaceStarting {
		t.Errorf("afterwards: %+v, %v, want it on its way still", ws, err)
	}
	again := w.connect("one", api.ConnectRequest{})
	h.sync()
	d := h.only()
	h.sync(seen(d, model.StateRunning))
	<-again.done
	if again.err != nil || again.road.Instance != d.ID {
		t.Errorf("connecting again: %+v, %v", again.road, again.err)
	}
}

func TestConnect_Refused(t *testing.T) {
	w := newWorld(t)
	h := w.host("a")
	d := w.runs(h, "failed", "small")
	o := seen(d, model.StateEnded)
	o.Cause = model.CauseOutOfMemory
	h.sync(o)
	w.create(api.CreateWorkspaceRequest{Name: "stopped", Stopped: true})
	for name, want := range map[string]errs.Kind{"failed": errs.Conflict, "stopped": errs.Conflict, "none": errs.NotFound} {
		k := w.connect(name, api.ConnectRequest{})
		<-k.done
		if !errs.Is(k.err, want) || errs.HintOf(k.err) == "" {
			t.Errorf("%s: got %v (hint %q), want %s with a hint", name, k.err, errs.HintOf(k.err), want)
		}
		if got := k.phases; name == "none" && !cmp.Equal(got, []api.ConnectPhaseName(nil)) {
			t.Errorf("%s: told of %v", name, got)
		}
	}
	for _, ms := range []int64{-1, maxConnectDeadline.Milliseconds() + 1} {
		k := w.connect("stopped", api.ConnectRequest{DeadlineMilli: ms})
		if <-k.done; !errs.Is(k.err, errs.Invalid) {
			t.Errorf("deadline of %d ms: got %v, want invalid", ms, k.err)
		}
	}
}
