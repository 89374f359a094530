package control

import (
	"testing"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/model"
)

// A stop whose last flush was refused is no success: what was written last lies
// where the detail says. The next start goes on from what is saved.
func TestStop_LastFlushRefused(t *testing.T) {
	for _, req := range []api.StopWorkspaceRequest{{}, {Cold: true}} {
		w := newWorld(t)
		h := w.host("a")
		d := w.runs(h, "one", "small")
		w.stops(h, d, req)
		o := seen(d, model.StateEnded)
		o.Cause, o.Detail = model.CauseFenced, "its overlay is in /x"
		h.sync(o)
		ws, err := w.Workspace(t.Context(), w.who, "one")
		if err != nil || ws.State != api.WorkspaceFailed || ws.Failure != model.CauseFenced || ws.Detail != o.Detail {
			t.Errorf("cold %t: got %+v, %v, want failed: fenced with the place", req.Cold, ws, err)
		}
		h.sync(o)
		if got := h.only().Desired; got != model.InstanceDestroy {
			t.Errorf("cold %t: what remains is told %s, want destroy", req.Cold, got)
		}
		h.sync()
		if _, err := w.StartWorkspace(t.Context(), w.who, "one", api.StartWorkspaceRequest{}); err != nil {
			t.Fatal(err)
		}
		h.sync()
		if again := h.only(); again.Root != root0 || again.Epoch <= d.Epoch {
			t.Errorf("cold %t: started as %+v, want what is saved under a higher epoch", req.Cold, again)
		}
	}
}
