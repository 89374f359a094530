package sshd

import (
	"context"
	"errors"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/guest/execclient"
	"github.com/billethq/billet/internal/guest/forward"
	"github.com/billethq/billet/internal/guest/guestpath"
	"github.com/billethq/billet/internal/guest/portclient"
)

// openTimeout bounds the opening of one forwarded connection, the resume of the
// workspace included.
const openTimeout = 2 * time.Minute

// directTCP serves -L, -D and -W. What listens on the guest's loopback is asked
// for over a road of its own; anything else is dialled by a process of the
// user's.
func (c *connection) directTCP(n ssh.NewChannel) {
	var v struct {
		Host       string
		Port       uint32
		Origin     string
		OriginPort uint32
	}
	if ssh.Unmarshal(n.ExtraData(), &v) != nil || v.Port > 1<<16-1 {
		_ = n.Reject(ssh.ConnectionFailed, "malformed request")
		return
	}
	address := net.JoinHostPort(v.Host, strconv.Itoa(int(v.Port)))
	c.carry(n, func(ctx context.Context) (net.Conn, error) {
		if !loopback(v.Host) {
			return c.inside.dial(ctx, "tcp", address)
		}
		w, err := c.enter(ctx, silently)
		if err != nil {
			return nil, err
		}
		return portclient.DialPort(ctx, w.dial, "tcp", address)
	})
}

func loopback(host string) bool {
	return host == "localhost" || host == "127.0.0.1" || host == "::1"
}

// directUnix serves -L to a socket in the guest, which is opened with the
// user's rights.
func (c *connection) directUnix(n ssh.NewChannel) {
	var v struct {
		Path, Reserved string
		ReservedPort   uint32
	}
	if ssh.Unmarshal(n.ExtraData(), &v) != nil {
		_ = n.Reject(ssh.ConnectionFailed, "malformed request")
		return
	}
	c.carry(n, func(ctx context.Context) (net.Conn, error) { return c.inside.dial(ctx, "unix", v.Path) })
}

// carry joins a channel to what open opens.
func (c *connection) carry(n ssh.NewChannel, open func(context.Context) (net.Conn, error)) {
	ctx, cancel := context.WithTimeout(c.ctx, openTimeout)
	defer cancel()
	conn, err := open(ctx)
	if err != nil {
		_ = n.Reject(ssh.ConnectionFailed, printable(err.Error()))
		return
	}
	ch, requests, err := n.Accept()
	if err != nil {
		_ = conn.Close()
		return
	}
	go ssh.DiscardRequests(requests)
	c.join(ch, conn)
}

// join moves bytes both ways until both have ended, or the client is gone.
func (c *connection) join(ch ssh.Channel, conn net.Conn) {
	stop := context.AfterFunc(c.ctx, func() { _ = conn.Close() })
	defer stop()
	var both sync.WaitGroup
	both.Go(func() {
		if _, err := io.Copy(conn, ch); err != nil {
			_ = ch.Close()
		}
		closeWrite(conn)
	})
	_, err := io.Copy(ch, conn)
	_ = ch.CloseWrite()
	if err != nil {
		_ = ch.Close()
	}
	both.Wait()
	_ = ch.Close()
	_ = conn.Close()
}

// closeWrite ends one direction. The Close of a stream to the guest does that
// and leaves the other.
func closeWrite(conn net.Conn) {
	if cw, ok := conn.(interface{ CloseWrite() error }); ok {
		_ = cw.CloseWrite()
		return
	}
	_ = conn.Close()
}

// forwards is the process in the guest that dials and listens for one client.
// It is started when it is first needed, and again after the guest was.
type forwards struct {
	c *connection

	mu     sync.Mutex
	client *forward.Client
	stop   context.CancelFunc // gives the process up
	agent  string             // the socket of the client's agent of keys, "" when there is none
	done   sync.WaitGroup

	listening map[string]io.Closer // by what was asked for
}

// get returns the process's client, which the caller does not close.
func (f *forwards) get(ctx context.Context) (*forward.Client, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.start(ctx)
}

// start is get with the lock held.
func (f *forwards) start(ctx context.Context) (*forward.Client, error) {
	if f.client != nil {
		select {
		case <-f.client.Done():
		default:
			return f.client, nil
		}
	}
	w, err := f.c.enter(ctx, silently)
	if err != nil {
		return nil, err
	}
	run, err := w.exec()
	if err != nil {
		return nil, err
	}
	toGuest, in := io.Pipe()
	fromGuest, out := io.Pipe()
	end := func() error { _ = in.Close(); return fromGuest.Close() }
	client, err := forward.NewClient(in, fromGuest, end)
	if err != nil {
		return nil, err
	}
	// Not the connection's context: its end is passed on by that of the input, so
	// that the process ends by itself.
	running, stop := context.WithCancel(context.WithoutCancel(f.c.ctx))
	f.stop = stop
	f.done.Go(func() {
		defer stop()
		_, err := run.Run(running, execclient.Command{Args: []string{guestpath.Binary, "forward"}, Stdin: toGuest, Stdout: out, Flow: true})
		if err != nil && f.c.ctx.Err() == nil {
			f.c.s.cfg.Log.Debug("ssh forwards lost", "err", err)
		}
		_ = out.CloseWithError(io.EOF)
		_ = toGuest.CloseWithError(io.ErrClosedPipe)
		_ = client.Close()
	})
	f.client, f.agent, f.listening = client, "", map[string]io.Closer{}
	return client, nil
}

