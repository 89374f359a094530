package cli_test

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/api/apitest"
	"github.com/billethq/billet/internal/clock"
	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/gateway"
	"github.com/billethq/billet/internal/guest/agentlink"
	"github.com/billethq/billet/internal/model"
	"github.com/billethq/billet/internal/road"
)

// openRoad starts a gateway and a node's end of the road at which open answers,
// and makes the fake sign tickets for it.
func (w *world) openRoad(open road.OpenFunc) error {
	if err := w.key(); err != nil {
		return err
	}
	key := func() ed25519.PublicKey { return w.public }
	gw, err := gateway.New(gateway.Config{Key: key, Clock: clock.Real{}, Log: w.log})
	if err != nil {
		return err
	}
	srv := httptest.NewServer(gw)
	w.env.Defer(func() { _ = gw.Close(context.Background()); srv.Close() })
	w.fake.Gateway = srv.URL
	w.fake.Ticket = func(target string, a api.Attachment) (string, error) {
		return road.Sign(w.signer, road.Ticket{Node: a.Node, Target: road.Target(target), Instance: a.Instance, Epoch: a.Epoch, Expires: a.Expires})
	}
	session, err := road.Sign(w.signer, road.Ticket{Node: apitest.Node, Target: road.TargetSession, Expires: clock.Real{}.Now().AddDate(1, 0, 0)})
	if err != nil {
		return err
	}
	up := make(chan struct{}, 1)
	end := &road.NodeEnd{
		Gateway: srv.URL, Ticket: func() string { return session }, Key: key, Clock: clock.Real{}, Log: w.log,
		Check: func(road.Ticket) error { return nil }, Open: open,
		State: func(connected bool, _ error) {
			if connected {
				select {
				case up <- struct{}{}:
				default:
				}
			}
		},
	}
	ctx, cancel := context.WithCancel(w.ctx)
	done := make(chan struct{})
	go func() { defer close(done); end.Run(ctx) }()
	w.env.Defer(func() { cancel(); <-done })
	<-up
	return nil
}

// guest NAME makes a workspace that runs. Its guest is the real agent, in a
// mount namespace of its own in which it finds what a sandbox shows it.
func guestCommand(ts *testscript.TestScript, neg bool, args []string) {
	w := ts.Value(worldKey{}).(*world)
	if neg || len(args) != 1 {
		ts.Fatalf("usage: guest NAME")
	}
	side := filepath.Join(w.env.WorkDir, "side")
	ts.Check(os.MkdirAll(filepath.Join(w.env.WorkDir, "home"), 0o755))
	ts.Check(os.Mkdir(side, 0o700))
	link, err := agentlink.Listen(side, w.log)
	ts.Check(err)
	w.link = link
	w.ended.Store(false)
	w.env.Defer(func() { _ = link.Close() })
	ts.Check(w.startAgent(side))
	_, err = w.fake.CreateWorkspace(w.ctx, apitest.Admin(), "", api.CreateWorkspaceRequest{Name: args[0], Stopped: true})
	ts.Check(err)
	ts.Check(w.fake.Change(args[0], running))
	ts.Check(w.openRoad(func(ctx context.Context, t road.Ticket) (net.Conn, error) {
		if t.Target != road.TargetAgent || t.Instance != model.InstanceID(apitest.ID("n"+args[0])) || w.ended.Load() {
			return nil, errs.New(errs.NotFound, "instance %s is not here", t.Instance)
		}
		return link.Open(ctx)
	}))
}

// endGuestCommand is the end of the guest that was made by guest, of which its
// node knows at once, and the control plane only after it has been asked:
//
//	endguest NAME CAUSE       it fails
//	endguest NAME restarted   it is started again
func endGuestCommand(ts *testscript.TestScript, neg bool, args []string) {
	w := ts.Value(worldKey{}).(*world)
	if neg || len(args) != 2 {
		ts.Fatalf("usage: endguest NAME CAUSE")
	}
	change := func(ws *api.Workspace) {
		ws.State, ws.Desired, ws.Failure, ws.Detail, ws.Instance = api.WorkspaceFailed, model.DesiredStopped, model.Cause(args[1]), "oom_kill rose by 1", nil
	}
	if args[1] == "restarted" {
		change = func(ws *api.Workspace) {
			next := *ws.Instance
			next.ID = model.InstanceID(apitest.ID("m" + ws.Name))
			ws.Instance = &next
		}
	}
	once := sync.OnceFunc(func() { // from a hook, which holds a lock that Change takes
		w.served.Go(func() { _ = w.fake.Change(args[0], change) })
	})
	w.fake.SetHook(func(method string) error {
		if method == "Workspace" {
			once()
		}
		return nil
	})
	w.ended.Store(true)
	ts.Check(w.link.Close())
}

