// Package cli is the billet command: one file per verb.
//
// Results go to standard output, everything else to standard error. A verb
// turns flags into calls of the API and prints the answer; it decides nothing
// that the server could not tell another client as well.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"github.com/billethq/billet/internal/errs"
)

// Streams are what a verb reads and writes. Those that are *os.File may be
// terminals.
type Streams struct {
	In  io.Reader
	Out io.Writer
	Err io.Writer
}

// Main runs one command line and returns its exit code.
func Main(args []string, s Streams) int {
	a := &app{Streams: s}
	root := a.root()
	root.SetArgs(args)
	root.SetIn(s.In)
	root.SetOut(s.Out)
	root.SetErr(s.Err)
	return a.report(root.ExecuteContext(context.Background()))
}

// app is one run of the command.
type app struct {
	Streams
	flags   globals
	running bool // flags and arguments were understood
}

// globals are the flags of every verb.
type globals struct {
	state     string
	config    string
	socket    string
	address   string
	tokenFile string
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "billet",
		Short: "Turn machines you control into a compute cloud",
		Long: `billet turns machines you control into a compute cloud: workspaces, sandboxes and jobs
on one fleet. "billet up" starts everything on this machine.`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.NoArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		PersistentPreRun: func(*cobra.Command, []string) {
			a.running = true
		},
	}
	f := root.PersistentFlags()
	f.StringVar(&a.flags.state, "state", "", "directory of all state (BILLET_STATE)")
	f.StringVar(&a.flags.config, "config", "", "configuration file (BILLET_CONFIG)")
	f.StringVar(&a.flags.socket, "socket", "", "Unix socket of the server; default: in the state directory")
	f.StringVar(&a.flags.address, "address", "", "loopback address of the server, instead of its socket")
	f.StringVar(&a.flags.tokenFile, "token-file", "", "file with the token to call with (BILLET_TOKEN has the token itself)")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return errs.New(errs.Invalid, "%s", lower(err.Error())).WithHint("see: %s --help", cmd.CommandPath())
	})
	root.AddCommand(
		a.up(), a.server(), a.gateway(), a.node(),
		a.workspace(), a.image(), a.tier(), a.token(),
		a.sshKey(), a.sshCert(), a.sshConfig(),
		a.mcp(), a.check(), a.version(), exitCodes(),
	)
	root.SetHelpCommand(helpCommand())
	return root
}

// group is a command that only has commands. Without one it shows its help;
// a mistyped one is an error that names the nearest.
func group(use, short string, subs ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{
		Use: use, Short: short,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cmd.Help()
			}
			e := errs.New(errs.Invalid, "there is no command %q", cmd.CommandPath()+" "+args[0])
			cmd.SuggestionsMinimumDistance = 2
			if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
				return e.WithHint("did you mean: %s %s", cmd.CommandPath(), near[0])
			}
			return e.WithHint("see: %s --help", cmd.CommandPath())
		},
	}
	c.AddCommand(subs...)
	return c
}

// arguments checks how many there are; more than high is allowed when high is
// negative.
func arguments(low, high int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < low:
			return errs.New(errs.Invalid, "%s: an argument is missing", cmd.CommandPath()).WithHint("usage: %s", cmd.UseLine())
		case high >= 0 && len(args) > high:
			return errs.New(errs.Invalid, "%s: unexpected argument %q", cmd.CommandPath(), args[high]).WithHint("usage: %s", cmd.UseLine())
		}
		return nil
	}
}

// report prints err and returns the exit code.
func (a *app) report(err error) int {
	if err == nil {
		return exitOK
	}
	var ended *exit
	if errors.As(err, &ended) {
		if ended.err != nil {
			a.printError(ended.err)
		}
		return ended.code
	}
	var known *errs.Error
	if !errors.As(err, &known) && !a.running {
		// The command line library's own complaints.
		err = errs.New(errs.Invalid, "%s", lower(err.Error())).WithHint("see: billet --help")
	}
	a.printError(err)
	return codeOf(errs.KindOf(err))
}

func (a *app) printError(err error) {
	fmt.Fprintf(a.Err, "error: %s\n", plain(err.Error()))
	if hint := errs.HintOf(err); hint != "" {
		fmt.Fprintf(a.Err, "hint: %s\n", plain(hint))
	}
}

// note tells a person something that is no result.
func (a *app) note(format string, args ...any) {
	fmt.Fprintln(a.Err, plain(fmt.Sprintf(format, args...)))
}

// lower makes the first letter of a library's message small, as ours are.
func lower(s string) string {
	if s == "" {
		return s
	}
	return strings.ToLower(s[:1]) + s[1:]
}

// buildVersion is the version of this binary.
func buildVersion() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "unknown"
}

// getenv reads a variable; the empty string is unset.
func getenv(name string) string { return os.Getenv(name) }