func (f *forwards) dial(ctx context.Context, network, address string) (net.Conn, error) {
	client, err := f.get(ctx)
	if err != nil {
		return nil, err
	}
	return client.Dial(ctx, network, address)
}

// close ends the process: its input ends, and with it everything it carries.
func (f *forwards) close() {
	f.mu.Lock()
	client, stop := f.client, f.stop
	f.mu.Unlock()
	if client == nil {
		return
	}
	_ = client.Close()
	late := time.AfterFunc(hangUpTimeout, stop)
	defer late.Stop()
	f.done.Wait()
}

// listen listens in the guest, once for each thing that is asked for.
func (f *forwards) listen(ctx context.Context, asked, network, address string, handle func(net.Conn, string)) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	client, err := f.start(ctx)
	if err != nil {
		return "", err
	}
	if f.listening[asked] != nil {
		return "", errs.New(errs.Conflict, "%s is forwarded already", address)
	}
	at, stop, err := client.Listen(ctx, network, address, handle)
	if err == nil {
		f.listening[asked] = stop
	}
	return at, err
}

// unlisten undoes listen and reports whether there was something to undo.
func (f *forwards) unlisten(asked string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	stop := f.listening[asked]
	delete(f.listening, asked)
	if stop != nil {
		_ = stop.Close()
	}
	return stop != nil
}

// requests serves what a client asks of the connection as a whole.
func (c *connection) requests(in <-chan *ssh.Request) {
	for r := range in {
		ok, payload := false, []byte(nil)
		switch r.Type {
		case "tcpip-forward":
			ok, payload = c.listenTCP(r.Payload)
		case "streamlocal-forward@openssh.com":
			ok = c.listenUnix(name(r.Payload))
		case "cancel-tcpip-forward", "cancel-streamlocal-forward@openssh.com":
			ok = c.inside.unlisten(strings.TrimPrefix(r.Type, "cancel-") + string(r.Payload))
		case "keepalive@openssh.com":
			ok = true
		}
		if r.WantReply {
			_ = r.Reply(ok, payload)
		}
	}
}

// listenTCP serves -R. Whatever address is asked for, it is the guest's
// loopback: nothing else reaches a guest.
func (c *connection) listenTCP(payload []byte) (bool, []byte) {
	var v struct {
		Address string
		Port    uint32
	}
	if ssh.Unmarshal(payload, &v) != nil || v.Port > 1<<16-1 {
		return false, nil
	}
	ctx, cancel := context.WithTimeout(c.ctx, openTimeout)
	defer cancel()
	bound := v.Port
	var known sync.WaitGroup // bound is, before the first connection is told of
	known.Add(1)
	at, err := c.inside.listen(ctx, "tcpip-forward"+string(payload), "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(v.Port))), func(conn net.Conn, from string) {
		known.Wait()
		host, port := split(from)
		c.offer(conn, "forwarded-tcpip", ssh.Marshal(struct {
			Address    string
			Port       uint32
			Origin     string
			OriginPort uint32
		}{v.Address, bound, host, port}))
	})
	defer known.Done()
	if err != nil {
		c.s.cfg.Log.Debug("ssh port not forwarded", "err", err)
		return false, nil
	}
	_, bound = split(at)
	if v.Port != 0 {
		return true, nil
	}
	return true, ssh.Marshal(struct{ Port uint32 }{bound})
}

func (c *connection) listenUnix(path string) bool {
	ctx, cancel := context.WithTimeout(c.ctx, openTimeout)
	defer cancel()
	asked := "streamlocal-forward@openssh.com" + string(ssh.Marshal(struct{ Path string }{path}))
	_, err := c.inside.listen(ctx, asked, "unix", path, func(conn net.Conn, _ string) {
		c.offer(conn, "forwarded-streamlocal@openssh.com", ssh.Marshal(struct{ Path, Reserved string }{path, ""}))
	})
	return err == nil
}

func split(address string) (host string, port uint32) {
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return address, 0
	}
	n, _ := strconv.ParseUint(text, 10, 16)
	return host, uint32(n)
}

// offer opens a channel to the client for a connection that the guest accepted.
func (c *connection) offer(conn net.Conn, kind string, payload []byte) {
	select {
	case c.slots <- struct{}{}:
		defer func() { <-c.slots }()
	default:
		_ = conn.Close()
		return
	}
	ch, requests, err := c.ssh.OpenChannel(kind, payload)
	if err != nil {
		_ = conn.Close()
		return
	}
	go ssh.DiscardRequests(requests)
	c.join(ch, conn)
}

// forwardAgent gives the session a way to the client's agent of keys. Without
// one the session is as good.
func (s *session) forwardAgent(env map[string]string) {
	at, err := s.c.inside.agentSocket(s.ctx)
	if err != nil {
		s.c.s.cfg.Log.Debug("ssh agent not forwarded", "err", err)
		return
	}
	env["SSH_AUTH_SOCK"] = at
}

// agentSocket returns the client's agent's place in the guest, one for all
// sessions of a client.
func (f *forwards) agentSocket(ctx context.Context) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	client, err := f.start(ctx)
	if err != nil || f.agent != "" {
		return f.agent, err
	}
	at, _, err := client.Listen(ctx, forward.NetworkAgent, "", func(conn net.Conn, _ string) {
		f.c.offer(conn, "auth-agent@openssh.com", nil)
	})
	if err != nil {
		return "", err
	}
	if at == "" {
		return "", errors.New("the guest did not say where it listens")
	}
	f.agent = at
	return at, nil
}
