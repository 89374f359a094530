package gvisor

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/billethq/billet/internal/driver"
	"github.com/billethq/billet/internal/driver/drivertest"
	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/guest/guestpath"
	"github.com/billethq/billet/internal/model"
	"github.com/billethq/billet/internal/testenv"
)

// startingNode is the environment variable that turns this test binary into a
// node that starts the guest described in it, with the runsc in BILLET_RUNSC.
const startingNode = "BILLET_TEST_STARTING_NODE"

func TestMain(m *testing.M) {
	text := os.Getenv(startingNode)
	if text == "" {
		os.Exit(m.Run())
	}
	if err := startAsNode(text); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("started")
}

func startAsNode(text string) error {
	var s driver.Spec
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return err
	}
	d, err := New(Config{Runsc: os.Getenv("BILLET_RUNSC"), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	fmt.Println("starting")
	return d.Start(context.Background(), s)
}

// place is one guest to be, with a listener on its side socket.
type place struct {
	driver.Spec
	l *net.UnixListener
	d *Driver
}

func newPlace(t testing.TB) place {
	t.Helper()
	testenv.LeakCheck(t)
	base := t.TempDir()
	p := place{d: newDriver(t, testenv.NeedRunsc(t), drivertest.PID1(t)), Spec: goodSpec()}
	p.ID = model.InstanceID(model.NewID())
	p.Dir, p.RootFS, p.SideDir = base+"/driver", base+"/root", base+"/side"
	p.GuestBinary = drivertest.PID1(t)
	for _, dir := range []string{p.RootFS, p.SideDir} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	var err error
	p.l, err = net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: filepath.Join(p.SideDir, guestpath.AgentSocket)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.l.Close()
		p.delete(t)
	})
	return p
}

func (p place) delete(t testing.TB) {
	t.Helper()
	if err := p.d.Delete(context.Background(), p.Ref); err != nil {
		t.Errorf("delete: %v", err)
	}
	if left := cgroups(t, p.Ref); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func (p place) start(t testing.TB) {
	t.Helper()
	if err := p.d.Start(t.Context(), p.Spec); err != nil {
		t.Fatalf("start: %v", err)
	}
}

// ask waits for PID 1 to dial and asks it for one thing. An earlier guest may
// have dialled too, and be gone.
func (p place) ask(t testing.TB, request string) string {
	t.Helper()
	_ = p.l.SetDeadline(time.Now().Add(time.Minute))
	for {
		conn, err := p.l.Accept()
		if err != nil {
			t.Fatalf("PID 1 has not dialled: %v", err)
		}
		fmt.Fprintln(conn, request)
		line, err := bufio.NewReader(conn).ReadString('\n')
		conn.Close()
		if err == nil {
			return strings.TrimSpace(line)
		}
	}
}

// TestStart_NodeDies kills a node with SIGKILL at moments spread over a start,
// and lets the next one take over in every way there is.
func TestStart_NodeDies(t *testing.T) {
	p := newPlace(t)
	begin := time.Now()
	p.start(t)
	whole := time.Since(begin)
	p.delete(t)

	spec, err := json.Marshal(p.Spec)
	if err != nil {
		t.Fatal(err)
	}
	const moments = 12
	died := 0
	for i := range moments {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), startingNode+"="+string(spec), "BILLET_RUNSC="+p.d.runsc)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		words := bufio.NewReader(out)
		if line, err := words.ReadString('\n'); line != "starting\n" {
			t.Fatalf("the node said %q, %v", line, err)
		}
		time.Sleep(whole * time.Duration(i) / moments)
		_ = cmd.Process.Kill()
		if last, _ := words.ReadString('\n'); last != "started\n" {
			died++
		}
		_ = cmd.Wait()

		switch i % 3 {
		case 0: // it goes on where the first one stopped
			p.start(t)
			if got := p.ask(t, `{"op":"ping"}`); !strings.Contains(got, "pong") {
				t.Errorf("moment %d: ping: got %s", i, got)
			}
		case 1:
			if err := p.d.Stop(t.Context(), p.Ref, 0); err != nil {
				t.Errorf("moment %d: stop: %v", i, err)
			}
			if s, err := p.d.Inspect(t.Context(), p.Ref); err != nil || s.State == driver.Running {
				t.Errorf("moment %d: after stop: %+v, %v", i, s, err)
			}
		}
		p.delete(t)
	}
	if died == 0 {
		t.Fatalf("none of %d nodes died in a start of %v", moments, whole)
	}
}

