package cli

import (
	"context"
	"errors"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/billethq/billet/internal/daemon"
)

// run makes the RunE of a role: it runs until Ctrl-C or SIGTERM, which is its
// good end.
func (a *app) run(role func(context.Context, daemon.Options) error, verbose *bool) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, _ []string) error {
		cfg, err := a.settings()
		if err != nil {
			return err
		}
		level := slog.LevelInfo
		if *verbose {
			level = slog.LevelDebug
		}
		ctx, stop := untilInterrupt(cmd.Context())
		defer stop()
		err = role(ctx, daemon.Options{
			Config: cfg, Version: buildVersion(), Out: a.Out,
			Log: slog.New(slog.NewTextHandler(a.Err, &slog.HandlerOptions{Level: level})),
		})
		if errors.Is(context.Cause(ctx), errDetached) && (err == nil || errors.Is(err, errDetached) || errors.Is(err, context.Canceled)) {
			return nil
		}
		return err
	}
}

func verboseFlag(c *cobra.Command) *bool {
	return c.Flags().BoolP("verbose", "v", false, "log every request and step")
}

func (a *app) up() *cobra.Command {
	c := &cobra.Command{
		Use:   "up",
		Short: "Run server, gateway and node in one process",
		Long: `Run server, gateway and node in one process, with defaults for everything.

It says what it found and what it serves. Ctrl-C or SIGTERM ends it and leaves the
sandboxes running; the next start adopts them.`,
		Args: arguments(0, 0),
	}
	c.RunE = a.run(daemon.Up, verboseFlag(c))
	return c
}

func (a *app) server() *cobra.Command {
	c := &cobra.Command{Use: "server", Short: "Run the control plane alone", Args: arguments(0, 0)}
	c.RunE = a.run(daemon.Server, verboseFlag(c))
	return c
}

func (a *app) gateway() *cobra.Command {
	c := &cobra.Command{Use: "gateway", Short: "Run the gateway alone", Args: arguments(0, 0)}
	c.RunE = a.run(daemon.Gateway, verboseFlag(c))
	return c
}

// node is a role and the noun of the nodes.
func (a *app) node() *cobra.Command {
	c := group("node", "Run a node alone; list and remove nodes", a.nodeLs(), a.nodeRm())
	mistyped := c.RunE
	run := a.run(daemon.Node, verboseFlag(c))
	c.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return mistyped(cmd, args)
		}
		return run(cmd, args)
	}
	return c
}
