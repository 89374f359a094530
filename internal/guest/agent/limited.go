package agent

import (
	"net"
	"sync"

	"github.com/hashicorp/yamux"
)

// limited serves at most cap(places) connections at once, over all sessions; it
// closes one too many, which its caller sees as a stream that broke.
type limited struct {
	*yamux.Session
	places chan struct{}
}

// Accept returns the session's next stream for which there is a place.
func (l limited) Accept() (net.Conn, error) {
	for {
		c, err := l.Session.Accept()
		if err != nil {
			return nil, err
		}
		select {
		case l.places <- struct{}{}:
			return &placed{Conn: c, free: sync.OnceFunc(func() { <-l.places })}, nil
		default:
			_ = c.Close()
		}
	}
}

type placed struct {
	net.Conn
	free func()
}

// Close closes the stream and gives its place back.
func (p *placed) Close() error {
	p.free()
	return p.Conn.Close()
}
