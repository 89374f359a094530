package agentlink_test

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/yamux"

	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/guest/agentlink"
	"github.com/billethq/billet/internal/guest/guestpath"
)

// patience bounds every wait of these tests; none takes it when all is well.
const patience = time.Minute

func listen(t *testing.T, dir string) *agentlink.Link {
	t.Helper()
	k, err := agentlink.Listen(dir, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = k.Close() })
	return k
}

// dial connects as the guest does, from within the directory: the path may be
// longer than an address.
func dial(t *testing.T, dir string) net.Conn {
	t.Helper()
	t.Chdir(dir)
	c, err := net.Dial("unix", guestpath.AgentSocket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// agent is a well-behaved one that answers each stream with its name.
func agent(t *testing.T, dir, name string) *yamux.Session {
	t.Helper()
	cfg := yamux.DefaultConfig()
	cfg.LogOutput = io.Discard
	s, err := yamux.Server(dial(t, dir), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	go func() {
		for {
			c, err := s.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, name)
			_ = c.Close()
		}
	}()
	return s
}

func patient(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// answer opens a stream and reads who is at the other end.
func answer(t *testing.T, k *agentlink.Link) string {
	t.Helper()
	c, err := k.Open(patient(t))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	b, err := io.ReadAll(c)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// ended waits until the node has closed the session.
func ended(t *testing.T, s *yamux.Session) {
	t.Helper()
	select {
	case <-s.CloseChan():
	case <-patient(t).Done():
		t.Error("the session goes on")
	}
}

func TestLink_NewestConnectionWins(t *testing.T) {
	dir := t.TempDir()
	k := listen(t, dir)
	select {
	case <-k.Attached():
		t.Error("attached without an agent")
	default:
	}
	first := agent(t, dir, "first")
	<-k.Attached()
	if got := answer(t, k); got != "first" {
		t.Errorf("answered by %q", got)
	}
	agent(t, dir, "second")
	ended(t, first)
	if got := answer(t, k); got != "second" {
		t.Errorf("answered by %q, want the newest", got)
	}
}

func TestLink_NodeRestartReplacesTheSocket(t *testing.T) {
	// Longer than the 107 bytes of an address.
	dir := filepath.Join(t.TempDir(), strings.Repeat("d", 120))
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	old := listen(t, dir)
	s := agent(t, dir, "guest")
	<-old.Attached()
	next := listen(t, dir) // the old one still lives
	if got := answer(t, old); got != "guest" {
		t.Errorf("the old node's session answers %q", got)
	}
	_ = old.Close()
	ended(t, s)
	agent(t, dir, "again")
	if got := answer(t, next); got != "again" {
		t.Errorf("answered by %q", got)
	}
	names, err := os.ReadDir(dir)
	if err != nil || len(names) != 1 || names[0].Name() != guestpath.AgentSocket {
		t.Errorf("in the directory: %v, %v; want the socket alone", names, err)
	}
	if info, err := names[0].Info(); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the socket's mode is %v, %v", info.Mode(), err)
	}
}

func TestLink_OpenIsBoundedByItsContext(t *testing.T) {
	dir := t.TempDir()
	k := listen(t, dir)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := k.Open(ctx); !errs.Is(err, errs.Unavailable) || !errors.Is(err, context.Canceled) {
		t.Errorf("without an agent: %v", err)
	}
	dial(t, dir) // says nothing, and accepts no stream
	<-k.Attached()
	// Streams to an agent that does not answer: at some point Open waits.
	ctx, cancel = context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	opened := 0
	for ctx.Err() == nil {
		if _, err := k.Open(ctx); err == nil {
			opened++
		} else if !errs.Is(err, errs.Unavailable) {
			t.Errorf("to a deaf agent: %v", err)
		}
	}
	if opened > 64 {
		t.Errorf("%d streams to a deaf agent; want at most 64", opened)
	}
	_ = k.Close()
	if _, err := k.Open(t.Context()); !errs.Is(err, errs.Unavailable) {
		t.Errorf("after Close: %v", err)
	}
}

func frame(kind byte, flags uint16, stream, length uint32) []byte {
	b := []byte{0, kind}
	b = binary.BigEndian.AppendUint16(b, flags)
	b = binary.BigEndian.AppendUint32(b, stream)
	return binary.BigEndian.AppendUint32(b, length)
}

func TestLink_EndsAHostileSession(t *testing.T) {
	var pings []byte
	for i := range uint32(100) {
		pings = append(pings, frame(2, 1, 0, i)...)
	}
	for name, bytes := range map[string][]byte{
		"opens a stream":         frame(1, 1, 2, 0),
		"opens a stream by data": append(frame(0, 1, 2, 1), 'x'),
		"more than a window":     frame(0, 0, 1, 1<<31),
		"unknown frame":          frame(9, 0, 0, 0),
		"unknown version":        append([]byte{7}, frame(1, 0, 0, 0)[1:]...),
		"floods pings":           pings,
		"no frames at all":       []byte("GET / HTTP/1.1\r\nHost: node\r\n\r\n"),
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			k := listen(t, dir)
			c := dial(t, dir)
			_, _ = c.Write(bytes)
			_ = c.SetReadDeadline(time.Now().Add(patience))
			if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
				t.Error("the session goes on")
			}
			agent(t, dir, "guest") // a better one is still welcome
			if got := answer(t, k); got != "guest" {
				t.Errorf("answered by %q", got)
			}
		})
	}
}
