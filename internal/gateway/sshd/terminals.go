package sshd

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/billethq/billet/internal/clock"
	"github.com/billethq/billet/internal/guest/execclient"
	"github.com/billethq/billet/internal/model"
)

const (
	// terminalTag begins the tag of every shell on a terminal; its principal and
	// the time of its start follow. The guest is where this is kept: gateways
	// come and go.
	terminalTag = "ssh-terminal"
	processTag  = "ssh"
	// takeWindow is how long after its client was lost a terminal is given to
	// the next one: a way to another room and not another day. It runs on after
	// that, and is nobody's.
	takeWindow = 15 * time.Minute
	// takeAfter is how long a terminal has been left by a client that was not
	// said to be lost: its gateway may only have lost the road for a moment.
	takeAfter = 3 * time.Second
	takePause = 500 * time.Millisecond
	// maxLeft bounds the terminals of one principal that nobody follows in one
	// workspace: of more, the oldest is hung up.
	maxLeft = 16
	// takeTimeout bounds the search for one.
	takeTimeout = 2 * takeAfter
)

// newTag names the session's process.
func (s *session) newTag() string {
	kind := processTag
	if s.pty != nil {
		kind = terminalTag
	}
	return fmt.Sprintf("%s.%s.%d.%s", kind, s.c.grant().Principal, s.c.s.cfg.Clock.Now().UnixMicro(), rand.Text())
}

// ownTerminal reads the time out of the tag of a principal's terminal.
func ownTerminal(tag string, who model.PrincipalID) (began int64, ok bool) {
	parts := strings.Split(tag, ".")
	if len(parts) != 4 || parts[0] != terminalTag || parts[1] != string(who) {
		return 0, false
	}
	began, err := strconv.ParseInt(parts[2], 10, 64)
	return began, err == nil
}

// take has a new shell on a terminal go on with the newest one that the
// principal left behind, if there is one.
func (s *session) take(client *execclient.Client, r *ssh.Request, cmd *execclient.Command) {
	if r.Type != "shell" || s.pty == nil {
		return
	}
	ctx, cancel := context.WithTimeout(s.ctx, takeTimeout)
	defer cancel()
	for {
		list, err := client.Terminals(ctx)
		if err != nil {
			s.c.s.cfg.Log.Debug("terminals not listed", "err", err)
			return
		}
		own := ownTerminals(list, s.c.grant().Principal)
		if len(own) > maxLeft {
			_ = client.Signal(ctx, own[len(own)-1].Tag, syscall.SIGHUP) // the next session tries again
		}
		if len(own) == 0 || own[0].Left > takeWindow {
			return
		}
		if t := own[0]; !t.Held || t.Left >= takeAfter {
			cmd.Again, cmd.Tag = &t, t.Tag
			_, _ = fmt.Fprintf(s.ch.Stderr(), "billet: back at the terminal that was left %.0fs ago%s", t.Left.Seconds(), s.eol())
			s.resize(*s.pty)
			return
		}
		// Its gateway may only have lost the road: a moment tells.
		if clock.Sleep(ctx, takePause) != nil {
			return
		}
	}
}

// ownTerminals returns those of a principal, the newest first.
func ownTerminals(list []execclient.Terminal, who model.PrincipalID) []execclient.Terminal {
	own := slices.DeleteFunc(list, func(t execclient.Terminal) bool { _, ok := ownTerminal(t.Tag, who); return !ok })
	slices.SortFunc(own, func(a, b execclient.Terminal) int {
		x, _ := ownTerminal(a.Tag, who)
		y, _ := ownTerminal(b.Tag, who)
		return cmp.Compare(y, x)
	})
	return own
}
