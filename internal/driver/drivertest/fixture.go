package drivertest

import (
	"bufio"
	"context"
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/billethq/billet/internal/driver"
	"github.com/billethq/billet/internal/guest/guestpath"
	"github.com/billethq/billet/internal/model"
	"github.com/billethq/billet/internal/testenv"
)

// deadline is how long anything that has to happen may take. It is long,
// because it only decides how a test fails.
const deadline = time.Minute

// fixture is one guest and the host's end of its side socket.
type fixture struct {
	*testing.T
	h      Harness
	d      driver.Driver
	spec   driver.Spec
	listen *net.UnixListener
	conn   *net.UnixConn
	lines  *bufio.Scanner
}

// newFixture describes a guest that has not been started. It is deleted when
// the test ends, and nothing of it may be left then.
func newFixture(t *testing.T, h Harness) *fixture {
	t.Helper()
	testenv.LeakCheck(t)
	return newGuest(t, h)
}

// newGuest is newFixture for a test with several guests, which looks for leaks
// once, after the last of them.
func newGuest(t *testing.T, h Harness) *fixture {
	t.Helper()
	base := t.TempDir()
	f := &fixture{T: t, h: h, spec: driver.Spec{
		Ref:         driver.Ref{ID: model.InstanceID(model.NewID()), Dir: filepath.Join(base, "driver")},
		RootFS:      filepath.Join(base, "root"),
		SideDir:     filepath.Join(base, "side"),
		GuestBinary: PID1(t),
		Hostname:    "conformance",
		Shape:       model.Shape{VCPUs: 2, Memory: 256 << 20, Disk: 1 << 30, Processes: 50, OpenFiles: 512},
		Labels:      map[string]string{"workspace": "demo"},
	}}
	for _, dir := range []string{f.spec.RootFS, f.spec.SideDir} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: filepath.Join(f.spec.SideDir, guestpath.AgentSocket)})
	if err != nil {
		t.Fatal(err)
	}
	f.listen = l
	f.d = h.New(t, f.spec.GuestBinary)
	t.Cleanup(func() {
		if err := f.d.Delete(context.Background(), f.spec.Ref); err != nil {
			t.Errorf("delete: %v", err)
		}
		f.wantNoRemains()
		f.hangUp()
		l.Close()
	})
	return f
}

// PID1 builds testdata/pid1, once per test process, and returns its path.
func PID1(t testing.TB) string {
	t.Helper()
	return testenv.NeedProgram(t, "internal/driver/drivertest/testdata/pid1")
}

// ctx is bounded by deadline and by the test.
func (f *fixture) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	f.Cleanup(cancel)
	return ctx
}

// start starts the guest and waits for its PID 1 to dial.
func (f *fixture) start() {
	f.Helper()
	if err := f.d.Start(f.ctx(), f.spec); err != nil {
		f.Fatalf("start: %v", err)
	}
	f.accept()
}

func (f *fixture) accept() {
	f.Helper()
	f.hangUp()
	_ = f.listen.SetDeadline(time.Now().Add(deadline))
	conn, err := f.listen.AcceptUnix()
	if err != nil {
		f.Fatalf("PID 1 has not dialled: %v", err)
	}
	f.conn, f.lines = conn, bufio.NewScanner(conn)
	f.lines.Buffer(nil, 1<<20)
}

func (f *fixture) hangUp() {
	if f.conn != nil {
		f.conn.Close()
		f.conn = nil
	}
}

type request struct {
	Op   string `json:"op"`
	Arg  string `json:"arg,omitempty"`
	Text string `json:"text,omitempty"`
	N    int    `json:"n,omitempty"`
}

// send asks PID 1 for something that has no answer, because it ends the guest.
func (f *fixture) send(r request) {
	f.Helper()
	if err := json.NewEncoder(f.conn).Encode(r); err != nil {
		f.Fatalf("%+v: %v", r, err)
	}
}

// try asks PID 1 and returns what it says, error included.
func (f *fixture) try(r request) (text, failure string) {
	f.Helper()
	f.send(r)
	_ = f.conn.SetReadDeadline(time.Now().Add(deadline))
	if !f.lines.Scan() {
		f.Fatalf("%+v: no answer: %v", r, f.lines.Err())
	}
	var a struct{ Text, Err string }
	if err := json.Unmarshal(f.lines.Bytes(), &a); err != nil {
		f.Fatalf("%+v: %v", r, err)
	}
	return a.Text, a.Err
}

// ask is try for what must not fail.
func (f *fixture) ask(r request) string {
	f.Helper()
	text, failure := f.try(r)
	if failure != "" {
		f.Fatalf("%+v: %s", r, failure)
	}
	return text
}

// watch starts a Wait and returns when that has got hold of the guest. The
// channel gives what it returns.
func (f *fixture) watch() <-chan driver.Exit {
	f.Helper()
	pid := f.wantState(driver.Running).PID
	exits := make(chan driver.Exit, 1)
	go func() {
		exit, err := f.d.Wait(f.ctx(), f.spec.Ref)
		if err != nil {
			f.Errorf("wait: %v", err)
		}
		exits <- exit
	}()
	f.awaitWatched(pid)
	return exits
}

// awaitWatched returns when a Wait has got hold of the guest.
func (f *fixture) awaitWatched(pid int) {
	f.Helper()
	for end := time.Now().Add(deadline); !f.h.Watched(f.T, pid); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			f.Fatal("Wait has not got hold of the guest")
		}
	}
}

func (f *fixture) inspect() driver.Status {
	f.Helper()
	s, err := f.d.Inspect(f.ctx(), f.spec.Ref)
	if err != nil {
		f.Fatalf("inspect: %v", err)
	}
	return s
}

func (f *fixture) wantState(want driver.State) driver.Status {
	f.Helper()
	s := f.inspect()
	if s.State != want {
		f.Fatalf("inspect: got %+v, want %s", s, want)
	}
	return s
}

// wantExit waits for the guest's end and compares it with what Inspect says
// afterwards, to this driver and to a new one.
func (f *fixture) wantExit(cause model.Cause, code int) driver.Exit {
	f.Helper()
	exit, err := f.d.Wait(f.ctx(), f.spec.Ref)
	if err != nil {
		f.Fatalf("wait: %v", err)
	}
	if exit.Cause != cause || exit.Code != code {
		f.Fatalf("wait: got %+v, want cause %s, code %d", exit, cause, code)
	}
	for range 2 {
		if s := f.wantState(driver.Exited); s.Exit != exit {
			f.Fatalf("inspect: got %+v, Wait had said %+v", s.Exit, exit)
		}
		f.renew()
	}
	return exit
}

// renew replaces the driver by one that has seen nothing.
func (f *fixture) renew() { f.d = f.h.New(f.T, f.spec.GuestBinary) }

func (f *fixture) wantNoRemains() {
	f.Helper()
	left := f.h.Remains(f.T, f.spec.Ref)
	if _, err := os.Lstat(f.spec.Dir); err == nil {
		left = append(left, f.spec.Dir)
	}
	if len(left) > 0 {
		f.Errorf("left behind: %s", strings.Join(left, ", "))
	}
}
