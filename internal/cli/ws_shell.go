package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/guest/execclient"
)

// loginShell starts the user's own shell as a login shell.
const loginShell = `exec "${SHELL:-/bin/sh}" -l`

func (a *app) wsShell() *cobra.Command {
	var cmd execclient.Command
	c := &cobra.Command{
		Use: "shell NAME", Short: "Open a login shell in a workspace",
		Args: arguments(1, 1), ValidArgsFunction: a.workspaceNames,
	}
	f := c.Flags()
	f.StringVarP(&cmd.User, "user", "u", "", "whose shell; default: the workspace's user")
	f.StringVarP(&cmd.Cwd, "workdir", "w", "", "begin in this directory; default: the user's home")
	c.RunE = a.calling(func(ctx context.Context, client *api.Client, args []string) error {
		if _, ok := terminal(a.In); !ok {
			return &exit{code: exitExec, err: errs.New(errs.Invalid, "a shell wants a terminal, standard input is none").
				WithHint("run one command with: billet ws exec %s -- COMMAND", args[0])}
		}
		cmd.Args = []string{"/bin/sh", "-c", loginShell}
		return a.exec(ctx, client, args[0], cmd, true, true)
	})
	return c
}
