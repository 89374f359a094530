package calls

import (
	"bufio"
	"bytes"
	"net/http"
	"slices"
)

// maxHead bounds what is kept of a request's head: as much as the agent takes.
const maxHead = 64 << 10

// state is where in a stream of HTTP/1.1 requests a scanner is.
type state uint8

const (
	inHead    state = iota
	inBody          // of left bytes
	inSize          // a chunk's length, or after the last one
	inChunk         // of left bytes, its line end included
	inTrailer       // lines after the last chunk
	inRaw           // no HTTP (any more): bytes of a connection, until the end
)

// scanner follows the requests of one stream, in pieces of any length. What
// cannot be one is taken for bytes of a connection.
type scanner struct {
	to    *Counts
	state state
	call  kind
	line  []byte // of the head, or the size of a chunk, so far
	left  int64
}

// see takes the next bytes.
func (s *scanner) see(p []byte) {
	inside := s.state == inBody || s.state == inChunk
	if inside && s.call == doing && len(p) > 0 {
		s.to.calls.Add(1) // a long upload is work as long as it goes on
	}
	for len(p) > 0 {
		p = p[s.step(p):]
	}
}

// step takes as many bytes as belong to the present state.
func (s *scanner) step(p []byte) int {
	switch s.state {
	case inHead:
		return s.head(p)
	case inSize:
		return s.size(p)
	case inTrailer:
		return s.trailer(p)
	case inBody, inChunk:
		n := int(min(int64(len(p)), s.left))
		s.left -= int64(n)
		if s.call == flow {
			s.to.ports.Add(int64(n))
		}
		if s.left == 0 {
			s.state = map[state]state{inBody: inHead, inChunk: inSize}[s.state]
		}
		return n
	case inRaw:
	}
	s.to.ports.Add(int64(len(p)))
	return len(p)
}

// collect adds to line up to and with end, and reports whether that has come.
func (s *scanner) collect(p []byte, end string, most int) (n int, whole bool) {
	before := len(s.line)
	s.line = append(s.line, p[:min(len(p), most-before)]...)
	// The end may have begun in an earlier piece.
	from := max(0, before-len(end)+1)
	at := bytes.Index(s.line[from:], []byte(end))
	if at < 0 {
		return len(s.line) - before, false
	}
	s.line = s.line[:from+at+len(end)]
	return len(s.line) - before, true
}

func (s *scanner) head(p []byte) int {
	n, whole := s.collect(p, "\r\n\r\n", maxHead)
	switch {
	case whole:
		s.begin()
	case len(s.line) >= maxHead:
		s.raw()
	}
	return n
}

// begin takes the head of a request.
func (s *scanner) begin() {
	r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(s.line)))
	if err != nil {
		s.raw()
		return
	}
	s.line = s.line[:0]
	s.call = kindOf(r)
	if s.call == doing {
		s.to.calls.Add(1)
	}
	switch {
	case r.Header.Get("Upgrade") != "":
		s.state = inRaw
	case slices.Equal(r.TransferEncoding, []string{"chunked"}):
		s.state = inSize
	case r.ContentLength > 0:
		s.state, s.left = inBody, r.ContentLength
	}
}

// raw gives up on requests: what was kept, and what comes, is counted as bytes.
func (s *scanner) raw() {
	s.to.ports.Add(int64(len(s.line)))
	s.state, s.line = inRaw, nil
}

const (
	// maxSize bounds the line before a chunk, whose extensions nobody uses.
	maxSize = 256
	// maxDigits of a chunk's length are 2⁶⁰ bytes, more than anybody sends.
	maxDigits = 15
)

func (s *scanner) size(p []byte) int {
	n, whole := s.collect(p, "\r\n", maxSize)
	if !whole {
		if len(s.line) >= maxSize {
			s.raw()
		}
		return n
	}
	length, ok := hex(s.line[:len(s.line)-2])
	switch {
	case !ok:
		s.raw()
	case length == 0:
		s.state, s.line = inTrailer, s.line[:0]
	default:
		s.state, s.left, s.line = inChunk, length+2, s.line[:0]
	}
	return n
}

// hex reads the length of a chunk, before its extensions.
func hex(line []byte) (n int64, ok bool) {
	line, _, _ = bytes.Cut(line, []byte(";"))
	line = bytes.TrimRight(line, " \t")
	if len(line) == 0 || len(line) > maxDigits {
		return 0, false
	}
	for _, c := range line {
		digit := bytes.IndexByte([]byte("0123456789abcdef"), c|0x20)
		if c <= '9' {
			digit = int(c) - '0'
		}
		if digit < 0 {
			return 0, false
		}
		n = n<<4 | int64(digit)
	}
	return n, true
}

// trailer reads lines until an empty one.
func (s *scanner) trailer(p []byte) int {
	n, whole := s.collect(p, "\r\n", maxHead)
	switch {
	case whole && len(s.line) == len("\r\n"):
		s.state, s.line = inHead, s.line[:0]
	case whole:
		s.line = s.line[:0]
	case len(s.line) >= maxHead:
		s.raw()
	}
	return n
}
