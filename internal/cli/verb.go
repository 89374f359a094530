package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/clock"
)

// calling makes the RunE of a verb that calls the server.
func (a *app) calling(fn func(ctx context.Context, c *api.Client, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		client, err := a.client()
		if err != nil {
			return err
		}
		defer client.Close()
		return fn(cmd.Context(), client, args)
	}
}

// listing makes c a verb that prints a list: as a table with a row for each
// item, or as the API gives it.
func listing[T any](a *app, c *cobra.Command, header []string, fetch func(context.Context, *api.Client, []string) ([]T, error), row func(now time.Time, item T) []string) *cobra.Command {
	json := jsonFlag(c)
	c.RunE = a.calling(func(ctx context.Context, client *api.Client, args []string) error {
		items, err := fetch(ctx, client, args)
		if err != nil {
			return err
		}
		if *json {
			return a.printJSON(api.List[T]{Items: items})
		}
		now := clock.Real{}.Now()
		rows := make([][]string, 0, len(items))
		for _, item := range items {
			rows = append(rows, row(now, item))
		}
		return a.table(header, rows)
	})
	return c
}

// plainly makes a fetch of a list that has no arguments.
func plainly[T any](fetch func(*api.Client, context.Context) ([]T, error)) func(context.Context, *api.Client, []string) ([]T, error) {
	return func(ctx context.Context, c *api.Client, _ []string) ([]T, error) { return fetch(c, ctx) }
}
