package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/billethq/billet/internal/api"
)

func (a *app) wsLs() *cobra.Command {
	c := &cobra.Command{Use: "ls", Short: "List workspaces", Args: arguments(0, 0)}
	killed := c.Flags().Bool("killed", false, "those that were ended for a client of the E2B API within the last day")
	header := []string{"NAME", "STATE", "TIER", "IMAGE", "NODE", "SAVED", "AGE", "DETAIL"}
	return listing(a, c, header, func(ctx context.Context, client *api.Client, _ []string) ([]api.Workspace, error) {
		if *killed {
			return client.KilledWorkspaces(ctx)
		}
		return client.Workspaces(ctx)
	}, func(now time.Time, ws api.Workspace) []string {
		node := "-"
		if ws.Instance != nil {
			node = ws.Instance.Node
		}
		return []string{ws.Name, string(ws.State), ws.Tier, ws.Image, node, savedText(ws), age(now, ws.Created), causeText(ws)}
	})
}
