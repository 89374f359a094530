package framed_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/yamux"

	"github.com/billethq/billet/internal/road/framed"
)

// recorder keeps what each Write was given.
type recorder struct {
	net.Conn
	writes [][]byte
}

func (r *recorder) Write(p []byte) (int, error) {
	r.writes = append(r.writes, bytes.Clone(p))
	return len(p), nil
}

func header(typ byte, length int) []byte {
	h := make([]byte, 12)
	h[1] = typ
	binary.BigEndian.PutUint32(h[8:], uint32(length))
	return h
}

func TestConn_OneWriteForEachFrame(t *testing.T) {
	const data, update = 0, 1
	big := make([]byte, 64<<10)
	for _, c := range []struct {
		name string
		in   [][]byte
		want [][]byte
	}{
		{"a frame with a body", [][]byte{header(data, 3), []byte("abc")}, [][]byte{append(header(data, 3), "abc"...)}},
		{"one without", [][]byte{header(data, 0)}, [][]byte{header(data, 0)}},
		{"a window is no body", [][]byte{header(update, 256)}, [][]byte{header(update, 256)}},
		{"a body like a header", [][]byte{header(data, 12), header(data, 9)}, [][]byte{append(header(data, 12), header(data, 9)...)}},
		{"a large body", [][]byte{header(data, len(big)), big}, [][]byte{header(data, len(big)), big}},
		{"two", [][]byte{header(data, 1), []byte("a"), header(data, 1), []byte("b")}, [][]byte{append(header(data, 1), 'a'), append(header(data, 1), 'b')}},
	} {
		r := &recorder{}
		f := framed.New(r)
		for _, p := range c.in {
			if n, err := f.Write(p); n != len(p) || err != nil {
				t.Errorf("%s: %d, %v, want %d", c.name, n, err, len(p))
			}
		}
		if d := cmp.Diff(c.want, r.writes); d != "" {
			t.Errorf("%s: (-want +got)\n%s", c.name, d)
		}
	}
}

// A session over it carries every byte, of pieces of every size and on many
// streams at once.
func TestConn_CarriesASession(t *testing.T) {
	a, b := net.Pipe()
	quiet := yamux.DefaultConfig()
	quiet.LogOutput = io.Discard
	client, err := yamux.Client(framed.New(a), quiet)
	if err != nil {
		t.Fatal(err)
	}
	server, err := yamux.Server(framed.New(b), quiet)
	if err != nil {
		t.Fatal(err)
	}
	var echoes sync.WaitGroup
	defer echoes.Wait()
	defer client.Close()
	defer server.Close()
	echoes.Go(func() {
		for {
			s, err := server.Accept()
			if err != nil {
				return
			}
			echoes.Go(func() {
				_, _ = io.Copy(s, s)
				_ = s.Close()
			})
		}
	})
	var streams sync.WaitGroup
	for seed := range uint64(8) {
		streams.Go(func() {
			rng := rand.New(rand.NewPCG(seed, 1))
			s, err := client.Open()
			if err != nil {
				t.Errorf("seed %d: %v", seed, err)
				return
			}
			sent := sha256.New()
			var writing sync.WaitGroup
			writing.Go(func() {
				for range 50 {
					p := make([]byte, 1+rng.IntN(100<<10))
					sent.Write(p)
					if _, err := s.Write(p); err != nil {
						t.Errorf("seed %d: %v", seed, err)
					}
				}
				_ = s.Close()
			})
			got := sha256.New()
			if _, err := io.Copy(got, s); err != nil {
				t.Errorf("seed %d: %v", seed, err)
			}
			writing.Wait()
			if !bytes.Equal(got.Sum(nil), sent.Sum(nil)) {
				t.Errorf("seed %d: what came back is not what was sent", seed)
			}
		})
	}
	streams.Wait()
}
