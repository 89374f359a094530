package portclient_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/guest"
	"github.com/billethq/billet/internal/guest/guesttest"
	"github.com/billethq/billet/internal/guest/portclient"
	"github.com/billethq/billet/internal/testenv"
)

// listen serves each connection of a listener with serve.
func listen(t *testing.T, network, address string, serve func(net.Conn)) net.Addr {
	t.Helper()
	l, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { defer c.Close(); serve(c) })
		}
	})
	t.Cleanup(func() { _ = l.Close(); wg.Wait() })
	return l.Addr()
}

// reverse answers only once it has read everything: half-close must come
// through.
func reverse(c net.Conn) {
	all, _ := io.ReadAll(c)
	for i, j := 0, len(all)-1; i < j; i, j = i+1, j-1 {
		all[i], all[j] = all[j], all[i]
	}
	_, _ = c.Write(all)
}

func TestDialPort_CarriesBytesAndHalfClose(t *testing.T) {
	testenv.LeakCheck(t)
	a := guesttest.New(t)
	tcp := listen(t, "tcp4", "127.0.0.1:0", reverse).(*net.TCPAddr).Port
	tcp6 := listen(t, "tcp6", "[::1]:0", reverse).(*net.TCPAddr).Port
	file := filepath.Join(t.TempDir(), "s")
	listen(t, "unix", file, reverse)
	var wg sync.WaitGroup
	for _, to := range []struct{ network, address string }{
		{"tcp", fmt.Sprintf("127.0.0.1:%d", tcp)},
		{"tcp", fmt.Sprintf("localhost:%d", tcp)},
		{"tcp", fmt.Sprintf("[::1]:%d", tcp6)},
		{"tcp", fmt.Sprintf("localhost:%d", tcp6)}, // nobody is on 127.0.0.1
		{"unix", file},
	} {
		for range 4 {
			wg.Go(func() {
				c, err := portclient.DialPort(guesttest.Context(t), a.Dial, to.network, to.address)
				if err != nil {
					t.Errorf("%v: %v", to, err)
					return
				}
				defer c.Close()
				sent := make([]byte, 1<<20)
				_, _ = rand.Read(sent)
				if _, err := c.Write(sent); err != nil {
					t.Errorf("%v: %v", to, err)
				}
				_ = c.(interface{ CloseWrite() error }).CloseWrite()
				got, err := io.ReadAll(c)
				for i, j := 0, len(got)-1; i < j; i, j = i+1, j-1 {
					got[i], got[j] = got[j], got[i]
				}
				if err != nil || !bytes.Equal(got, sent) {
					t.Errorf("%v: got %d bytes, %v, want the %d that were sent", to, len(got), err, len(sent))
				}
			})
		}
	}
	wg.Wait()
}

