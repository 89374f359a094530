package ports

import (
	"io"
	"net"
	"net/http"
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
