package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/errs"
)

func (a *app) wsStart() *cobra.Command {
	var req api.StartWorkspaceRequest
	c := &cobra.Command{
		Use: "start NAME", Short: "Bring a workspace back",
		Args: arguments(1, 1), ValidArgsFunction: a.workspaceNames,
	}
	f := c.Flags()
	f.BoolVar(&req.FromSnapshot, "from-snapshot", false, "start from the newest snapshot although an earlier instance is live; says what that gives up")
	f.BoolVar(&req.Force, "force", false, "with --from-snapshot: give that up")
	noWait, json := waitFlag(c), jsonFlag(c)
	c.RunE = a.calling(func(ctx context.Context, client *api.Client, args []string) error {
		if req.Force && !req.FromSnapshot {
			return errs.New(errs.Invalid, "--force needs --from-snapshot").
				WithHint("both give up what an earlier instance had not saved: billet ws start %s --from-snapshot --force", args[0])
		}
		ws, err := client.StartWorkspace(ctx, args[0], req)
		if err != nil {
			return err
		}
		if l := ws.GivenUp; l != nil {
			a.note("gave up instance %s on node %s: %s", l.ID, l.Node, lossText(*l))
		}
		ws, err = a.settle(ctx, client, ws, api.UntilRunning, *noWait)
		if err != nil || !*json {
			return err
		}
		return a.printJSON(ws)
	})
	return c
}
