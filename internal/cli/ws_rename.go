package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/billethq/billet/internal/api"
)

func (a *app) wsRename() *cobra.Command {
	c := &cobra.Command{
		Use: "rename NAME NEW", Short: "Give a workspace another name; its id and content stay",
		Args: arguments(2, 2), ValidArgsFunction: a.workspaceNames,
	}
	json := jsonFlag(c)
	c.RunE = a.calling(func(ctx context.Context, client *api.Client, args []string) error {
		ws, err := client.UpdateWorkspace(ctx, args[0], api.UpdateWorkspaceRequest{Name: args[1]})
		if err != nil {
			return err
		}
		return a.answer(ws, *json)
	})
	return c
}
