package agentlink

import (
	"encoding/binary"
	"errors"
	"net"
	"time"
)

// window is the receive window of each stream: what the guest can make the node
// hold per stream that the node opened and does not read. It is yamux's least.
const window = 256 << 10

const (
	// frameHeader is the size of a yamux frame's header: version, type, flags
	// (2), stream (4), length (4).
	frameHeader = 12

	typeData   = 0
	typeUpdate = 1
	typePing   = 2
	typeAway   = 3
	flagSYN    = 1

	// pings bounds the pings that the guest may send in pingPeriod. yamux
	// answers each from a goroutine of its own that may wait for ten seconds: a
	// guest that sent nothing else would take the node's memory.
	pings      = 16
	pingPeriod = 10 * time.Second
)

var (
	errFrame = errors.New("agent link: the guest sent a frame that the protocol does not have")
	errSYN   = errors.New("agent link: the guest opened a stream")
	errPings = errors.New("agent link: the guest sent too many pings")
	errBig   = errors.New("agent link: the guest sent more than a stream's window")
)

// guard reads yamux frames from the guest and ends the connection at the first
// that a well-behaved agent would not send. It does not change the bytes.
type guard struct {
	net.Conn
	header [frameHeader]byte
	have   int    // bytes of header
	body   uint32 // bytes of the frame's body still to come
	pings  int
	since  time.Time
}

func newGuard(c net.Conn) *guard { return &guard{Conn: c} }

// Read reads from the guest, judging every frame header on the way.
func (g *guard) Read(p []byte) (int, error) {
	n, err := g.Conn.Read(p)
	if bad := g.check(p[:n]); bad != nil {
		_ = g.Conn.Close()
		return 0, bad
	}
	return n, err
}

func (g *guard) check(p []byte) error {
	for len(p) > 0 {
		if g.body > 0 {
			n := min(uint64(len(p)), uint64(g.body))
			g.body -= uint32(n)
			p = p[n:]
			continue
		}
		n := copy(g.header[g.have:], p)
		g.have += n
		p = p[n:]
		if g.have == frameHeader {
			g.have = 0
			if err := g.frame(); err != nil {
				return err
			}
		}
	}
	return nil
}

// frame judges the header that is complete.
func (g *guard) frame() error {
	flags := binary.BigEndian.Uint16(g.header[2:])
	length := binary.BigEndian.Uint32(g.header[8:])
	if g.header[0] != 0 {
		return errFrame
	}
	switch g.header[1] {
	case typeData, typeUpdate:
		if flags&flagSYN != 0 {
			return errSYN // only the node opens streams
		}
		if g.header[1] == typeData {
			if length > window {
				return errBig
			}
			g.body = length
		}
	case typePing:
		if flags&flagSYN != 0 {
			return g.ping()
		}
	case typeAway:
	default:
		return errFrame
	}
	return nil
}

func (g *guard) ping() error {
	if now := time.Now(); now.Sub(g.since) > pingPeriod {
		g.since, g.pings = now, 0
	}
	if g.pings++; g.pings > pings {
		return errPings
	}
	return nil
}
