// Package framed gives a connection each frame of a yamux session in one write.
//
// yamux writes a frame's header and its body apart. That is a second system
// call for each frame, and on a local socket the peer is woken by the header
// and has to wait once more for the body: in a sandbox, where both are dear,
// that is felt in every answer of a guest.
package framed

import (
	"encoding/binary"
	"net"
)

const (
	// headerSize is a frame's header: version, type, flags (2), stream (4),
	// length (4), which only a data frame's is followed by.
	headerSize = 12
	typeData   = 0
	// maxJoined bounds the bodies that are copied behind their header. For
	// larger ones the copy costs more than the call.
	maxJoined = 32 << 10
)

// Conn is what a yamux session writes to, from one goroutine.
type Conn struct {
	net.Conn
	header [headerSize]byte
	held   bool // header waits for its body
	frame  []byte
}

// New returns a Conn over c.
func New(c net.Conn) *Conn { return &Conn{Conn: c} }

// Write writes p, after a header that was held back. The header of a data frame
// is held back: its body follows.
func (c *Conn) Write(p []byte) (int, error) {
	if !c.held {
		if len(p) == headerSize && p[1] == typeData && binary.BigEndian.Uint32(p[8:]) > 0 {
			copy(c.header[:], p)
			c.held = true
			return len(p), nil
		}
		return c.Conn.Write(p)
	}
	c.held = false
	if len(p) > maxJoined {
		if _, err := c.Conn.Write(c.header[:]); err != nil {
			return 0, err
		}
		return c.Conn.Write(p)
	}
	c.frame = append(append(c.frame[:0], c.header[:]...), p...)
	n, err := c.Conn.Write(c.frame)
	return max(0, n-headerSize), err
}
