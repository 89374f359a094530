package agent

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"sync"

	"google.golang.org/protobuf/proto"

	"github.com/billethq/billet/internal/guest/processpb"
	"github.com/billethq/billet/internal/guest/processpb/processpbconnect"
)

// warmCommand is what no guest has in its path: nothing comes of it but an error.
const warmCommand = "billet-warm"

// warm asks the agent, by itself, for a command that is not there. The request
// goes the way of a first command up to its new process: so the code is read
// from the host, the tables of the messages are made and the account files are
// known by the time that somebody waits for a command. It forks nothing, for
// which that command would have to wait.
func (a *Agent) warm() {
	msg, err := proto.Marshal(&processpb.StartRequest{Process: &processpb.ProcessConfig{Cmd: warmCommand}})
	if err != nil {
		return
	}
	const flags = 0
	envelope := append(binary.BigEndian.AppendUint32([]byte{flags}, uint32(len(msg))), msg...)
	req, err := http.NewRequest(http.MethodPost, "http://guest"+processpbconnect.ProcessStartProcedure, bytes.NewReader(envelope))
	if err != nil {
		return
	}
	req.Header.Set("Content-Type", "application/connect+proto")
	req.Close = true

	ours, theirs := net.Pipe()
	once := &single{conn: theirs, closed: make(chan struct{})}
	var parts sync.WaitGroup
	parts.Go(func() {
		_ = a.server.Serve(once)
		_ = theirs.Close() // a server that has ended already never took it
	})
	parts.Go(func() { _ = req.Write(ours) })
	_, _ = io.Copy(io.Discard, ours)
	_ = ours.Close()
	_ = once.Close()
	parts.Wait()
}

// single is a listener with one connection.
type single struct {
	conn   net.Conn
	taken  bool // by Accept, which is called by one goroutine
	once   sync.Once
	closed chan struct{}
}

func (s *single) Accept() (net.Conn, error) {
	if !s.taken {
		s.taken = true
		return s.conn, nil
	}
	<-s.closed
	return nil, net.ErrClosed
}

func (s *single) Close() error {
	s.once.Do(func() { close(s.closed) })
	return nil
}

func (s *single) Addr() net.Addr { return s.conn.LocalAddr() }