// guestNamespace gives the agent what a sandbox would: itself at its place, and
// an account.
const guestNamespace = `set -e
mount -t tmpfs none /run
cp "$1" /run/billet-guest
printf 'root:x:0:0::/root:/bin/sh\nuser:x:0:0::%s:/bin/sh\n' "$3" >/run/passwd
mount --bind /run/passwd /etc/passwd
exec /run/billet-guest serve "$2/agent.sock"
`

func (w *world) startAgent(side string) error {
	cmd := exec.Command("unshare", "--mount", "--propagation", "private", "sh", "-c", guestNamespace, "sh", w.guest, side, filepath.Join(w.env.WorkDir, "home"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var log strings.Builder
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		return err
	}
	w.env.Defer(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	})
	return nil
}

// builder starts a node that builds images: it reads the input, tells how far
// it is, and refuses what begins with "bad".
func builderCommand(ts *testscript.TestScript, _ bool, _ []string) {
	w := ts.Value(worldKey{}).(*world)
	door := &doorway{conns: make(chan net.Conn), closed: make(chan struct{})}
	srv := &http.Server{Handler: http.HandlerFunc(buildFake)}
	done := make(chan struct{})
	go func() { defer close(done); _ = srv.Serve(door) }()
	w.env.Defer(func() { _ = srv.Close(); <-done })
	ts.Check(w.openRoad(func(_ context.Context, t road.Ticket) (net.Conn, error) {
		if t.Target != road.TargetImages {
			return nil, errs.New(errs.NotFound, "no agent here")
		}
		ours, theirs := net.Pipe()
		select {
		case door.conns <- ours:
			return theirs, nil
		case <-door.closed:
			return nil, errs.New(errs.Unavailable, "the builder has ended")
		}
	}))
}

func buildFake(w http.ResponseWriter, r *http.Request) {
	rc := http.NewResponseController(w)
	_ = rc.EnableFullDuplex()
	line := func(l api.ImageLine) {
		_ = json.NewEncoder(w).Encode(l)
		_ = rc.Flush()
	}
	line(api.ImageLine{Progress: &api.ImageProgress{Stage: "fetching"}})
	n, err := io.Copy(io.Discard, r.Body)
	q := r.URL.Query()
	switch {
	case err != nil:
		return // cut off
	case strings.HasPrefix(q.Get("name"), "bad"):
		p := api.ProblemOf(errs.New(errs.Invalid, "member ../../etc/passwd leads out of the root").WithHint("make the archive anew"))
		line(api.ImageLine{Problem: &p})
		return
	case strings.HasPrefix(q.Get("name"), "cut"):
		return
	}
	line(api.ImageLine{Progress: &api.ImageProgress{Stage: "uploading", Done: n, Total: n}})
	disk, _ := strconv.ParseInt(q.Get("disk"), 10, 64)
	line(api.ImageLine{Image: &api.Image{
		ID: model.ImageID(apitest.ID("i")), Name: q.Get("name"), Generation: model.GenerationID(apitest.ID("g")), Root: apitest.Root("r"),
		Source: q.Get("kind") + " " + q.Get("source"), DiskBytes: disk, UsedBytes: n,
	}})
}

// doorway is a listener for connections that come off the road.
type doorway struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (d *doorway) Accept() (net.Conn, error) {
	select {
	case c := <-d.conns:
		return c, nil
	case <-d.closed:
		return nil, net.ErrClosed
	}
}

func (d *doorway) Close() error {
	d.once.Do(func() { close(d.closed) })
	return nil
}

func (d *doorway) Addr() net.Addr { return &net.UnixAddr{Name: "images"} }
