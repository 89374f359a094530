// Package agentlink is the node's end of the link to one guest's agent.
//
// The agent dials a Unix socket in a directory that only its guest is shown,
// and the node opens streams on the session. The guest is hostile: it may run
// anything in the place of the agent. What it can do to the node is bounded by
// the constants of this package, and what it says is data.
package agentlink

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/hashicorp/yamux"

	"github.com/billethq/billet/internal/clock"
	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/guest/guestpath"
	"github.com/billethq/billet/internal/road/framed"
)

const (
	// acceptGap is the least time between two connections: a guest that dials
	// without end costs the node little.
	acceptGap = 20 * time.Millisecond
	// maxOpening bounds the streams that the agent has not yet accepted.
	maxOpening = 64
	// openTimeout ends a session whose agent does not accept a stream, and
	// writeTimeout one whose agent does not read. The agent redials if it lives.
	openTimeout  = 15 * time.Second
	writeTimeout = 10 * time.Second
	// keepalive is how often an idle session proves that the agent answers.
	keepalive = 30 * time.Second
	// halfClosed bounds how long a stream closed by the node waits for the guest
	// to close it too.
	halfClosed = time.Minute
)

// Link accepts one guest's agent and opens streams to it. It is safe for
// concurrent use.
type Link struct {
	log      *slog.Logger
	listener *net.UnixListener
	done     sync.WaitGroup

	mu       sync.Mutex
	session  *yamux.Session // nil while detached
	attached chan struct{}  // closed while there is a session
	closed   chan struct{}  // by Close
}

// Listen starts to accept the agent of the guest that is shown the directory
// dir, which must exist, as guestpath.SideDir. A socket that an earlier node
// left is replaced in one step, so that the agent always finds one; the earlier
// node's session, should it live, goes on.
func Listen(dir string, log *slog.Logger) (*Link, error) {
	l, err := listen(dir)
	if err != nil {
		return nil, fmt.Errorf("listen for the guest agent: %w", err)
	}
	k := &Link{log: log, listener: l, attached: make(chan struct{}), closed: make(chan struct{})}
	k.done.Go(k.accept)
	return k, nil
}

// listen binds a new socket and renames it over the old one. It binds through
// the directory's descriptor, since a state directory's path may be longer than
// the 107 bytes that fit a socket's address.
func listen(dir string) (*net.UnixListener, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	name := fmt.Sprintf(".%s.%d.%d", guestpath.AgentSocket, os.Getpid(), time.Now().UnixNano())
	via := filepath.Join("/proc/self/fd", strconv.Itoa(int(d.Fd())), name)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: via, Net: "unix"})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false) // via names nothing, or somebody else's, by then
	temporary := filepath.Join(dir, name)
	err = os.Chmod(temporary, 0o600)
	if err == nil {
		err = os.Rename(temporary, filepath.Join(dir, guestpath.AgentSocket))
	}
	if err != nil {
		_ = l.Close()
		_ = os.Remove(temporary)
		return nil, err
	}
	return l, nil
}

// Close ends the session and stops listening. The socket stays: its name may
// already be another link's. Closing again does nothing.
func (k *Link) Close() error {
	k.mu.Lock()
	select {
	case <-k.closed:
	default:
		close(k.closed)
		k.set(nil)
	}
	k.mu.Unlock()
	err := k.listener.Close()
	k.done.Wait()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// Attached returns a channel that is closed as soon as an agent is attached; at
// once if one is. When that agent is gone, a later call returns another channel.
func (k *Link) Attached() <-chan struct{} {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.attached
}

// Open returns a new stream to the agent, waiting for one to attach. The error
// is errs.Unavailable when ctx ends first. Whoever closes the stream, or loses
// the session, ends it for both.
func (k *Link) Open(ctx context.Context) (net.Conn, error) {
	for {
		s, err := k.current(ctx)
		if err != nil {
			return nil, err
		}
		conn, err := open(ctx, s)
		if err == nil {
			return conn, nil
		}
		if ctx.Err() != nil {
			return nil, unavailable(ctx)
		}
		// The session broke under the call: do not ask it again before its end
		// has been noticed.
		if clock.Sleep(ctx, clock.Jitter(acceptGap)) != nil {
			return nil, unavailable(ctx)
		}
	}
}

// open opens a stream, which blocks while many are unanswered. A stream that
// comes after ctx has ended is closed.
func open(ctx context.Context, s *yamux.Session) (net.Conn, error) {
	type result struct {
		conn net.Conn
		err  error
	}
	opened := make(chan result, 1)
	go func() { // ends at the latest when the session does
		conn, err := s.Open()
		opened <- result{conn, err}
	}()
	select {
	case r := <-opened:
		return r.conn, r.err
	case <-ctx.Done():
		go func() {
			if r := <-opened; r.err == nil {
				_ = r.conn.Close()
			}
		}()
		return nil, ctx.Err()
	}
}

// current waits for a session.
func (k *Link) current(ctx context.Context) (*yamux.Session, error) {
	for {
		k.mu.Lock()
		s, attached := k.session, k.attached
		k.mu.Unlock()
		if s != nil {
			return s, nil
		}
		select {
		case <-attached:
		case <-k.closed:
			return nil, errs.New(errs.Unavailable, "the link to the guest agent is closed")
		case <-ctx.Done():
			return nil, unavailable(ctx)
		}
	}
}

func unavailable(ctx context.Context) error {
	return errs.Wrap(errs.Unavailable, context.Cause(ctx), "wait for the guest agent")
}

// accept serves the listener until it is closed. The newest connection wins:
// the agent has one, and an older one is a remainder.
func (k *Link) accept() {
	for {
		conn, err := k.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // such as no descriptors left
			k.log.Warn("agent_accept", "error", err)
			time.Sleep(clock.Jitter(acceptGap))
			continue
		}
		k.serve(conn)
		time.Sleep(acceptGap)
	}
}

// serve makes a session of conn and the current one of it.
func (k *Link) serve(conn net.Conn) {
	s, err := yamux.Client(framed.New(newGuard(conn)), &yamux.Config{
		AcceptBacklog:          maxOpening,
		EnableKeepAlive:        true,
		KeepAliveInterval:      keepalive,
		ConnectionWriteTimeout: writeTimeout,
		MaxStreamWindowSize:    window,
		StreamOpenTimeout:      openTimeout,
		StreamCloseTimeout:     halfClosed,
		Logger:                 quiet{},
	})
	if err != nil {
		_ = conn.Close()
		k.log.Error("agent_session", "error", err)
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	select {
	case <-k.closed:
		_ = s.Close()
		return
	default:
	}
	k.set(s)
	k.log.Info("agent_attached")
	k.done.Go(func() {
		<-s.CloseChan()
		k.mu.Lock()
		defer k.mu.Unlock()
		if k.session == s {
			k.set(nil)
			k.log.Info("agent_detached")
		}
	})
}

// set replaces the session. The caller holds mu.
func (k *Link) set(s *yamux.Session) {
	if k.session != nil {
		_ = k.session.Close()
		k.attached = make(chan struct{})
	}
	k.session = s
	if s != nil {
		close(k.attached)
	}
}

// quiet drops yamux's log: a hostile peer chooses how much it says.
type quiet struct{}

func (quiet) Print(...any)          {}
func (quiet) Printf(string, ...any) {}
func (quiet) Println(...any)        {}
