package forward

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/testenv"
)

// joined returns a client of a server in this process.
func joined(t *testing.T) *Client {
	t.Helper()
	toGuest, in := io.Pipe()
	fromGuest, out := io.Pipe()
	served := make(chan error, 1)
	go func() { served <- Serve(toGuest, out) }()
	c, err := NewClient(in, fromGuest, func() error { _ = in.Close(); return fromGuest.Close() })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Close()
		if err := <-served; err != nil {
			t.Errorf("the server ended with %v", err)
		}
	})
	return c
}

func echo(t *testing.T, network, address string) net.Addr {
	t.Helper()
	l, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(c, c); _ = c.Close() }()
		}
	}()
	return l.Addr()
}

func TestDial_BothNetworks(t *testing.T) {
	c := joined(t)
	for _, a := range []net.Addr{echo(t, "tcp", "127.0.0.1:0"), echo(t, "unix", filepath.Join(t.TempDir(), "s"))} {
		conn, err := c.Dial(t.Context(), a.Network(), a.String())
		if err != nil {
			t.Fatal(err)
		}
		want := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
		go func() { _, _ = conn.Write(want); _ = conn.Close() }()
		got, err := io.ReadAll(conn)
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %d bytes of %d came back, %v", a.Network(), len(got), len(want), err)
		}
	}
	if _, err := c.Dial(t.Context(), "unix", filepath.Join(t.TempDir(), "none")); !errs.Is(err, errs.NotFound) {
		t.Errorf("a socket that is not there: %v, want not found", err)
	}
	if _, err := c.Dial(t.Context(), "udp", "127.0.0.1:1"); err == nil {
		t.Error("udp is dialled")
	}
}

func TestListen_AgentSocketIsPrivateAndGoes(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	c := joined(t)
	at, stop, err := c.Listen(t.Context(), NetworkAgent, "", func(conn net.Conn, _ string) {
		_, _ = io.Copy(conn, conn)
		_ = conn.Close()
	})
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(filepath.Dir(at)); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("directory of the socket: %v, %v, want mode 0700", info.Mode(), err)
	}
	conn, err := net.Dial("unix", at)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = conn.Write([]byte("hello"))
	_ = conn.(*net.UnixConn).CloseWrite()
	if got, err := io.ReadAll(conn); string(got) != "hello" {
		t.Errorf("got %q, %v", got, err)
	}
	_ = conn.Close()
	_ = stop.Close()
	testenv.Await(t, 10*time.Second, func() error {
		if _, err := os.Stat(at); !os.IsNotExist(err) {
			return errors.New("the socket is still there")
		}
		return nil
	})
}

func TestListen_IsBounded(t *testing.T) {
	c := joined(t)
	handle := func(conn net.Conn, _ string) { _ = conn.Close() }
	for range MaxListeners {
		if _, _, err := c.Listen(t.Context(), "tcp", "127.0.0.1:0", handle); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := c.Listen(t.Context(), "tcp", "127.0.0.1:0", handle); err == nil {
		t.Errorf("more than %d listeners", MaxListeners)
	}
}
