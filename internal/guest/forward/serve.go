package forward

import (
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"

	"github.com/hashicorp/yamux"
)

// server is the inside.
type server struct {
	session *yamux.Session
	slots   chan struct{}

	mu        sync.Mutex
	listeners int
	next      uint64
}

// Serve carries connections until in ends. It closes every one, and removes
// what it made.
func Serve(in io.Reader, out io.Writer) error {
	session, err := yamux.Server(pipes{Reader: in, Writer: out}, config())
	if err != nil {
		return err
	}
	s := &server{session: session, slots: make(chan struct{}, MaxStreams)}
	var streams sync.WaitGroup
	for {
		c, err := session.AcceptStream()
		if err != nil {
			break // the streams have ended with the session
		}
		select {
		case s.slots <- struct{}{}:
		default:
			_ = writeFrame(c, reply{Error: "too many connections"})
			_ = c.Close()
			continue
		}
		streams.Go(func() {
			defer func() { <-s.slots }()
			s.handle(c)
		})
	}
	_ = session.Close()
	streams.Wait()
	return nil
}

func (s *server) handle(c net.Conn) {
	defer c.Close()
	var r request
	if err := readFrame(c, &r); err != nil {
		return
	}
	switch r.Op {
	case opDial:
		s.dial(c, r)
	case opListen:
		s.listen(c, r)
	default:
		_ = writeFrame(c, reply{Error: "unknown request"})
	}
}

func (s *server) dial(c net.Conn, r request) {
	if r.Network != "tcp" && r.Network != "unix" {
		_ = writeFrame(c, reply{Error: "unknown network"})
		return
	}
	target, err := net.DialTimeout(r.Network, r.Address, dialTimeout)
	if err != nil {
		_ = writeFrame(c, reply{Error: err.Error()})
		return
	}
	defer target.Close()
	if err := writeFrame(c, reply{}); err != nil {
		return
	}
	join(c, target)
}

// listen accepts until the stream that asked for it ends.
func (s *server) listen(c net.Conn, r request) {
	id, err := s.register()
	if err != nil {
		_ = writeFrame(c, reply{Error: err.Error()})
		return
	}
	defer s.unregister()
	l, tidy, err := listener(r)
	if err != nil {
		_ = writeFrame(c, reply{Error: err.Error()})
		return
	}
	defer tidy()
	var accepting sync.WaitGroup
	accepting.Go(func() { s.accept(l, id) })
	defer accepting.Wait()
	defer l.Close()
	if err := writeFrame(c, reply{Address: l.Addr().String(), ID: id}); err != nil {
		return
	}
	_, _ = io.Copy(io.Discard, c)
}

func (s *server) register() (uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listeners >= MaxListeners {
		return 0, errors.New("too many listeners")
	}
	s.listeners++
	s.next++
	return s.next, nil
}

func (s *server) unregister() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listeners--
}

func listener(r request) (l net.Listener, tidy func(), err error) {
	tidy = func() {}
	switch r.Network {
	case "tcp", "unix":
		l, err = net.Listen(r.Network, r.Address)
	case NetworkAgent:
		dir, err := os.MkdirTemp("", "billet-ssh-")
		if err != nil {
			return nil, nil, err
		}
		tidy = func() { _ = os.RemoveAll(dir) }
		l, err = net.Listen("unix", filepath.Join(dir, "agent.sock"))
		if err != nil {
			tidy()
		}
		return l, tidy, err
	default:
		return nil, nil, errors.New("unknown network")
	}
	return l, tidy, err
}

func (s *server) accept(l net.Listener, id uint64) {
	var streams sync.WaitGroup
	defer streams.Wait()
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		select {
		case s.slots <- struct{}{}:
		default:
			_ = conn.Close()
			continue
		}
		streams.Go(func() {
			defer func() { <-s.slots }()
			defer conn.Close()
			c, err := s.session.OpenStream()
			if err != nil {
				return
			}
			defer c.Close()
			if err := writeFrame(c, accepted{ID: id, From: conn.RemoteAddr().String()}); err != nil {
				return
			}
			join(c, conn)
		})
	}
}
