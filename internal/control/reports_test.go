package control

import (
	"testing"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/model"
)

// A node gives a report up for the next, and the server may come to the older
// one last: what it says is over, and must not stand until something happens.
//
// invariant 19
func TestSync_OlderReportIsRefused(t *testing.T) {
	w := newWorld(t)
	h := w.host("a")
	w.create(api.CreateWorkspaceRequest{Name: "one"})
	h.sync()
	d := h.only()
	h.req.Life, h.req.Report = "first", 1
	given := h.req
	given.Observed = []api.ObservedInstance{seen(d, model.StateStarting)}
	h.req.Report = 2
	h.sync(seen(d, model.StateRunning))
	if _, err := w.Sync(t.Context(), given); !errs.Is(err, errs.Stale) {
		t.Errorf("report 1 after report 2: got %v, want stale", err)
	}
	state := func() api.WorkspaceState {
		t.Helper()
		ws, err := w.Workspace(t.Context(), w.who, "one")
		if err != nil {
			t.Fatal(err)
		}
		return ws.State
	}
	if got := state(); got != api.WorkspaceRunning {
		t.Errorf("the workspace is %s, the newest report says running", got)
	}
	h.sync(seen(d, model.StateRunning)) // the same once more, as a client may send it

	// A new process of the node begins to count anew.
	h.req.Life, h.req.Report = "second", 1
	h.sync(seen(d, model.StateStarting))
	if got := state(); got != api.WorkspaceStarting {
		t.Errorf("the workspace is %s, the restarted node says starting", got)
	}
}
