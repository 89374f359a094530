package road

import (
	"encoding/binary"
	"encoding/json"
	"io"

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
