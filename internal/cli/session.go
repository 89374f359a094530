package cli

import (
	"context"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/guest/execclient"
)

// patience is how many times Ctrl-C is passed on before it ends the session:
// a guest that does not answer must not hold a person's terminal.
const patience = 3

// session joins this process's terminal and signals to a command elsewhere.
// close puts the terminal back as it was, in every way out.
type session struct {
	app     *app
	ctx     context.Context
	cancel  context.CancelCauseFunc
	input   bool
	pty     *os.File // nil without a terminal
	size    execclient.Size
	signals chan syscall.Signal
	resizes chan execclient.Size
	restore func()
	done    sync.WaitGroup
}

// openSession takes the terminal over when tty is set.
func (a *app) openSession(ctx context.Context, interactive, tty bool) (*session, error) {
	in, isTerminal := terminal(a.In)
	s := &session{app: a, input: a.In != nil && (!isTerminal || interactive || tty), restore: func() {}}
	if tty {
		if !isTerminal {
			return nil, errs.New(errs.Invalid, "standard input is no terminal").WithHint("leave -t away to pass it on as it is")
		}
		s.pty = in
		if err := s.raw(); err != nil {
			return nil, err
		}
	}
	s.ctx, s.cancel = context.WithCancelCause(ctx)
	s.signals, s.resizes = make(chan syscall.Signal), make(chan execclient.Size)
	// A closed standard output is the command's to be told of, before this
	// process ends.
	signal.Ignore(syscall.SIGPIPE)
	got := make(chan os.Signal, 8)
	signal.Notify(got, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH)
	s.done.Go(func() {
		defer signal.Stop(got)
		s.forward(got)
	})
	return s, nil
}

// raw turns the terminal's own handling off: every key is the guest's.
func (s *session) raw() error {
	fd := int(s.pty.Fd())
	size, err := terminalSize(s.pty)
	if err != nil {
		return errs.Wrap(errs.Internal, err, "measure the terminal")
	}
	s.size = size
	state, err := term.MakeRaw(fd)
	if err != nil {
		return errs.Wrap(errs.Internal, err, "take the terminal over")
	}
	s.restore = sync.OnceFunc(func() { _ = term.Restore(fd, state) })
	return nil
}

func terminalSize(f *os.File) (execclient.Size, error) {
	ws, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return execclient.Size{}, err
	}
	// A terminal that nobody has measured says 0 by 0, with which no program
	// can do anything.
	if ws.Col == 0 || ws.Row == 0 {
		return execclient.Size{Cols: 80, Rows: 24}, nil
	}
	return execclient.Size{Cols: ws.Col, Rows: ws.Row}, nil
}

// forward passes signals and sizes on until the session ends.
func (s *session) forward(got <-chan os.Signal) {
	interrupts := 0
	for {
		select {
		case <-s.ctx.Done():
			return
		case sig := <-got:
			if sig == syscall.SIGWINCH {
				s.resize()
				continue
			}
			if sig == syscall.SIGINT {
				if interrupts++; interrupts == patience {
					s.cancel(errDetached)
					return
				}
			}
			s.pass(sig.(syscall.Signal), got)
		}
	}
}

// pass hands a signal on. The road may be down: an interrupt then still counts
// towards leaving.
func (s *session) pass(sig syscall.Signal, got <-chan os.Signal) {
	interrupts := 1
	for {
		select {
		case s.signals <- sig:
			return
		case <-s.ctx.Done():
			return
		case next := <-got:
			if next == syscall.SIGINT {
				if interrupts++; interrupts == patience {
					s.cancel(errDetached)
					return
				}
			}
		}
	}
}

func (s *session) resize() {
	if s.pty == nil {
		return
	}
	size, err := terminalSize(s.pty)
	if err != nil {
		return
	}
	select {
	case s.resizes <- size:
	case <-s.ctx.Done():
	}
}

// connect gives cmd this process's streams.
func (s *session) connect(cmd *execclient.Command) {
	if s.input {
		cmd.Stdin = s.app.In
	}
	cmd.Stdout, cmd.Stderr = s.app.Out, s.app.Err
	cmd.Signals, cmd.Resizes = s.signals, s.resizes
	if s.pty == nil {
		return
	}
	cmd.PTY = &s.size
	if cmd.Env == nil {
		cmd.Env = map[string]string{}
	}
	if _, given := cmd.Env["TERM"]; !given {
		cmd.Env["TERM"] = orElse(getenv("TERM"), "xterm")
	}
}

// left reports whether the person gave the command up.
func (s *session) left() bool { return context.Cause(s.ctx) == errDetached }

// close may be called more than once.
func (s *session) close() {
	s.cancel(nil)
	s.done.Wait()
	s.restore()
}
