package cli_test

import (
	"bufio"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/api/apitest"
	"github.com/billethq/billet/internal/cli"
	"github.com/billethq/billet/internal/clock"
	"github.com/billethq/billet/internal/guest/agentlink"
	"github.com/billethq/billet/internal/httpapi"
	"github.com/billethq/billet/internal/model"
	"github.com/billethq/billet/internal/testenv"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"billet": func() { os.Exit(cli.Main(os.Args[1:], cli.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr})) },
	})
}

// TestScripts runs the command against a fake control plane behind the real
// HTTP handlers. The scripts are the specification of the command line.
func TestScripts(t *testing.T) {
	guest := ""
	if os.Geteuid() == 0 {
		guest = testenv.NeedGuest(t)
	}
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup:               func(env *testscript.Env) error { return newWorld(env, guest).serve() },
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits": exits, "fake": fakeCommand, "guest": guestCommand, "endguest": endGuestCommand, "builder": builderCommand, "interrupt": interrupt, "waitfor": waitFor,
		},
		Condition: func(cond string) (bool, error) {
			if cond == "root" {
				return os.Geteuid() == 0, nil
			}
			return false, errors.New("no condition " + cond)
		},
	})
}

type worldKey struct{}

// world is what one script talks to.
type world struct {
	env    *testscript.Env
	fake   *apitest.Fake
	ctx    context.Context
	served sync.WaitGroup
	signer ed25519.PrivateKey
	public ed25519.PublicKey
	log    *slog.Logger
	guest  string // path of billet-guest; "" without root
	link   *agentlink.Link
	ended  atomic.Bool // the guest of link
}

func newWorld(env *testscript.Env, guest string) *world {
	w := &world{env: env, guest: guest, fake: apitest.New(), log: slog.New(slog.DiscardHandler)}
	env.Values[worldKey{}] = w
	ctx, cancel := context.WithCancel(context.Background())
	w.ctx = ctx
	env.Defer(func() { cancel(); w.served.Wait() })
	return w
}

// serve puts the API on the socket of a state directory, as `billet up` does,
// and on a loopback address with tokens. Two more state directories have a
// server that sees a client of another version and one that is of another.
func (w *world) serve() error {
	local := apitest.Admin()
	cfg := httpapi.Config{Service: w.fake, Plane: w.fake, SSH: w.fake, Clock: clock.Real{}, Log: w.log}
	open, err := httpapi.New(cfg)
	if err != nil {
		return err
	}
	cfg.Local = &local
	trusted, err := httpapi.New(cfg)
	if err != nil {
		return err
	}
	state := filepath.Join(w.env.WorkDir, "state")
	socket, err := listen(state)
	if err != nil {
		return err
	}
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	w.served.Go(func() { _ = trusted.Serve(w.ctx, socket) })
	w.served.Go(func() { _ = open.Serve(w.ctx, tcp) })
	for name, edit := range map[string]*httputil.ReverseProxy{
		"newclient": {Rewrite: func(r *httputil.ProxyRequest) { r.Out.Header.Set(api.VersionHeader, "2") }},
		"newserver": {Rewrite: func(*httputil.ProxyRequest) {}, ModifyResponse: func(r *http.Response) error {
			r.Header.Set(api.VersionHeader, "2")
			return nil
		}},
	} {
		if err := w.proxy(filepath.Join(w.env.WorkDir, name), tcp.Addr().String(), edit); err != nil {
			return err
		}
	}
	w.env.Setenv("BILLET_STATE", state)
	w.env.Setenv("ADDRESS", tcp.Addr().String())
	w.env.Setenv("ADMIN", apitest.AdminToken)
	w.env.Setenv("USER_TOKEN", apitest.UserToken)
	return nil
}

func listen(dir string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Join(dir, "objects", "~tmp"), 0o700); err != nil {
		return nil, err
	}
	return net.Listen("unix", filepath.Join(dir, "billet.sock"))
}

func (w *world) proxy(dir, addr string, p *httputil.ReverseProxy) error {
	rewrite := p.Rewrite
	p.Rewrite = func(r *httputil.ProxyRequest) {
		r.SetURL(&url.URL{Scheme: "http", Host: addr})
		r.Out.Header.Set("Authorization", "Bearer "+apitest.AdminToken)
		rewrite(r)
	}
	l, err := listen(dir)
	if err != nil {
		return err
	}
	srv := &http.Server{Handler: p}
	w.served.Go(func() { _ = srv.Serve(l) })
	w.env.Defer(func() { _ = srv.Close() })
	return nil
}

// key makes the key of the tickets.
func (w *world) key() error {
	if w.signer != nil {
		return nil
	}
	var err error
	w.public, w.signer, err = ed25519.GenerateKey(rand.Reader)
	return err
}