func TestDialPort_Refusals(t *testing.T) {
	a := guesttest.New(t)
	dir := t.TempDir()
	free := listen(t, "tcp4", "127.0.0.1:0", func(net.Conn) {}).(*net.TCPAddr)
	closed, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = closed.Close()
	nobody := closed.Addr().(*net.TCPAddr).Port
	for _, c := range []struct {
		network, address string
		want             errs.Kind
		says             string
	}{
		{"tcp", fmt.Sprintf("localhost:%d", nobody), errs.NotFound, fmt.Sprintf("nothing listens on port %d", nobody)},
		{"unix", dir + "/none", errs.NotFound, "nothing listens on socket " + dir + "/none"},
		{"unix", dir, errs.NotFound, "nothing listens"},
		{"unix", "relative", errs.Invalid, "absolute"},
		{"unix", "/" + strings.Repeat("x", 200), errs.Invalid, "107"},
		{"udp", free.String(), errs.Invalid, "neither tcp nor unix"},
		{"tcp", fmt.Sprintf("0.0.0.0:%d", free.Port), errs.Invalid, "not localhost"},
		{"tcp", fmt.Sprintf("127.0.0.2:%d", free.Port), errs.Invalid, "not localhost"},
		{"tcp", fmt.Sprintf("[::ffff:127.0.0.1]:%d", free.Port), errs.Invalid, "not localhost"},
		{"tcp", "10.0.0.1:80", errs.Invalid, "not localhost"},
		{"tcp", "example.com:80", errs.Invalid, "not localhost"},
		{"tcp", "localhost:0", errs.Invalid, "no port"},
		{"tcp", "localhost:65536", errs.Invalid, "no port"},
		{"tcp", "localhost:http", errs.Invalid, "no port"},
		{"tcp", "localhost", errs.Invalid, "HOST:PORT"},
		{"tcp", "", errs.Invalid, "HOST:PORT"},
	} {
		conn, err := portclient.DialPort(guesttest.Context(t), a.Dial, c.network, c.address)
		if conn != nil {
			_ = conn.Close()
		}
		if errs.KindOf(err) != c.want || !strings.Contains(fmt.Sprint(err), c.says) {
			t.Errorf("%s %q: got %v (kind %q), want kind %s and %q", c.network, c.address, err, errs.KindOf(err), c.want, c.says)
		}
	}
}

// An agent in whose place the guest has put something else must cost the
// caller neither memory nor time.
func TestDialPort_HostileAgent(t *testing.T) {
	for name, answer := range map[string]string{
		"endless header": "HTTP/1.1 101 Switching Protocols\r\nX: " + strings.Repeat("x", 1<<20),
		"endless reason": "HTTP/1.1 502 Bad Gateway\r\n\r\n" + strings.Repeat("x", 1<<20),
		"no HTTP":        "hello\r\n\r\n",
		"nothing":        "",
		"older":          "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			ours, theirs := net.Pipe()
			var wg sync.WaitGroup
			wg.Go(func() {
				_, _ = http.ReadRequest(bufio.NewReader(theirs))
				_, _ = io.WriteString(theirs, answer)
				_ = theirs.Close()
			})
			_, err := portclient.DialPort(guesttest.Context(t), func(context.Context) (net.Conn, error) { return ours, nil }, "tcp", "localhost:80")
			if err == nil || len(err.Error()) > 1024 {
				t.Errorf("got an error of %d bytes, want a short one", len(fmt.Sprint(err)))
			}
			if want := name == "older"; errs.Is(err, errs.Unsupported) != want {
				t.Errorf("got %v, want unsupported: %v", err, want)
			}
			wg.Wait()
		})
	}
}

func TestDialPort_EndsWithItsContext(t *testing.T) {
	ours, theirs := net.Pipe()
	defer theirs.Close()
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		_, _ = http.ReadRequest(bufio.NewReader(theirs))
		cancel()
	}()
	_, err := portclient.DialPort(ctx, func(context.Context) (net.Conn, error) { return ours, nil }, "tcp", "localhost:80")
	if !errs.Is(err, errs.Unavailable) {
		t.Errorf("got %v, want unavailable", err)
	}
}

func TestAgent_ListsPorts(t *testing.T) {
	a := guesttest.New(t)
	want := listen(t, "tcp4", "127.0.0.1:0", func(net.Conn) {}).(*net.TCPAddr).Port
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return a.Dial(ctx) }}}
	defer client.CloseIdleConnections()
	res, err := client.Get("http://guest" + guest.PortsPath)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	var out guest.Ports
	if err := json.NewDecoder(res.Body).Decode(&out); err != nil {
		t.Fatal(err)
	}
	for _, p := range out.Ports {
		if int(p.Port) == want {
			if diff := cmp.Diff(guest.Listener{Address: "127.0.0.1", Port: p.Port, Process: "portclient.test"}, p); diff != "" {
				t.Error(diff)
			}
			return
		}
	}
	t.Errorf("port %d is not among %v", want, out.Ports)
}
