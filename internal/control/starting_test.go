package control

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/model"
)

// Nothing healthy is given up without a word, nor without saying what it is.
func TestStart_FromSnapshotSaysWhatItGivesUp(t *testing.T) {
	w := newWorld(t)
	h := w.host("a")
	made := w.create(api.CreateWorkspaceRequest{Name: "one"})
	h.sync()
	old := h.only()
	o := seen(old, model.StateRunning)
	o.UnsavedBytes = 12 << 20
	h.sync(o)

	_, err := w.StartWorkspace(t.Context(), w.who, "one", api.StartWorkspaceRequest{FromSnapshot: true})
	if !errs.Is(err, errs.Conflict) || !strings.Contains(errs.HintOf(err), "--force") {
		t.Fatalf("without force: got %v (hint %q), want a conflict and how to force it", err, errs.HintOf(err))
	}
	for _, want := range []string{string(old.ID), "on node a", "12 MiB", "2026-03-01T12:00:00Z"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("without force: %v does not name %s", err, want)
		}
	}
	if h.sync(o); h.only().Desired != model.InstanceRun {
		t.Errorf("after the refusal: told %s, want run", h.only().Desired)
	}
	if _, err := w.StartWorkspace(t.Context(), w.who, "one", api.StartWorkspaceRequest{Force: true}); !errs.Is(err, errs.Invalid) {
		t.Errorf("force alone: got %v, want invalid", err)
	}

	ws, err := w.StartWorkspace(t.Context(), w.who, "one", api.StartWorkspaceRequest{FromSnapshot: true, Force: true})
	if err != nil {
		t.Fatal(err)
	}
	want := &api.LostInstance{ID: old.ID, Node: "a", Workspace: "one", DurableAt: made.DurableAt, UnsavedBytes: 12 << 20}
	if d := cmp.Diff(want, ws.GivenUp); d != "" {
		t.Errorf("given up (-want +got):\n%s", d)
	}
	if ws.Epoch != old.Epoch+2 || ws.Instance == nil || ws.Instance.ID == old.ID {
		t.Errorf("got %+v, want another instance under a higher epoch", ws)
	}
	if again, err := w.Workspace(t.Context(), w.who, "one"); err != nil || again.GivenUp != nil {
		t.Errorf("later: %+v, %v, want no word of what was given up", again.GivenUp, err)
	}
}

// With nothing live there is nothing to give up.
func TestStart_FromSnapshotOfAStoppedOne(t *testing.T) {
	w := newWorld(t)
	w.host("a")
	w.create(api.CreateWorkspaceRequest{Name: "one", Stopped: true})
	ws, err := w.StartWorkspace(t.Context(), w.who, "one", api.StartWorkspaceRequest{FromSnapshot: true})
	if err != nil || ws.Instance == nil || ws.GivenUp != nil {
		t.Errorf("got %+v, %v, want it placed and nothing given up", ws, err)
	}
}
