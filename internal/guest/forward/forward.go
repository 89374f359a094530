// Package forward carries connections into and out of a guest over the two
// streams of one process in it, which runs as the user on whose behalf they
// are made: it reaches what that user reaches, and listens as that user.
//
// The streams are multiplexed. One that the outside opens asks to dial or to
// listen, and is answered; one that the inside opens is a connection that a
// listener accepted. A listener lives as long as the stream that asked for it.
package forward

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"net"
	"time"

	"github.com/hashicorp/yamux"
)

const (
	// MaxStreams bounds the connections of one process: an editor with a few
	// language servers has tens.
	MaxStreams = 256
	// MaxListeners bounds the listeners among them.
	MaxListeners = 32
	// dialTimeout bounds a dial in the guest.
	dialTimeout = 10 * time.Second
	// frameTimeout bounds the wait for the first words of a stream.
	frameTimeout = 2 * time.Minute
	// maxFrame bounds them: a path is at most 4 KiB.
	maxFrame = 8 << 10
)

// The operations of a request.
const (
	opDial   = "dial"
	opListen = "listen"
)

// NetworkAgent listens on a Unix socket in a new directory that only the user
// can open: the place of an agent of keys.
const NetworkAgent = "agent"

// request opens a stream from the outside.
type request struct {
	Op      string `json:"op"`
	Network string `json:"network"` // tcp, unix or, to listen, NetworkAgent
	Address string `json:"address"`
}

// reply answers it.
type reply struct {
	Error   string `json:"error,omitempty"`
	Address string `json:"address,omitempty"` // where it listens
	ID      uint64 `json:"id,omitempty"`      // of the listener
}

// accepted opens a stream from the inside.
type accepted struct {
	ID   uint64 `json:"id"` // of the listener
	From string `json:"from"`
}

// config has the session wait longer than a road may be cut for without the
// loss of what goes over it.
func config() *yamux.Config {
	c := yamux.DefaultConfig()
	c.AcceptBacklog = MaxStreams
	c.EnableKeepAlive = true
	c.KeepAliveInterval = 30 * time.Second
	c.ConnectionWriteTimeout = 100 * time.Second
	c.LogOutput = io.Discard // the errors say the same
	return c
}

func writeFrame(w io.Writer, v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if len(body) > maxFrame {
		return errors.New("frame is too long")
	}
	_, err = w.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...))
	return err
}

func readFrame(c net.Conn, v any) error {
	_ = c.SetReadDeadline(time.Now().Add(frameTimeout))
	defer func() { _ = c.SetReadDeadline(time.Time{}) }()
	var size [4]byte
	if _, err := io.ReadFull(c, size[:]); err != nil {
		return err
	}
	n := binary.BigEndian.Uint32(size[:])
	if n > maxFrame {
		return errors.New("frame is too long")
	}
	body := make([]byte, n)
	if _, err := io.ReadFull(c, body); err != nil {
		return err
	}
	return json.Unmarshal(body, v)
}

// pipes are the two streams as one.
type pipes struct {
	io.Reader
	io.Writer
	close func() error
}

func (p pipes) Close() error {
	if p.close == nil {
		return nil
	}
	return p.close()
}

// closeWriter is a connection whose sides end apart.
type closeWriter interface{ CloseWrite() error }

// join moves bytes both ways until both ways have ended.
func join(a, b net.Conn) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		pass(a, b)
	}()
	pass(b, a)
	<-done
	_ = a.Close()
	_ = b.Close()
}

// pass moves bytes one way and passes the end on. A yamux stream's Close ends
// its own direction and leaves the other.
func pass(dst, src net.Conn) {
	_, err := io.Copy(dst, src)
	if err != nil {
		_ = src.Close()
		_ = dst.Close()
		return
	}
	if cw, ok := dst.(closeWriter); ok {
		_ = cw.CloseWrite()
		return
	}
	_ = dst.Close()
}