func TestInspect_HostRebooted(t *testing.T) {
	p := newPlace(t)
	if err := os.Mkdir(p.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	// Its process id is somebody's again.
	before, err := identify(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	before.BootID = "an earlier one"
	if err := records(p.Dir).saveSandbox(before); err != nil {
		t.Fatal(err)
	}
	s, err := p.d.Inspect(t.Context(), p.Ref)
	if err != nil || s.State != driver.Exited || s.Exit.Cause != model.CauseHostRebooted {
		t.Errorf("inspect: got %+v, %v", s, err)
	}
}

// TestDelete_DirectoryLost: the node's whole state may be gone while its
// guests run; the kernel still knows them.
func TestDelete_DirectoryLost(t *testing.T) {
	p := newPlace(t)
	p.start(t)
	if err := os.RemoveAll(p.Dir); err != nil {
		t.Fatal(err)
	}
	s, err := p.d.Inspect(t.Context(), p.Ref)
	if err != nil || s.State != driver.Running {
		t.Fatalf("inspect: got %+v, %v", s, err)
	}
	if err := p.d.Stop(t.Context(), p.Ref, time.Second); err != nil {
		t.Fatalf("stop: %v", err)
	}
	if s, err = p.d.Inspect(t.Context(), p.Ref); err != nil || s.State != driver.Absent {
		t.Errorf("after stop: got %+v, %v", s, err)
	}
}

// TestStop_DiskFull: a guest ends, and everybody hears of it, although nothing
// can be written down.
func TestStop_DiskFull(t *testing.T) {
	p := newPlace(t)
	p.Dir = filepath.Join(testenv.TmpfsDir(t, "1m"), "driver")
	t.Cleanup(func() { p.delete(t) })
	p.start(t)
	fill, err := os.Create(filepath.Join(p.Dir, "fill"))
	if err != nil {
		t.Fatal(err)
	}
	defer fill.Close()
	for err == nil {
		_, err = fill.Write(make([]byte, 4096))
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("fill the disk: %v", err)
	}
	if err := p.d.Stop(t.Context(), p.Ref, time.Minute); err != nil {
		t.Errorf("stop: %v", err)
	}
	if s, err := p.d.Inspect(t.Context(), p.Ref); err != nil || s.State != driver.Exited {
		t.Errorf("inspect: got %+v, %v", s, err)
	}
}

// TestStart_SuidOnNosuidMount: sudo works although the host distrusts the disk.
func TestStart_SuidOnNosuidMount(t *testing.T) {
	p := newPlace(t)
	if err := syscall.Mount("none", p.RootFS, "tmpfs", syscall.MS_NOSUID|syscall.MS_NODEV, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(p.RootFS, syscall.MNT_DETACH) })
	program, err := os.ReadFile(p.GuestBinary)
	if err != nil {
		t.Fatal(err)
	}
	for name, mode := range map[string]os.FileMode{"suid": os.ModeSetuid | 0o755, "plain": 0o755} {
		path := filepath.Join(p.RootFS, name)
		if err := os.WriteFile(path, program, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	p.start(t)
	for path, want := range map[string]string{"/suid": "euid 0", "/plain": "euid 1000"} {
		if got := p.ask(t, `{"op":"as_user","arg":"`+path+`"}`); !strings.Contains(got, want) {
			t.Errorf("%s as user 1000: got %s, want %s", path, got, want)
		}
	}
}

// TestStart_InItsGroup: every process of a guest is under every limit, and the
// node is under none of them.
func TestStart_InItsGroup(t *testing.T) {
	p := newPlace(t)
	p.start(t)
	g, err := p.d.open(p.Ref)
	if err != nil {
		t.Fatal(err)
	}
	pids, err := g.group.PIDs()
	if err != nil || len(pids) < 2 || slices.Contains(pids, os.Getpid()) {
		t.Fatalf("got processes %v, %v, want sandbox and gofer and not this one", pids, err)
	}
	for _, pid := range pids {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			f := strings.SplitN(strings.TrimSpace(line), ":", 3)
			if unified := f[1] == ""; (!unified || p.d.tree.Version() == 2) && f[2] != g.group.Path() {
				t.Errorf("process %d is outside the group: %s", pid, line)
			}
		}
	}
}

func TestProbe_BootsTheRealAgent(t *testing.T) {
	testenv.LeakCheck(t)
	b, err := newDriver(t, testenv.NeedRunsc(t), testenv.NeedGuest(t)).Probe(t.Context())
	if err != nil || b.Platform != platform || b.BootTime <= 0 {
		t.Errorf("got %+v, %v", b, err)
	}
}

func TestProbe_SaysWhatIsMissing(t *testing.T) {
	testenv.LeakCheck(t)
	runsc := testenv.NeedRunsc(t)
	for name, tc := range map[string]struct{ runsc, guest, want string }{
		"no runsc":          {"/nonexistent/runsc", drivertest.PID1(t), "no such file"},
		"runsc that fails":  {wrapper(t, "echo no kernel for you >&2; exit 1"), drivertest.PID1(t), "no kernel for you"},
		"no agent":          {runsc, "/nonexistent/guest", "/nonexistent/guest"},
		"agent never dials": {runsc, "/bin/true", ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := newDriver(t, tc.runsc, tc.guest).Probe(t.Context())
			if !errs.Is(err, errs.Unsupported) || errs.HintOf(err) == "" || !strings.Contains(fmt.Sprint(err), tc.want) {
				t.Errorf("got %v (hint %q), want unsupported with a hint, and %q", err, errs.HintOf(err), tc.want)
			}
		})
	}
}
