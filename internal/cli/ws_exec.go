package cli

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/guest/execclient"
)

func (a *app) wsExec() *cobra.Command {
	var (
		cmd              execclient.Command
		interactive, tty bool
		env              []string
	)
	c := &cobra.Command{
		Use:                   "exec NAME [flags] -- COMMAND [ARG...]",
		DisableFlagsInUseLine: true,
		Short:                 "Run a command in a workspace",
		Long: `Run a command in a workspace and exit with its exit code (see: billet help exit-codes).

Standard input is passed on when it is a file or a pipe; from a terminal, -i asks for
it. Signals are passed on to the command; a third Ctrl-C leaves it behind.`,
		ValidArgsFunction: a.workspaceNames,
	}
	f := c.Flags()
	f.BoolVarP(&interactive, "interactive", "i", false, "pass standard input on although it is a terminal")
	f.BoolVarP(&tty, "tty", "t", false, "run the command on a terminal")
	f.StringVarP(&cmd.User, "user", "u", "", "run it as this user; default: the workspace's")
	f.StringVarP(&cmd.Cwd, "workdir", "w", "", "run it in this directory; default: the user's home")
	f.StringArrayVarP(&env, "env", "e", nil, "set a variable, as KEY=VALUE; KEY alone takes it from here")
	// Without the dashes a flag of the command would be taken for one of ours,
	// in silence when we have one of that name.
	c.Args = func(cmd *cobra.Command, args []string) error {
		if cmd.ArgsLenAtDash() == 1 && len(args) > 1 {
			return nil
		}
		return &exit{code: exitExec, err: errs.New(errs.Invalid, "a name, two dashes and a command are wanted").WithHint("usage: %s", cmd.UseLine())}
	}
	c.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return &exit{code: exitExec, err: errs.New(errs.Invalid, "%s", lower(err.Error())).WithHint("usage: %s", cmd.UseLine())}
	})
	c.RunE = a.calling(func(ctx context.Context, client *api.Client, args []string) error {
		var err error
		if cmd.Env, err = variables(env); err != nil {
			return &exit{code: exitExec, err: err}
		}
		cmd.Args = args[1:]
		return a.exec(ctx, client, args[0], cmd, interactive, tty)
	})
	return c
}

// variables reads KEY=VALUE. A KEY alone keeps a secret out of the command
// line: its value comes from the environment.
func variables(list []string) (map[string]string, error) {
	out := map[string]string{}
	for _, kv := range list {
		k, v, given := strings.Cut(kv, "=")
		if k == "" || strings.ContainsAny(k, " \t\n") {
			return nil, errs.New(errs.Invalid, "--env %q names no variable", kv).WithHint("write KEY=VALUE")
		}
		if !given {
			v = getenv(k)
		}
		out[k] = v
	}
	return out, nil
}

// exec runs cmd with this process's streams. Its error carries the exit code.
func (a *app) exec(ctx context.Context, c *api.Client, name string, cmd execclient.Command, interactive, tty bool) error {
	guest, err := a.guest(ctx, c, name)
	if err != nil {
		return &exit{code: exitExec, err: err}
	}
	s, err := a.openSession(ctx, interactive, tty)
	if err != nil {
		return &exit{code: exitExec, err: err}
	}
	defer s.close()
	s.connect(&cmd)
	code, err := guest.Run(s.ctx, cmd)
	s.close()
	switch {
	case s.left():
		a.note("left behind: the command may still run in %s", name)
		return &exit{code: exitDetached}
	case code < 0:
		return &exit{code: exitExec, err: err}
	case code == 0 && err == nil:
		return nil
	}
	return &exit{code: code, err: err}
}
