package cli

import (
	"github.com/spf13/cobra"

	"github.com/billethq/billet/internal/errs"
)

// The exit codes. They are part of the interface: scripts read them.
const (
	exitOK          = 0
	exitInternal    = 1
	exitInvalid     = 2
	exitNotFound    = 3
	exitConflict    = 4
	exitExhausted   = 5
	exitUnavailable = 6
	exitDenied      = 7
	exitUnsupported = 8
	exitUnwell      = 9   // check ran and found something
	exitExec        = 125 // exec and shell: billet's own failure, whatever its kind
	exitDetached    = 130 // Ctrl-C ended the wait and nothing else
)

// codeOf is the exit code of an error's kind.
func codeOf(k errs.Kind) int {
	switch k {
	case errs.Invalid:
		return exitInvalid
	case errs.NotFound:
		return exitNotFound
	case errs.Conflict, errs.Stale:
		return exitConflict
	case errs.Exhausted:
		return exitExhausted
	case errs.Unavailable:
		return exitUnavailable
	case errs.Unauthenticated, errs.Denied:
		return exitDenied
	case errs.Unsupported:
		return exitUnsupported
	case errs.Internal:
		return exitInternal
	}
	return exitInternal
}

// exit ends the command with a code of its own, after err if there is one.
type exit struct {
	code int
	err  error
}

func (e *exit) Error() string {
	if e.err != nil {
		return e.err.Error()
	}
	return "exit"
}

func (e *exit) Unwrap() error { return e.err }

const exitCodeHelp = `Exit codes of billet:

    0  it is done
    1  internal       a fault of billet; the log has the cause
    2  invalid        the command line, the configuration or a value can never work
    3  not found      what was named is not there
    4  conflict       the state of what was named forbids it now, or it was overtaken
    5  exhausted      a limit or a capacity is used up
    6  unavailable    a part that is needed does not answer; trying again may help
    7  denied         the token is missing or unknown, or may not do this
    8  unsupported    this build, host or driver cannot do it
    9  unwell         "billet check" ran and found something
  130  detached       Ctrl-C ended the wait; what was waited for goes on

"billet ws exec" and "billet ws shell" exit with the code of the command in the
workspace, or with 128 and the number of the signal that ended it. Their own
failures are told apart from those:

  125  billet could not run the command, or lost it
  126  the command is there and cannot be executed
  127  the command is not there
`

// exitCodes is a topic of the help.
func exitCodes() *cobra.Command {
	return &cobra.Command{Use: "exit-codes", Short: "What the exit codes mean", Long: exitCodeHelp}
}

// helpCommand shows the help of a command or topic.
func helpCommand() *cobra.Command {
	return &cobra.Command{
		Use: "help [COMMAND]", Short: "Explain a command",
		RunE: func(cmd *cobra.Command, args []string) error {
			c, rest, err := cmd.Root().Find(args)
			if err != nil || len(rest) > 0 || c == nil {
				return errs.New(errs.Invalid, "there is no help for %q", args).WithHint("see: billet --help")
			}
			c.InitDefaultHelpFlag()
			return c.Help()
		},
	}
}