// exits CODE COMMAND... runs a command that has to end with this exit code.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND...")
	}
	err := ts.Exec(args[1], args[2:]...)
	code := 0
	var ended *exec.ExitError
	switch {
	case errors.As(err, &ended):
		code = ended.ExitCode()
	case err != nil:
		ts.Fatalf("%v", err)
	}
	if want, err := strconv.Atoi(args[0]); err != nil || code != want {
		ts.Fatalf("exit code is %d, want %s", code, args[0])
	}
}

// interrupt CODE COMMAND... runs a command, sends it an interrupt once it
// watches a workspace, and wants it to end with this exit code. Its output goes
// to interrupt.out and interrupt.err.
func interrupt(ts *testscript.TestScript, neg bool, args []string) {
	w := ts.Value(worldKey{}).(*world)
	if neg || len(args) < 2 {
		ts.Fatalf("usage: interrupt CODE COMMAND...")
	}
	watched := make(chan struct{})
	once := sync.OnceFunc(func() { close(watched) })
	w.fake.SetHook(func(method string) error {
		if method == "Watch" {
			once()
		}
		return nil
	})
	path, err := exec.LookPath(args[1])
	ts.Check(err)
	cmd := exec.Command(path, args[2:]...)
	cmd.Env = []string{"PATH=" + ts.Getenv("PATH"), "BILLET_STATE=" + ts.Getenv("BILLET_STATE")}
	var out, text strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &text
	ts.Check(cmd.Start())
	<-watched
	ts.Check(cmd.Process.Signal(os.Interrupt))
	err = cmd.Wait()
	ts.Check(os.WriteFile(ts.MkAbs("interrupt.out"), []byte(out.String()), 0o600))
	ts.Check(os.WriteFile(ts.MkAbs("interrupt.err"), []byte(text.String()), 0o600))
	if got := strconv.Itoa(cmd.ProcessState.ExitCode()); got != args[0] {
		ts.Fatalf("exit code is %s (%v), want %s\n%s%s", got, err, args[0], &out, &text)
	}
}

// waitfor PIPE TEXT reads a named pipe until it has read TEXT.
func waitFor(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: waitfor PIPE TEXT")
	}
	f, err := os.Open(ts.MkAbs(args[0]))
	ts.Check(err)
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if strings.Contains(lines.Text(), args[1]) {
			return
		}
	}
	ts.Fatalf("%s ended without %q", args[0], args[1])
}

// fake changes what the control plane knows:
//
//	fake workspace NAME [running]   makes one
//	fake fail NAME CAUSE            ends it
//	fake start NAME                 starts it, and it gets no further
//	fake join NODE                  makes another one
//	fake silence NODE               makes it silent
//	fake asked PATTERN              holds when a request was made that contains PATTERN
func fakeCommand(ts *testscript.TestScript, neg bool, args []string) {
	w := ts.Value(worldKey{}).(*world)
	if len(args) < 2 {
		ts.Fatalf("usage: fake VERB NAME...")
	}
	switch args[0] {
	case "workspace":
		_, err := w.fake.CreateWorkspace(w.ctx, apitest.Admin(), "", api.CreateWorkspaceRequest{Name: args[1], Stopped: true})
		ts.Check(err)
		if len(args) == 3 {
			ts.Check(w.fake.Change(args[1], running))
		}
	case "kill": // for the client that it was lent to
		w.fake.Kill(args[1])
	case "fail":
		detail := "oom_kill rose by 1\x1b[31m"
		if len(args) > 3 {
			detail = args[3]
		}
		ts.Check(w.fake.Change(args[1], func(ws *api.Workspace) {
			ws.State, ws.Desired, ws.Failure, ws.Detail, ws.Instance = api.WorkspaceFailed, model.DesiredStopped, model.Cause(args[2]), detail, nil
		}))
	case "start": // and get no further
		_, err := w.fake.StartWorkspace(w.ctx, apitest.Admin(), args[1], api.StartWorkspaceRequest{})
		ts.Check(err)
		ts.Check(w.fake.Change(args[1], func(ws *api.Workspace) { ws.Detail = "no node has room" }))
	case "join":
		w.fake.Join(args[1])
	case "silence":
		w.fake.Silence(args[1])
	case "asked":
		asked := strings.Contains(strings.Join(w.fake.Requests(), "\n"), args[1])
		if asked == neg {
			ts.Fatalf("requests were:\n%s", strings.Join(w.fake.Requests(), "\n"))
		}
	default:
		ts.Fatalf("fake cannot %s", args[0])
	}
}

func running(ws *api.Workspace) {
	ws.State, ws.Desired, ws.Epoch, ws.UnsavedBytes = api.WorkspaceRunning, model.DesiredRunning, 1, 3<<20
	ws.Instance = &api.Instance{ID: model.InstanceID(apitest.ID("n" + ws.Name)), Node: "box", Driver: model.DriverGVisor, State: model.StateRunning, Epoch: 1}
}
