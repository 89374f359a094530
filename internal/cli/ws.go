package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/model"
)

func (a *app) workspace() *cobra.Command {
	return group("ws", "Work with workspaces",
		a.wsCreate(), a.wsLs(), a.wsShow(), a.wsExec(), a.wsShell(), a.wsCp(), a.wsStop(), a.wsStart(),
		a.wsFork(), a.wsRename(), a.wsRecover(), a.wsRm(), a.wsEvents(), a.wsSnapshots(),
		a.wsOpen(), a.wsShare(), a.wsShares(), a.wsUnshare())
}

// answer prints a workspace that a verb made or changed: its name alone, for
// scripts, or all of it.
func (a *app) answer(ws api.Workspace, json bool) error {
	if json {
		return a.printJSON(ws)
	}
	return a.line(ws.Name)
}

// settle waits, unless it shall not, until the workspace is what was asked
// for, and returns its newest state.
func (a *app) settle(ctx context.Context, c *api.Client, ws api.Workspace, until api.Until, noWait bool) (api.Workspace, error) {
	if noWait {
		return ws, nil
	}
	return a.wait(ctx, c, ws.Name, until)
}

// causeText says why a workspace failed and what it waits for.
func causeText(ws api.Workspace) string {
	if ws.Failure == model.CauseNone {
		return ws.Detail
	}
	if ws.Detail == "" {
		return string(ws.Failure)
	}
	return string(ws.Failure) + ": " + ws.Detail
}
