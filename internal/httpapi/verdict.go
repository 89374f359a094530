package httpapi

import (
	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/model"
)

// verdict says whether a wait for a workspace is over, and how. It never ends
// a wait that can still come to what was waited for.
func verdict(until api.Until, ws api.Workspace) api.Progress {
	p := api.Progress{Workspace: ws}
	if until == api.UntilSettled {
		until = api.UntilStopped
		// A failure sets what is wanted to stopped. Who waits without a wish
		// of his own waited for it to run.
		if ws.Desired == model.DesiredRunning || ws.State == api.WorkspaceFailed {
			until = api.UntilRunning
		}
	}
	var err error
	switch until {
	case api.UntilSettled: // resolved above
	case api.UntilRunning:
		p.Done, err = awaitRunning(ws)
	case api.UntilStopped:
		p.Done, err = awaitStopped(ws)
	}
	if err != nil {
		problem := api.ProblemOf(err)
		p.Problem = &problem
	}
	return p
}

func awaitRunning(ws api.Workspace) (bool, error) {
	switch ws.State {
	case api.WorkspaceRunning:
		return true, nil
	case api.WorkspaceFailed:
		return true, failure(ws)
	case api.WorkspaceDeleting:
		return true, errs.New(errs.Conflict, "workspace %s is being deleted", ws.Name).WithHint("make another one with: billet ws create")
	case api.WorkspaceStopped:
		if ws.Desired != model.DesiredRunning {
			return true, errs.New(errs.Conflict, "workspace %s was stopped", ws.Name).WithHint("start it with: billet ws start %s", ws.Name)
		}
	case api.WorkspaceStarting, api.WorkspaceStopping, api.WorkspaceUnproven:
	}
	// Stopped but wanted running waits for a place: the detail says for what.
	return false, nil
}

func awaitStopped(ws api.Workspace) (bool, error) {
	switch ws.State {
	case api.WorkspaceStopped, api.WorkspaceFailed:
		if ws.Failure == model.CauseFenced {
			return true, failure(ws) // what it wrote last was refused, and lies aside
		}
		// Failed is stopped with a cause; who asked for a stop has it.
		return true, nil
	case api.WorkspaceStarting, api.WorkspaceRunning, api.WorkspaceStopping, api.WorkspaceUnproven:
		if ws.Desired == model.DesiredRunning {
			return true, errs.New(errs.Conflict, "workspace %s is wanted running", ws.Name).WithHint("stop it with: billet ws stop %s", ws.Name)
		}
	case api.WorkspaceDeleting:
		// It ends when its record is gone, which the watch reports.
	}
	return false, nil
}

func failure(ws api.Workspace) error {
	msg := string(ws.Failure)
	if ws.Detail != "" {
		msg += ": " + ws.Detail
	}
	return errs.New(errs.Conflict, "workspace %s failed: %s", ws.Name, msg).
		WithHint("its last durable state is kept; look at: billet ws events %s", ws.Name)
}
