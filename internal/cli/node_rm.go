package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/model"
)

func (a *app) nodeRm() *cobra.Command {
	c := &cobra.Command{
		Use: "rm NAME", Short: "Forget a node whose host is gone for good",
		Long: `Forget a node whose host is gone for good. While it is heard this is refused. While an
instance on it is not proved gone it is refused as well, and says what would be lost;
--force is your word that the host is gone: the instances end, what they had not saved
is lost, and their workspaces can be started from their newest snapshots.

Do not say so of a host that is only out of reach: its guests would run on beside the
new ones until it is heard again.`,
		Args: arguments(1, 1), ValidArgsFunction: first(a.nodeNames()),
	}
	force := c.Flags().Bool("force", false, "the host is gone for good, with everything on it that was not durable")
	json := jsonFlag(c)
	c.RunE = a.calling(func(ctx context.Context, client *api.Client, args []string) error {
		removed, err := client.RemoveNode(ctx, args[0], *force)
		if err != nil {
			return err
		}
		if *json {
			return a.printJSON(removed)
		}
		for _, l := range removed.Lost {
			if err := a.line(plain(lossText(l))); err != nil {
				return err
			}
		}
		a.note("node %s is forgotten", removed.Name)
		return nil
	})
	return c
}

// lossText says what went with one instance.
func lossText(l api.LostInstance) string {
	switch {
	case l.Workspace == "":
		return string(l.ID) + ": nothing; its workspace is gone already"
	case l.Cause == model.CauseFenced:
		return l.Workspace + ": what was given up before, and lay aside on that host"
	}
	text := l.Workspace + ": what it wrote since " + l.DurableAt.Format(time.RFC3339)
	if l.UnsavedBytes > 0 {
		text += " (" + bytesText(l.UnsavedBytes) + " when its node was last heard)"
	}
	return text
}
