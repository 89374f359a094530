package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/billethq/billet/internal/api"
)

func (a *app) wsRecover() *cobra.Command {
	c := &cobra.Command{
		Use: "recover NAME", Short: "Take back a workspace that was ended for a client of the E2B API",
		Long: `Make a workspace that was killed at its deadline, or by its client, an ordinary one: stopped, with
the disk that was saved then. That is possible for a day; see: billet ws ls --killed`,
		Args: arguments(1, 1),
	}
	json := jsonFlag(c)
	c.RunE = a.calling(func(ctx context.Context, client *api.Client, args []string) error {
		ws, err := client.RecoverWorkspace(ctx, args[0])
		if err != nil {
			return err
		}
		return a.answer(ws, *json)
	})
	return c
}
