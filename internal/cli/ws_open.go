package cli

import (
	"context"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/clock"
	"github.com/billethq/billet/internal/errs"
)

func (a *app) wsOpen() *cobra.Command {
	c := &cobra.Command{
		Use: "open NAME PORT", Short: "Print a link that opens a server in a workspace in a browser, once",
		Args: arguments(2, 2), ValidArgsFunction: a.workspaceNames,
	}
	path := c.Flags().Bool("path", false, "a link with the workspace in its path, for where PORT-NAME.domain does not resolve")
	json := jsonFlag(c)
	c.RunE = a.calling(func(ctx context.Context, client *api.Client, args []string) error {
		port, err := portArgument(args[1])
		if err != nil {
			return err
		}
		link, err := client.OpenPort(ctx, args[0], api.OpenPortRequest{Port: port})
		if err != nil {
			return err
		}
		if *json {
			return a.printJSON(link)
		}
		a.note("good once, within %s", duration(link.Expires.Sub(clock.Real{}.Now())))
		if *path {
			return a.line(link.PathURL)
		}
		return a.line(link.URL)
	})
	return c
}

func portArgument(text string) (int, error) {
	port, err := strconv.Atoi(text)
	if err != nil {
		return 0, errs.New(errs.Invalid, "%q is no port", text).WithHint("write a number from 1 to 65535")
	}
	return port, nil
}

func (a *app) wsShare() *cobra.Command {
	var req api.SharePortRequest
	c := &cobra.Command{
		Use: "share NAME PORT --public", Short: "Make a server in a workspace public for a while",
		Args: arguments(2, 2), ValidArgsFunction: a.workspaceNames,
	}
	c.Flags().BoolVar(&req.Public, "public", false, "whoever reaches the gateway may enter; it has to be said")
	c.Flags().StringVar(&req.For, "for", "1h", "how long, at most 168h")
	json := jsonFlag(c)
	c.RunE = a.calling(func(ctx context.Context, client *api.Client, args []string) (err error) {
		if req.Port, err = portArgument(args[1]); err != nil {
			return err
		}
		share, err := client.SharePort(ctx, args[0], req)
		if err != nil {
			return err
		}
		if *json {
			return a.printJSON(share)
		}
		a.note("public until %s; end it with: billet ws unshare %s %d", share.Expires.Format(time.RFC3339), share.Workspace, share.Port)
		return a.line(share.URL)
	})
	return c
}

func (a *app) wsShares() *cobra.Command {
	c := &cobra.Command{
		Use: "shares NAME", Short: "List the public ports of a workspace",
		Args: arguments(1, 1), ValidArgsFunction: a.workspaceNames,
	}
	fetch := func(ctx context.Context, c *api.Client, args []string) ([]api.Share, error) {
		return c.Shares(ctx, args[0])
	}
	return listing(a, c, []string{"PORT", "EXPIRES", "URL"}, fetch, func(now time.Time, s api.Share) []string {
		return []string{strconv.Itoa(s.Port), "in " + duration(s.Expires.Sub(now)), s.URL}
	})
}

func (a *app) wsUnshare() *cobra.Command {
	return &cobra.Command{
		Use: "unshare NAME PORT", Short: "Make a public port private again",
		Args: arguments(2, 2), ValidArgsFunction: a.workspaceNames,
		RunE: a.calling(func(ctx context.Context, c *api.Client, args []string) error {
			port, err := portArgument(args[1])
			if err != nil {
				return err
			}
			return c.UnsharePort(ctx, args[0], port)
		}),
	}
}
