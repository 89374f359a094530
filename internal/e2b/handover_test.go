package e2b

import (
	"net"
	"net/http"

	"github.com/billethq/billet/internal/road"
)

// handedOver is a listener of the connections that a gateway's door took over.
type handedOver struct {
	conns  chan net.Conn
	closed chan struct{}
	addr   net.Addr
}

func (h *handedOver) take(rw http.ResponseWriter, r *http.Request) {
	if _, err := road.TicketOf(r); err != nil {
		http.Error(rw, err.Error(), http.StatusUnauthorized)
		return
	}
	conn, err := road.Accept(rw)
	if err != nil {
		return
	}
	select {
	case h.conns <- conn:
	case <-h.closed:
		_ = conn.Close()
	}
}

func (h *handedOver) Accept() (net.Conn, error) {
	select {
	case c := <-h.conns:
		return c, nil
	case <-h.closed:
		return nil, net.ErrClosed
	}
}

func (h *handedOver) Close() error {
	select {
	case <-h.closed:
	default:
		close(h.closed)
	}
	return nil
}

func (h *handedOver) Addr() net.Addr { return h.addr }
