package cli

import (
	"context"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/billethq/billet/internal/api"
)

func (a *app) wsSnapshots() *cobra.Command {
	c := &cobra.Command{
		Use: "snapshots NAME", Short: "List the durable states of a workspace, newest first",
		Args: arguments(1, 1), ValidArgsFunction: a.workspaceNames,
	}
	fetch := func(ctx context.Context, c *api.Client, args []string) ([]api.Snapshot, error) {
		return c.Snapshots(ctx, args[0])
	}
	return listing(a, c, []string{"SEQ", "ROOT", "CONSISTENCY", "WRITTEN", "STORED", "AGE"}, fetch, func(now time.Time, s api.Snapshot) []string {
		return []string{
			strconv.FormatUint(uint64(s.Seq), 10), s.Root.Short(), s.Consistency, bytesText(s.WrittenBytes), bytesText(s.StoredBytes), age(now, s.Created),
		}
	})
}
