package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/model"
)

func (a *app) wsFork() *cobra.Command {
	var req api.ForkWorkspaceRequest
	c := &cobra.Command{
		Use: "fork NAME [NEW]", Short: "Make a second workspace from the newest state of one",
		Args: arguments(1, 2), ValidArgsFunction: a.workspaceNames,
	}
	c.Flags().BoolVar(&req.Stopped, "stopped", false, "do not start it")
	noWait, json := waitFlag(c), jsonFlag(c)
	c.RunE = a.calling(func(ctx context.Context, client *api.Client, args []string) error {
		if len(args) == 2 {
			req.Name = args[1]
			if err := model.CheckName("workspace", req.Name); err != nil {
				return err
			}
		}
		ws, err := client.ForkWorkspace(ctx, model.NewID(), args[0], req)
		if err != nil {
			return err
		}
		ws, err = a.settle(ctx, client, ws, api.UntilSettled, *noWait)
		if err != nil {
			return err
		}
		return a.answer(ws, *json)
	})
	return c
}
