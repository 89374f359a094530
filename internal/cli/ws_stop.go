package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/billethq/billet/internal/api"
)

func (a *app) wsStop() *cobra.Command {
	c := &cobra.Command{
		Use: "stop NAME", Short: "Save a workspace and end its guest",
		Args: arguments(1, 1), ValidArgsFunction: a.workspaceNames,
	}
	noWait, json := waitFlag(c), jsonFlag(c)
	c.RunE = a.calling(func(ctx context.Context, client *api.Client, args []string) error {
		ws, err := client.StopWorkspace(ctx, args[0])
		if err != nil {
			return err
		}
		ws, err = a.settle(ctx, client, ws, api.UntilStopped, *noWait)
		if err != nil || !*json {
			return err
		}
		return a.printJSON(ws)
	})
	return c
}
