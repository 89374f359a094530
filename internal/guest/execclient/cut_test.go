package execclient_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/guest/execclient"
	"github.com/billethq/billet/internal/guest/guesttest"
)

// cutter dials connections that break after a number of bytes chosen by seed,
// in either direction.
type cutter struct {
	dial func(context.Context) (net.Conn, error)
	most int64

	mu   sync.Mutex
	rand *rand.Rand
	cuts atomic.Int64
	off  atomic.Bool // cut no more
}

func (c *cutter) Dial(ctx context.Context) (net.Conn, error) {
	conn, err := c.dial(ctx)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	k := &cutConn{Conn: conn, cutter: c}
	k.left.Store(c.rand.Int64N(c.most))
	return k, nil
}

type cutConn struct {
	net.Conn
	cutter *cutter
	left   atomic.Int64
}

var errCut = errors.New("the test cut the connection")

// take allows up to n bytes, or cuts.
func (k *cutConn) take(n int) (int, error) {
	if k.cutter.off.Load() {
		return n, nil
	}
	left := k.left.Add(-int64(n)) + int64(n)
	if left <= 0 {
		k.cutter.cuts.Add(1)
		_ = k.Conn.Close()
		return 0, errCut
	}
	return int(min(int64(n), left)), nil
}

func (k *cutConn) Read(p []byte) (int, error) {
	n, err := k.Conn.Read(p)
	allowed, cut := k.take(n)
	if cut != nil {
		return 0, cut
	}
	if allowed < n {
		_ = k.Conn.Close() // the rest is lost
		return allowed, nil
	}
	return n, err
}

func (k *cutConn) Write(p []byte) (int, error) {
	allowed, err := k.take(len(p))
	if err != nil {
		return 0, err
	}
	n, err := k.Conn.Write(p[:allowed])
	if err == nil && n < len(p) {
		_ = k.Conn.Close()
		return n, errCut
	}
	return n, err
}

// random returns n bytes of seed.
func random(seed uint64, n int) []byte {
	b := make([]byte, n)
	var key [32]byte
	key[0] = byte(seed)
	_, _ = rand.NewChaCha8(key).Read(b)
	return b
}

func TestRun_LosesNothingWhenTheRoadIsCut(t *testing.T) {
	w := guesttest.New(t)
	for seed := range uint64(6) {
		cut := &cutter{dial: w.Dial, most: 1 << 20, rand: rand.New(rand.NewPCG(seed, 1))}
		if seed%2 == 1 {
			cut.most = 8 << 10 // also before the first answer
		}
		size := 6 << 20
		if seed%2 == 1 {
			size = 24 << 10
		}
		data := random(seed, size)
		var stdout, stderr bytes.Buffer
		// The script counts its own starts: a repeated Start must not be a second one.
		mark := t.TempDir() + "/starts"
		code, err := guesttest.Client(t, cut.Dial).Run(guesttest.Context(t), execclient.Command{
			Args: []string{"/bin/sh", "-c", "echo start >>" + mark + "; tee /dev/stderr; exit 7"}, User: "root",
			Stdin: bytes.NewReader(data), Stdout: &stdout, Stderr: &stderr,
		})
		if err != nil || code != 7 {
			t.Fatalf("seed %d: code %d, %v; want 7", seed, code, err)
		}
		for name, got := range map[string][]byte{"stdout": stdout.Bytes(), "stderr": stderr.Bytes()} {
			if sha256.Sum256(got) != sha256.Sum256(data) {
				t.Errorf("seed %d: %s has %d bytes, not the %d that went in", seed, name, len(got), len(data))
			}
		}
		if out := w.Sh("cat " + mark); out != "start\n" {
			t.Errorf("seed %d: started as %q, want once", seed, out)
		}
		if cut.cuts.Load() == 0 {
			t.Errorf("seed %d: nothing was cut", seed)
		}
		t.Logf("seed %d: %d cuts", seed, cut.cuts.Load())
	}
}

