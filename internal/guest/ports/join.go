package ports

import (
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/billethq/billet/internal/guest"
)

// accept switches the request's connection to raw bytes.
func accept(w http.ResponseWriter) (net.Conn, error) {
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return nil, err
	}
	// The HTTP server may have left its own deadlines on the connection.
	_ = conn.SetDeadline(time.Time{})
	if _, err := io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "+guest.StreamProtocol+"\r\n\r\n"); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return &early{Conn: conn, r: rw.Reader}, nil
}

// early first yields what the HTTP reader had read ahead.
type early struct {
	net.Conn
	r io.Reader
}

// Read reads what the caller has sent.
func (c *early) Read(p []byte) (int, error) { return c.r.Read(p) }

// linger is how long one direction may be silent once the other has ended: a
// server that ignores the end of its client holds a place no longer.
const linger = time.Minute

// join copies both ways until both have ended. The end of one direction is
// passed on by itself: the other goes on for as long as bytes come.
func join(client, server net.Conn) {
	var wg sync.WaitGroup
	var over atomic.Bool // one direction has ended
	pipe := func(dst, src net.Conn) {
		_, _ = io.Copy(dst, impatient{src, &over})
		closeWrite(dst)
		over.Store(true)
		_ = dst.SetReadDeadline(time.Now().Add(linger)) // of the Read that waits now
	}
	wg.Go(func() { pipe(client, server) })
	wg.Go(func() { pipe(server, client) })
	wg.Wait()
	_ = client.Close()
	_ = server.Close()
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
// the Close of the agent's own streams does exactly that, reading goes on.
func closeWrite(c net.Conn) {
	if cw, ok := c.(interface{ CloseWrite() error }); ok {
		_ = cw.CloseWrite()
		return
	}
	_ = c.Close()
}
