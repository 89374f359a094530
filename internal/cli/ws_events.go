package cli

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/clock"
)

// eventPage is how many events are asked for at a time.
const eventPage = 1000

func (a *app) wsEvents() *cobra.Command {
	c := &cobra.Command{
		Use: "events NAME", Short: "Show the history of a workspace",
		Args: arguments(1, 1), ValidArgsFunction: a.workspaceNames,
	}
	follow := c.Flags().Bool("follow", false, "go on with what happens; as JSON, one event a line")
	asJSON := jsonFlag(c)
	c.RunE = a.calling(func(ctx context.Context, client *api.Client, args []string) error {
		if *follow {
			return a.followEvents(ctx, client, args[0], *asJSON)
		}
		events, err := allEvents(ctx, client, args[0])
		if err != nil {
			return err
		}
		if *asJSON {
			return a.printJSON(api.List[api.Event]{Items: events})
		}
		now := clock.Real{}.Now()
		var rows [][]string
		for _, e := range events {
			rows = append(rows, []string{age(now, e.At), e.Kind, orElse(e.Actor, "-"), dataText(e)})
		}
		return a.table([]string{"AGE", "EVENT", "ACTOR", "DATA"}, rows)
	})
	return c
}

// allEvents reads page by page.
func allEvents(ctx context.Context, c *api.Client, name string) ([]api.Event, error) {
	all := []api.Event{}
	for after := int64(0); ; after = all[len(all)-1].Seq {
		page, err := c.Events(ctx, name, after, eventPage)
		if err != nil {
			return nil, err
		}
		if all = append(all, page...); len(page) < eventPage {
			return all, nil
		}
	}
}

// followEvents prints until Ctrl-C, which is its good end.
func (a *app) followEvents(ctx context.Context, c *api.Client, name string, asJSON bool) error {
	ctx, stop := untilInterrupt(ctx)
	defer stop()
	err := c.FollowEvents(ctx, name, 0, func(e api.Event) error {
		line := plain(e.At.Format("2006-01-02 15:04:05") + "  " + e.Kind + "  " + dataText(e))
		if asJSON {
			text, err := json.Marshal(e)
			if err != nil {
				return err
			}
			line = string(text)
		}
		return a.line(line)
	})
	if errors.Is(err, errDetached) {
		return nil
	}
	return err
}

func dataText(e api.Event) string {
	var out []string
	for k, v := range e.Data {
		out = append(out, k+"="+v)
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}