func TestRun_FiftyMegabytesBothWays(t *testing.T) {
	w := guesttest.New(t)
	const size = 50 << 20
	data := random(9, size)
	sum := sha256.New()
	began := time.Now()
	code, err := w.Client().Run(guesttest.Context(t), execclient.Command{
		Args: []string{"cat"}, User: "root", Stdin: bytes.NewReader(data), Stdout: sum,
	})
	if err != nil || code != 0 {
		t.Fatalf("code %d, %v", code, err)
	}
	want := sha256.Sum256(data)
	if !bytes.Equal(sum.Sum(nil), want[:]) {
		t.Error("what came back is not what went in")
	}
	t.Logf("50 MB in and out: %s", time.Since(began))
}

func TestRun_GivesUpAfterItsWindow(t *testing.T) {
	w := guesttest.New(t)
	var gone atomic.Bool
	client, err := execclient.New(execclient.Config{
		Log: guesttest.Discard(), Window: 300 * time.Millisecond,
		Dial: func(ctx context.Context) (net.Conn, error) {
			if gone.Load() {
				return nil, errs.New(errs.Unavailable, "the gateway is away")
			}
			return w.Dial(ctx)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	out, in := io.Pipe()
	result := make(chan error, 1)
	go func() {
		code, err := client.Run(guesttest.Context(t), execclient.Command{Args: []string{"sh", "-c", "echo up; sleep 1000"}, User: "root", Stdout: in})
		if code != -1 {
			t.Errorf("code %d, want -1", code)
		}
		result <- err
	}()
	guesttest.WaitFor(t, out, "up\n")
	gone.Store(true)
	_ = w.Link().Close()
	err = <-result
	if !errs.Is(err, errs.Unavailable) || !strings.Contains(err.Error(), "may still run") {
		t.Errorf("got %v (%s), want unavailable, and that the process may still run", err, errs.KindOf(err))
	}
}

// A guest that is known to be gone takes its processes with it: nobody is told
// that one may still run.
func TestRun_GuestGoneIsNotAProcessThatMayRun(t *testing.T) {
	w := guesttest.New(t)
	for _, kind := range []errs.Kind{errs.NotFound, errs.Stale, errs.Conflict} {
		var gone atomic.Bool
		var last net.Conn // the one stream of the run
		client := guesttest.Client(t, func(ctx context.Context) (net.Conn, error) {
			if gone.Load() {
				return nil, errs.New(kind, "the instance is not here")
			}
			conn, err := w.Dial(ctx)
			last = conn
			return conn, err
		})
		out, in := io.Pipe()
		result := make(chan error, 1)
		go func() {
			code, err := client.Run(guesttest.Context(t), execclient.Command{Args: []string{"sh", "-c", "echo up; exec sleep 1000"}, User: "root", Stdout: in})
			if code != -1 {
				t.Errorf("%s: code %d, want -1", kind, code)
			}
			result <- err
		}()
		guesttest.WaitFor(t, out, "up\n")
		gone.Store(true)
		_ = last.Close()
		if err := <-result; !errs.Is(err, kind) || !strings.Contains(err.Error(), "its guest is gone") || strings.Contains(err.Error(), "may still run") {
			t.Errorf("%s: got %v (%s), want that the guest is gone", kind, err, errs.KindOf(err))
		}
	}
}

func TestRun_DialRefusalIsFinal(t *testing.T) {
	client := guesttest.Client(t, func(context.Context) (net.Conn, error) {
		return nil, errs.New(errs.Conflict, "the workspace is stopped")
	})
	code, err := client.Run(guesttest.Context(t), execclient.Command{Args: []string{"true"}})
	if code != -1 || !errs.Is(err, errs.Conflict) || strings.Contains(err.Error(), "may") {
		t.Errorf("code %d, %v; want -1 and the refusal as it is", code, err)
	}
}
