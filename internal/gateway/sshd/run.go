package sshd

import (
	"context"
	"io"
	"strings"
	"syscall"
	"time"
	"unicode"

	"golang.org/x/crypto/ssh"

	"github.com/billethq/billet/internal/guest/execclient"
)

// exitFailed is the exit code of a session that billet could not give: the one
// that ssh itself has for its own failures.
const exitFailed = 255

// hangUpTimeout bounds the farewell to a process whose client has gone.
const hangUpTimeout = 5 * time.Second

// run gives the session what was asked for, tells how it ended, and closes it.
func (s *session) run(r *ssh.Request) {
	defer close(s.done)
	defer s.ch.Close()
	defer func() { _ = s.ch.CloseWrite() }()
	p := newPhases(s.ch.Stderr(), s.eol())
	w, err := s.c.enter(s.ctx, p.reach)
	p.end()
	if err != nil {
		s.fail(err)
		return
	}
	client, err := w.exec()
	if err != nil {
		s.fail(err)
		return
	}
	cmd := s.command(r)
	if s.agent {
		s.forwardAgent(cmd.Env)
	}
	s.connect(&cmd)
	s.take(client, r, &cmd)
	var killed syscall.Signal
	cmd.KilledBy = func(sig syscall.Signal) { killed = sig }
	code, err := client.Run(s.ctx, cmd)
	switch {
	case s.ctx.Err() != nil:
		s.left(client, cmd)
	case code < 0:
		s.fail(err)
	case killed != 0:
		s.exitSignal(killed)
	default:
		if err != nil {
			_, _ = io.WriteString(s.ch.Stderr(), message(err, s.eol()))
		}
		s.exit(code)
	}
}

// connect gives cmd the channel's streams.
func (s *session) connect(cmd *execclient.Command) {
	cmd.Stdin, cmd.Stdout, cmd.Stderr = s.ch, s.ch, s.ch.Stderr()
	if s.pty != nil {
		cmd.Stdin = &keyboard{s}
	}
	cmd.Tag = s.newTag()
	cmd.Leave = true
}

// keyboard is a terminal's input. A channel that is closed reads as one whose
// input has ended, which a shell takes for Ctrl-D: of a client that has gone,
// the end must not be passed on.
type keyboard struct{ s *session }

func (k *keyboard) Read(p []byte) (int, error) {
	n, err := k.s.ch.Read(p)
	if err == io.EOF {
		select {
		case <-k.s.ctx.Done():
			return n, context.Canceled
		case <-time.After(settle):
		}
	}
	return n, err
}

// left is the end of a session whose client has gone before the process ended.
// A terminal whose client was lost waits for it; anything else is hung up, as
// the end of a line does.
func (s *session) left(client *execclient.Client, cmd execclient.Command) {
	if s.pty != nil && s.c.gone() && s.c.vanished() {
		s.c.s.cfg.Log.Info("ssh terminal left behind", "principal", s.c.grant().Principal, "workspace", s.c.grant().Workspace)
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.ctx), hangUpTimeout)
	defer cancel()
	if err := client.Signal(ctx, cmd.Tag, syscall.SIGHUP); err != nil {
		s.c.s.cfg.Log.Debug("ssh process not hung up", "err", err)
	}
}

// eol ends a line on the client's screen, which is raw while there is a
// terminal.
func (s *session) eol() string {
	if s.pty != nil {
		return "\r\n"
	}
	return "\n"
}

func (s *session) fail(err error) {
	_, _ = io.WriteString(s.ch.Stderr(), message(err, s.eol()))
	s.exit(exitFailed)
}

func (s *session) exit(code int) {
	_, _ = s.ch.SendRequest("exit-status", false, ssh.Marshal(struct{ Code uint32 }{uint32(code)}))
}

func (s *session) exitSignal(sig syscall.Signal) {
	for name, known := range signals() {
		if known == sig {
			_, _ = s.ch.SendRequest("exit-signal", false, ssh.Marshal(struct {
				Name          string
				Dumped        bool
				Message, Lang string
			}{name, false, sig.String(), ""}))
			return
		}
	}
	s.exit(128 + int(sig))
}

// printable makes text safe for a terminal, and one line of it.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, text)
}
