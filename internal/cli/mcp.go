package cli

import (
	"context"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/mcp"
)

func (a *app) mcp() *cobra.Command {
	c := &cobra.Command{
		Use:   "mcp",
		Short: "Serve the Model Context Protocol on standard input and output",
		Long: `Serve the Model Context Protocol on standard input and output, for an agent that
starts its tools as commands. What it may do is what the token may do that billet is
called with. Over HTTP the server has it at /mcp.`,
		Args: arguments(0, 0),
	}
	c.RunE = a.calling(func(ctx context.Context, client *api.Client, _ []string) error {
		return mcp.Stdio(ctx, client, buildVersion(), slog.New(slog.NewTextHandler(a.Err, &slog.HandlerOptions{Level: slog.LevelWarn})))
	})
	return c
}
