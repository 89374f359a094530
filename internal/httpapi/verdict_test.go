package httpapi

import (
	"strings"
	"testing"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/model"
)

func TestVerdict_EndsAWaitOnlyWhenItIsDecided(t *testing.T) {
	const run, stop, gone = model.DesiredRunning, model.DesiredStopped, model.DesiredDeleted
	for _, c := range []struct {
		until   api.Until
		state   api.WorkspaceState
		desired model.Desired
		want    string // "", "done", or the kind of its problem
	}{
		{api.UntilRunning, api.WorkspaceStarting, run, ""},
		{api.UntilRunning, api.WorkspaceStopped, run, ""}, // waits for a place
		{api.UntilRunning, api.WorkspaceStopping, run, ""},
		{api.UntilRunning, api.WorkspaceUnproven, run, ""},
		{api.UntilRunning, api.WorkspaceRunning, run, "done"},
		{api.UntilRunning, api.WorkspaceFailed, stop, "conflict"},
		{api.UntilRunning, api.WorkspaceStopped, stop, "conflict"},
		{api.UntilRunning, api.WorkspaceDeleting, gone, "conflict"},
		{api.UntilStopped, api.WorkspaceRunning, stop, ""},
		{api.UntilStopped, api.WorkspaceStopping, stop, ""},
		{api.UntilStopped, api.WorkspaceUnproven, stop, ""},
		{api.UntilStopped, api.WorkspaceDeleting, gone, ""},
		{api.UntilStopped, api.WorkspaceStopped, stop, "done"},
		{api.UntilStopped, api.WorkspaceFailed, stop, "done"},
		{api.UntilStopped, api.WorkspaceStarting, run, "conflict"},
		{api.UntilSettled, api.WorkspaceStarting, run, ""},
		{api.UntilSettled, api.WorkspaceRunning, run, "done"},
		{api.UntilSettled, api.WorkspaceStopping, stop, ""},
		{api.UntilSettled, api.WorkspaceStopped, stop, "done"},
		{api.UntilSettled, api.WorkspaceFailed, stop, "conflict"},
	} {
		p := verdict(c.until, api.Workspace{Name: "demo", State: c.state, Desired: c.desired, Failure: model.CauseDiskFull})
		got := ""
		switch {
		case p.Problem != nil:
			got = p.Problem.Kind
			if !p.Done || p.Problem.Hint == "" {
				t.Errorf("%q %s %s: %+v", c.until, c.state, c.desired, p)
			}
		case p.Done:
			got = "done"
		}
		if got != c.want {
			t.Errorf("until %q, state %s, desired %s: got %q, want %q", c.until, c.state, c.desired, got, c.want)
		}
	}
}

// A stop whose last flush was refused has not saved the workspace.
func TestVerdict_AStopThatWasFencedIsNoSuccess(t *testing.T) {
	ws := api.Workspace{Name: "demo", State: api.WorkspaceFailed, Desired: model.DesiredStopped, Failure: model.CauseFenced, Detail: "its overlay is in /x"}
	p := verdict(api.UntilStopped, ws)
	if !p.Done || p.Problem == nil || p.Problem.Kind != "conflict" || !strings.Contains(p.Problem.Detail, "/x") {
		t.Errorf("got %+v, want a conflict that says where the overlay lies", p.Problem)
	}
}
