package sshd

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/clock"
)

const (
	// maxChannels bounds the sessions and forwarded connections of one client.
	maxChannels = 256
	// keepaliveEvery is how often a silent client is asked whether it is there,
	// and keepaliveMisses how often it may not answer: a laptop that was shut is
	// noticed within a minute.
	keepaliveEvery  = 15 * time.Second
	keepaliveMisses = 3
	// renewBefore is how long before its end a grant is renewed.
	renewBefore = 8 * time.Hour
	// settle is how long the end of a channel waits to learn whether the whole
	// connection has ended.
	settle = 250 * time.Millisecond
)

// connection is one known client.
type connection struct {
	s    *Server
	ssh  *ssh.ServerConn
	ctx  context.Context // ends with the connection, which is what it stands for
	stop context.CancelFunc

	held    atomic.Pointer[api.SSHGrant]
	slots   chan struct{}
	ended   chan struct{} // closed when the client is gone; then why is set
	why     error
	running sync.WaitGroup
	inside  forwards
}

func (s *Server) newConnection(ctx context.Context, sc *ssh.ServerConn) *connection {
	c := &connection{s: s, ssh: sc, slots: make(chan struct{}, maxChannels), ended: make(chan struct{})}
	c.ctx, c.stop = context.WithCancel(ctx)
	g := sc.Permissions.ExtraData[grantKey{}].(api.SSHGrant) // every way through the handshake leaves one
	c.held.Store(&g)
	c.inside.c = c
	return c
}

func (c *connection) grant() api.SSHGrant { return *c.held.Load() }

// refuse ends a connection that was let in and cannot be served.
func (c *connection) refuse(channels <-chan ssh.NewChannel, requests <-chan *ssh.Request, err error) {
	defer c.stop()
	go ssh.DiscardRequests(requests)
	select {
	case n := <-channels:
		if n != nil {
			_ = n.Reject(ssh.ResourceShortage, err.Error())
		}
	case <-time.After(settle):
	}
	_ = c.ssh.Close()
	for n := range channels {
		_ = n.Reject(ssh.ResourceShortage, err.Error())
	}
}

// run serves the client until it is gone and everything for it has ended.
func (c *connection) run(channels <-chan ssh.NewChannel, requests <-chan *ssh.Request) {
	go func() {
		c.why = c.ssh.Wait()
		close(c.ended)
		// Sessions see that first, and may leave something behind on purpose.
		c.s.later(c.ctx, settle, c.stop)
	}()
	c.running.Go(c.keepalive)
	c.running.Go(c.renew)
	c.running.Go(func() { c.requests(requests) })
	for n := range channels {
		select {
		case c.slots <- struct{}{}:
		default:
			_ = n.Reject(ssh.ResourceShortage, "too many channels")
			continue
		}
		c.running.Go(func() {
			defer func() { <-c.slots }()
			c.channel(n)
		})
	}
	c.running.Wait()
	c.stop()
	c.inside.close()
}

// later calls f after d, or when ctx ends.
func (s *Server) later(ctx context.Context, d time.Duration, f func()) {
	_ = clock.Sleep(ctx, d)
	f()
}

// vanished reports whether the client was lost, rather than left: an orderly
// end begins with a message that says so.
func (c *connection) vanished() bool {
	select {
	case <-c.ended:
		return !strings.HasPrefix(c.why.Error(), "ssh: disconnect, reason 11")
	default:
		return false
	}
}

// gone waits a little for the end of the connection, and reports it.
func (c *connection) gone() bool {
	select {
	case <-c.ended:
		return true
	case <-time.After(settle):
		return false
	}
}

func (c *connection) channel(n ssh.NewChannel) {
	switch n.ChannelType() {
	case "session":
		c.session(n)
	case "direct-tcpip":
		c.directTCP(n)
	case "direct-streamlocal@openssh.com":
		c.directUnix(n)
	default:
		_ = n.Reject(ssh.UnknownChannelType, "billet has no channels of type "+n.ChannelType())
	}
}

// keepalive ends the connection when the client does not answer.
func (c *connection) keepalive() {
	answers := make(chan error, 1)
	asked := false
	missed := 0
	for {
		if !asked {
			asked = true
			go func() {
				_, _, err := c.ssh.SendRequest("keepalive@openssh.com", true, nil)
				answers <- err
			}()
		}
		select {
		case <-c.ended:
			return
		case err := <-answers:
			if err != nil {
				return
			}
			asked, missed = false, 0
			if clock.Sleep(c.ctx, clock.Jitter(keepaliveEvery)) != nil {
				return
			}
		case <-time.After(keepaliveEvery):
			if missed++; missed >= keepaliveMisses {
				_ = c.ssh.Close()
				return
			}
		}
	}
}

// renew has the grant renewed while the connection lasts.
func (c *connection) renew() {
	for {
		left := c.grant().Expires.Sub(c.s.cfg.Clock.Now()) - renewBefore
		if clock.Sleep(c.ctx, clock.Jitter(max(left, time.Minute))) != nil {
			return
		}
		g, err := c.s.cfg.Control.GrantSSH(c.ctx, api.SSHGrantRequest{Grant: c.grant().Grant})
		if err != nil {
			c.s.cfg.Log.Warn("ssh grant not renewed", "err", err)
			continue
		}
		c.held.Store(&g)
	}
}
