package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/billethq/billet/internal/api"
)

func (a *app) wsStop() *cobra.Command {
	c := &cobra.Command{
		Use: "stop NAME", Short: "Save a workspace, memory included, and end its guest",
		Long: "Save a workspace and end its guest. Its memory is saved with its disk where the driver can\n" +
			"take it: started again, every process goes on where it was. With --cold the guest is shut\n" +
			"down instead, and started again it boots.",
		Args: arguments(1, 1), ValidArgsFunction: a.workspaceNames,
	}
	cold := c.Flags().Bool("cold", false, "shut the guest down and keep no memory")
	noWait, json := waitFlag(c), jsonFlag(c)
	c.RunE = a.calling(func(ctx context.Context, client *api.Client, args []string) error {
		ws, err := client.StopWorkspace(ctx, args[0], api.StopWorkspaceRequest{Cold: *cold})
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
