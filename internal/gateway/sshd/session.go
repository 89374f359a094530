package sshd

import (
	"context"
	"maps"
	"strings"
	"syscall"

	"golang.org/x/crypto/ssh"

	"github.com/billethq/billet/internal/guest/execclient"
	"github.com/billethq/billet/internal/guest/guestpath"
)

const (
	// maxEnv bounds the variables of one session; a client's locale is a dozen.
	maxEnv = 64
	// maxValue bounds one of them.
	maxValue = 4 << 10
	// maxSignals bounds the signals on their way to a guest that does not answer.
	maxSignals = 16
	// loginShell starts the user's own shell as a login shell, and shellCommand
	// has it run one command.
	loginShell   = `exec "${SHELL:-/bin/sh}" -l`
	shellCommand = `exec "${SHELL:-/bin/sh}" -c "$1"`
)

// session is one channel of type session: what a client asked for so far.
type session struct {
	c   *connection
	ch  ssh.Channel
	ctx context.Context
	// stop ends the run; the cause is what became of the client.
	stop    context.CancelFunc
	env     map[string]string
	pty     *execclient.Size
	agent   bool
	begun   bool
	resizes chan execclient.Size
	signals chan syscall.Signal
	done    chan struct{} // closed when the run has ended
}

// session serves a channel until it is closed.
func (c *connection) session(n ssh.NewChannel) {
	ch, requests, err := n.Accept()
	if err != nil {
		return
	}
	s := &session{
		c: c, ch: ch, env: map[string]string{}, done: make(chan struct{}),
		resizes: make(chan execclient.Size, 1), signals: make(chan syscall.Signal, maxSignals),
	}
	s.ctx, s.stop = context.WithCancel(c.ctx)
	defer s.stop()
	for r := range requests {
		ok := s.request(r)
		if r.WantReply {
			_ = r.Reply(ok, nil)
		}
		if ok && startsSomething(r.Type) {
			go s.run(r)
		}
	}
	s.stop()
	if s.begun {
		<-s.done
	}
	_ = ch.Close()
}

func startsSomething(request string) bool {
	return request == "shell" || request == "exec" || request == "subsystem"
}

// request notes what a client asks for and reports whether it can be had.
func (s *session) request(r *ssh.Request) bool {
	switch r.Type {
	case "env":
		var v struct{ Name, Value string }
		return ssh.Unmarshal(r.Payload, &v) == nil && s.setenv(v.Name, v.Value)
	case "pty-req":
		return s.terminal(r.Payload)
	case "window-change":
		var v struct{ Cols, Rows, Width, Height uint32 }
		if s.pty == nil || ssh.Unmarshal(r.Payload, &v) != nil {
			return false
		}
		s.resize(sizeOf(v.Cols, v.Rows))
		return true
	case "signal":
		return s.signal(r.Payload)
	case "auth-agent-req@openssh.com":
		s.agent = true
		return true
	case "shell", "exec", "subsystem":
		if s.begun || r.Type == "subsystem" && name(r.Payload) != "sftp" {
			return false
		}
		s.begun = true
		return true
	}
	return false
}

// setenv takes the variables that describe the client's language and terminal.
// Others could change what a program in the guest does behind its user's back.
func (s *session) setenv(name, value string) bool {
	if name != "LANG" && name != "TERM" && name != "COLORTERM" && !strings.HasPrefix(name, "LC_") {
		return false
	}
	if len(s.env) >= maxEnv || len(name)+len(value) > maxValue || strings.ContainsAny(name+value, "=\x00") {
		return false
	}
	s.env[name] = value
	return true
}

func (s *session) terminal(payload []byte) bool {
	var v struct {
		Term                      string
		Cols, Rows, Width, Height uint32
		Modes                     string
	}
	if ssh.Unmarshal(payload, &v) != nil || s.begun {
		return false
	}
	size := sizeOf(v.Cols, v.Rows)
	s.pty = &size
	if v.Term != "" {
		s.setenv("TERM", v.Term)
	}
	return true
}

func sizeOf(cols, rows uint32) execclient.Size {
	if cols == 0 || rows == 0 {
		cols, rows = 80, 24
	}
	return execclient.Size{Cols: uint16(min(cols, 1<<16-1)), Rows: uint16(min(rows, 1<<16-1))}
}

// resize keeps the newest size: the ones before it are of no use.
func (s *session) resize(size execclient.Size) {
	for {
		select {
		case s.resizes <- size:
			return
		default:
		}
		select {
		case <-s.resizes:
		default:
		}
	}
}

func (s *session) signal(payload []byte) bool {
	sig, ok := signals()[name(payload)]
	if !ok {
		return false
	}
	select {
	case s.signals <- sig:
		return true
	default:
		return false
	}
}

// signals are those that the guest's agent passes on, by their SSH names.
func signals() map[string]syscall.Signal {
	return map[string]syscall.Signal{
		"HUP": syscall.SIGHUP, "INT": syscall.SIGINT, "QUIT": syscall.SIGQUIT, "KILL": syscall.SIGKILL,
		"TERM": syscall.SIGTERM, "USR1": syscall.SIGUSR1, "USR2": syscall.SIGUSR2,
	}
}

// name reads a payload of one string; "" when it is none.
func name(payload []byte) string {
	var v struct{ Text string }
	if ssh.Unmarshal(payload, &v) != nil {
		return ""
	}
	return v.Text
}

// command is what a request starts.
func (s *session) command(r *ssh.Request) execclient.Command {
	cmd := execclient.Command{PTY: s.pty, Env: maps.Clone(s.env), Signals: s.signals, Resizes: s.resizes}
	switch r.Type {
	case "exec":
		cmd.Args = []string{"/bin/sh", "-c", shellCommand, "sh", name(r.Payload)}
	case "subsystem":
		cmd.Args = []string{guestpath.Binary, "sftp"}
	default:
		cmd.Args = []string{"/bin/sh", "-c", loginShell}
	}
	return cmd
}
