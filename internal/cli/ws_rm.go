package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/billethq/billet/internal/api"
)

func (a *app) wsRm() *cobra.Command {
	c := &cobra.Command{
		Use: "rm NAME", Short: "Delete a workspace",
		Long: `Delete a workspace and its snapshots. While state of it is not durable this is refused,
and says what would be lost; --force means it.`,
		Args: arguments(1, 1), ValidArgsFunction: a.workspaceNames,
	}
	force := c.Flags().Bool("force", false, "lose what is not saved yet")
	noWait := waitFlag(c)
	c.RunE = a.calling(func(ctx context.Context, client *api.Client, args []string) error {
		// Its id, since another one may take its name while this waits.
		ws, err := client.Workspace(ctx, args[0])
		if err != nil {
			return err
		}
		if err := client.DeleteWorkspace(ctx, string(ws.ID), *force); err != nil || *noWait {
			return err
		}
		return a.gone(ctx, client, string(ws.ID))
	})
	return c
}
