package splice

import (
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// half is an end of a connection whose writing direction can be ended alone.
type half struct {
	net.Conn          // reads
	w        net.Conn // writes
}

func (h half) Write(p []byte) (int, error) { return h.w.Write(p) }
func (h half) CloseWrite() error           { return h.w.Close() }
func (h half) Close() error                { _ = h.w.Close(); return h.Conn.Close() }

func halves() (near, far half) {
	a, b := net.Pipe()
	c, d := net.Pipe()
	return half{a, c}, half{d, b}
}

// joined is a client and a server with Join between them.
func joined() (client, server half, done chan struct{}) {
	client, a := halves()
	server, b := halves()
	done = make(chan struct{})
	go func() { defer close(done); Join(a, b) }()
	return client, server, done
}

func TestJoin_EndOfOneLeavesTheOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server, done := joined()
		_ = client.CloseWrite()
		if n, err := server.Read(make([]byte, 1)); err != io.EOF {
			t.Fatalf("the server read %d, %v, want the end", n, err)
		}
		for range 100 { // for much longer than linger, with pauses below it
			time.Sleep(linger * 3 / 4)
			go func() { _, _ = server.Write([]byte("x")) }()
			if _, err := io.ReadFull(client, make([]byte, 1)); err != nil {
				t.Fatalf("while bytes come: %v", err)
			}
		}
		_ = server.CloseWrite()
		if n, err := client.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("the client read %d, %v, want the end", n, err)
		}
		<-done
	})
}

func TestJoin_SilentPeerHoldsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, _, done := joined()
		began := time.Now()
		_ = client.CloseWrite()
		<-done
		if took := time.Since(began); took != linger {
			t.Errorf("ended after %v, want %v", took, linger)
		}
	})
}

func TestJoin_BreakEndsBoth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server, done := joined()
		began := time.Now()
		_ = client.Conn.Close() // what the server says has nowhere to go
		if _, err := server.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		<-done
		if took := time.Since(began); took != 0 {
			t.Errorf("ended after %v, want at once", took)
		}
	})
}
