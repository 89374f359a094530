package sshd

import (
	"context"
	"crypto/rand"
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/crypto/ssh"

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
	takeAfter = 5 * time.Second
	// maxLeft bounds the terminals of one principal that nobody follows in one
	// workspace: of more, the oldest is hung up.
	maxLeft = 16
	// takeTimeout bounds the search for one.
	takeTimeout = 3 * time.Second
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
	list, err := client.Terminals(ctx)
	if err != nil {
		s.c.s.cfg.Log.Debug("terminals not listed", "err", err)
		return
	}
	var newest, oldest *execclient.Terminal
	var newestAt, oldestAt int64
	left := 0
	for i := range list {
		at, own := ownTerminal(list[i].Tag, s.c.grant().Principal)
		if !own {
			continue
		}
		left++
		if oldest == nil || at < oldestAt {
			oldest, oldestAt = &list[i], at
		}
		free := !list[i].Held || list[i].Left >= takeAfter
		if free && list[i].Left <= takeWindow && (newest == nil || at > newestAt) {
			newest, newestAt = &list[i], at
		}
	}
	if left > maxLeft && oldest != newest {
		_ = client.Signal(ctx, oldest.Tag, syscall.SIGHUP) // the next session tries again
	}
	if newest == nil {
		return
	}
	cmd.Again, cmd.Tag = newest, newest.Tag
	_, _ = fmt.Fprintf(s.ch.Stderr(), "billet: back at the terminal that was left %.0fs ago%s", newest.Left.Seconds(), s.eol())
	s.resize(*s.pty)
}
