package road

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"github.com/billethq/billet/internal/errs"
)

// hello opens a stream from a gateway to a node; the node answers with reply,
// then the stream is the client's.
type hello struct {
	Ticket string `json:"ticket"`
}

type reply struct {
	Kind    errs.Kind `json:"kind,omitempty"` // "" when the stream is open
	Message string    `json:"message,omitempty"`
	Hint    string    `json:"hint,omitempty"`
}

// maxFrame bounds a hello or reply: a ticket and a message are far smaller.
const maxFrame = 8 << 10

func writeFrame(w io.Writer, v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if len(body) > maxFrame {
		return errs.New(errs.Internal, "frame of %d bytes is too long", len(body))
	}
	buf := binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(body)), uint32(len(body)))
	_, err = w.Write(append(buf, body...))
	return err
}

func readFrame(r io.Reader, v any) error {
	var size [4]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return err
	}
	n := binary.BigEndian.Uint32(size[:])
	if n > maxFrame {
		return errs.New(errs.Invalid, "frame of %d bytes is too long", n)
	}
	body := make([]byte, n)
	if _, err := io.ReadFull(r, body); err != nil {
		return err
	}
	return json.Unmarshal(body, v)
}

// lingerAfterEOF bounds how long Join keeps one direction open after the other
// has ended: long enough to drain what is in flight, short enough that a peer
// which never closes holds nothing.
const lingerAfterEOF = 10 * time.Second

// Join copies between a and b in both directions until both have ended, and
// closes both. When one direction ends the other has lingerAfterEOF left.
func Join(a, b net.Conn) {
	var wg sync.WaitGroup
	pipe := func(dst, src net.Conn) {
		_, err := io.Copy(dst, src)
		closeWrite(dst)
		deadline := time.Now().Add(lingerAfterEOF)
		if err != nil && !errors.Is(err, io.EOF) {
			deadline = time.Now() // broken, not ended: nothing is left to drain
		}
		_ = dst.SetReadDeadline(deadline)
	}
	wg.Go(func() { pipe(a, b) })
	wg.Go(func() { pipe(b, a) })
	wg.Wait()
	_ = a.Close()
	_ = b.Close()
}

// closeWrite ends the writing direction. A yamux stream's Close does exactly
// that: reading goes on until the peer has closed too.
func closeWrite(c net.Conn) {
	if cw, ok := c.(interface{ CloseWrite() error }); ok {
		_ = cw.CloseWrite()
		return
	}
	_ = c.Close()
}
