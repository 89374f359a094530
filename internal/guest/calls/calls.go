// Package calls tells, from the bytes that clients send to a guest's agent,
// which of them are somebody's doing.
//
// A client that nobody sits at says a lot: it acknowledges output, comes back
// after a lost road and follows again, keeps connections open. Counted in bytes
// that looks like typing, so the calls themselves are looked at. They are the
// clients', which the gateway has let in, and not the guest's: what a guest
// does cannot add to them.
package calls

import (
	"net"
	"net/http"
	"sync/atomic"

	"github.com/billethq/billet/internal/guest"
	fs "github.com/billethq/billet/internal/guest/filesystempb/filesystempbconnect"
	ps "github.com/billethq/billet/internal/guest/processpb/processpbconnect"
)

// Counts are those of one guest, over all its streams.
type Counts struct {
	calls, ports, egress atomic.Int64
}

// Calls are those that somebody made, and the further pieces of long ones.
func (c *Counts) Calls() int64 { return c.calls.Load() }

// Ports are the bytes into ports of the guest.
func (c *Counts) Ports() int64 { return c.ports.Load() }

// Egress are the bytes that came out of the guest.
func (c *Counts) Egress() int64 { return c.egress.Load() }

// Count returns agent, the end of a stream that a client's bytes are written
// to, with what goes over it counted.
func (c *Counts) Count(agent net.Conn) net.Conn {
	return &counted{Conn: agent, counts: c, scan: scanner{to: c}}
}

type counted struct {
	net.Conn
	counts *Counts
	scan   scanner
}

// Write passes a client's bytes on.
func (c *counted) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.scan.see(p[:n])
	return n, err
}

// Read takes the guest's.
func (c *counted) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.counts.egress.Add(int64(n))
	return n, err
}

// kind is what a call is to idleness.
type kind uint8

const (
	doing kind = iota // somebody's
	quiet             // made without anybody: following, acknowledging, looking
	flow              // its body are bytes of a connection into the guest
)

// kindOf says what a call is. One that this release does not know is somebody's
// doing: to end the guest under it would be the worse mistake.
func kindOf(r *http.Request) kind {
	switch r.URL.Path {
	case guest.DialPath:
		return flow
	case ps.ProcessSendInputProcedure, ps.ProcessStreamInputProcedure:
		if r.Header.Get(guest.HeaderFlow) != "" {
			return flow
		}
	case guest.AckPath, guest.TerminalsPath, guest.PortsPath, guest.VersionPath, "/health", "/metrics", "/envs",
		ps.ProcessConnectProcedure, ps.ProcessListProcedure,
		// A window is fitted again whenever a client comes back.
		ps.ProcessUpdateProcedure,
		fs.FilesystemWatchDirProcedure, fs.FilesystemCreateWatcherProcedure, fs.FilesystemGetWatcherEventsProcedure, fs.FilesystemRemoveWatcherProcedure:
		return quiet
	}
	return doing
}
