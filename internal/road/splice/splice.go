// Package splice joins two connections into one.
package splice

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// linger is how long one direction may be silent once the other has ended: a
// peer that ignores the end of the other holds a place no longer.
const linger = time.Minute

// Join copies between a and b until both directions have ended, and closes
// both. The end of one direction is passed on by itself: the other goes on for
// as long as bytes come. A direction that breaks ends the other at once.
func Join(a, b net.Conn) {
	var wg sync.WaitGroup
	var over atomic.Bool // one direction has ended
	pipe := func(dst, src net.Conn) {
		_, err := io.Copy(dst, impatient{src, &over})
		if err != nil { // broken, not ended: nothing is left to drain
			_ = a.Close()
			_ = b.Close()
			return
		}
		closeWrite(dst)
		over.Store(true)
		_ = dst.SetReadDeadline(time.Now().Add(linger)) // of the Read that waits now
	}
	wg.Go(func() { pipe(a, b) })
	wg.Go(func() { pipe(b, a) })
	wg.Wait()
	_ = a.Close()
	_ = b.Close()
}

// impatient waits for each Read no longer than linger once over is set.
type impatient struct {
	net.Conn
	over *atomic.Bool
}

// Read reads under the deadline.
func (c impatient) Read(p []byte) (int, error) {
	if c.over.Load() {
		_ = c.Conn.SetReadDeadline(time.Now().Add(linger))
	}
	return c.Conn.Read(p)
}

// closeWrite ends the writing direction: by its own call where there is one;
// the Close of a yamux stream does exactly that, reading goes on.
func closeWrite(c net.Conn) {
	if cw, ok := c.(interface{ CloseWrite() error }); ok {
		_ = cw.CloseWrite()
		return
	}
	_ = c.Close()
}
