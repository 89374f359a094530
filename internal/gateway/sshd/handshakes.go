package sshd

import (
	"container/list"
	"net"
	"sync"
)

// handshakes are the clients that are not known yet, oldest first.
type handshakes struct {
	max int

	mu  sync.Mutex
	all *list.List // of net.Conn
}

func newHandshakes(max int) *handshakes { return &handshakes{max: max, all: list.New()} }

// enter adds a client; when there are too many the oldest is closed. leave may
// be called more than once.
func (h *handshakes) enter(c net.Conn) (leave func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for h.all.Len() >= h.max {
		_ = h.all.Remove(h.all.Front()).(net.Conn).Close()
	}
	e := h.all.PushBack(c)
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.all.Remove(e) // nothing, when it is no element any more
	}
}
