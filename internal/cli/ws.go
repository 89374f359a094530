package cli

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/model"
)

// completionTimeout bounds what a press of Tab waits for.
const completionTimeout = time.Second

func (a *app) workspace() *cobra.Command {
	return group("ws", "Work with workspaces",
		a.wsCreate(), a.wsLs(), a.wsShow(), a.wsExec(), a.wsShell(), a.wsCp(), a.wsStop(), a.wsStart(),
		a.wsFork(), a.wsRename(), a.wsRm(), a.wsEvents(), a.wsSnapshots())
}

// workspaceNames completes the first argument.
func (a *app) workspaceNames(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
	defer cancel()
	c, err := a.client()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	list, err := c.Workspaces(ctx)
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var names []string
	for _, ws := range list {
		if strings.HasPrefix(ws.Name, typed) {
			names = append(names, ws.Name+"\t"+string(ws.State))
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
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
