package drivertest

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/billethq/billet/internal/guest/guestpath"
)

func itoa(n int) string { return strconv.Itoa(n) }

// inside checks what a guest sees.
var inside = map[string]func(*testing.T, Harness){
	"Identity":       identity,
	"Limits":         limits,
	"RootFileSystem": rootFileSystem,
	"NoNetwork":      noNetwork,
	"SideDirectory":  sideDirectory,
	"MountNamespace": mountNamespace,
}

func identity(t *testing.T, h Harness) {
	f := newFixture(t, h)
	f.start()
	if got, want := f.ask(request{Op: "whoami"}), "pid 1 uid 0"; got != want {
		t.Errorf("whoami: got %q, want %q", got, want)
	}
	if got := f.ask(request{Op: "hostname"}); got != f.spec.Hostname {
		t.Errorf("hostname: got %q, want %q", got, f.spec.Hostname)
	}
}

func limits(t *testing.T, h Harness) {
	f := newFixture(t, h)
	f.start()
	if got, want := f.ask(request{Op: "cpus"}), itoa(f.spec.Shape.VCPUs); got != want {
		t.Errorf("processors: got %s, want %s", got, want)
	}
	if got, want := f.ask(request{Op: "open_files"}), itoa(f.spec.Shape.OpenFiles); got != want {
		t.Errorf("open files: got %s, want %s", got, want)
	}
	info := f.ask(request{Op: "read", Arg: "/proc/meminfo"})
	fields := strings.Fields(info)
	if len(fields) < 2 || fields[0] != "MemTotal:" {
		t.Fatalf("/proc/meminfo begins %.40q", info)
	}
	kib, err := strconv.ParseInt(fields[1], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	// A kernel of the guest's own keeps a little for itself.
	if got, want := kib<<10, f.spec.Shape.Memory; got > want || got < want*9/10 {
		t.Errorf("memory: got %d bytes, want %d or a little less", got, want)
	}
}

func rootFileSystem(t *testing.T, h Harness) {
	f := newFixture(t, h)
	put := func(name, text string) {
		if err := os.WriteFile(filepath.Join(f.spec.RootFS, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put("given", "from the host")
	f.start()
	if got := f.ask(request{Op: "read", Arg: "/given"}); got != "from the host" {
		t.Errorf("read: got %q", got)
	}
	// A flush of the disk has what the guest wrote, closed and synced or not.
	for name, op := range map[string]string{"closed": "write", "open": "write_and_hold"} {
		f.ask(request{Op: op, Arg: "/" + name, Text: "from the guest"})
		got, err := os.ReadFile(filepath.Join(f.spec.RootFS, name))
		if err != nil || string(got) != "from the guest" {
			t.Errorf("%s: the write reached the root file system as %q, %v", op, got, err)
		}
	}
}

func noNetwork(t *testing.T, h Harness) {
	f := newFixture(t, h)
	f.start()
	if got := f.ask(request{Op: "interfaces"}); got != "lo" {
		t.Errorf("interfaces: got %q, want lo alone", got)
	}
}

// sideDirectory: the guest reaches the socket there (every test shows that)
// and can change nothing else of the host.
func sideDirectory(t *testing.T, h Harness) {
	f := newFixture(t, h)
	f.start()
	if _, failure := f.try(request{Op: "write", Arg: guestpath.SideDir + "/x", Text: "x"}); failure == "" {
		t.Error("the guest wrote into the side directory")
	}
	if _, failure := f.try(request{Op: "write", Arg: guestpath.Binary, Text: "x"}); failure == "" {
		t.Error("the guest wrote to its agent's binary")
	}
	entries, err := os.ReadDir(f.spec.SideDir)
	if err != nil || len(entries) != 1 {
		t.Errorf("the side directory has %v, %v; want the socket alone", entries, err)
	}
	// The agent finds its way back after the node has gone.
	f.accept()
	if got := f.ask(request{Op: "ping"}); got != "pong" {
		t.Errorf("ping after a redial: got %q", got)
	}
}

// mountNamespace: the root file system exists in another process's namespace
// only, and the guest keeps it when that process ends.
func mountNamespace(t *testing.T, h Harness) {
	f := newFixture(t, h)
	cmd := exec.Command("sh", "-ec", `mount -t tmpfs none "$1"; echo here > "$1/only"; echo ready; read wait || :`, "sh", f.spec.RootFS)
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	leave := func() { stdin.Close(); _ = cmd.Wait() }
	defer leave()
	if line, err := bufio.NewReader(stdout).ReadString('\n'); line != "ready\n" {
		t.Fatalf("the namespace's owner said %q, %v", line, err)
	}
	f.spec.MountNS = "/proc/" + itoa(cmd.Process.Pid) + "/ns/mnt"
	f.start()
	leave()
	if got := f.ask(request{Op: "read", Arg: "/only"}); got != "here\n" {
		t.Errorf("read: got %q", got)
	}
	if _, err := os.Stat(filepath.Join(f.spec.RootFS, "only")); err == nil {
		t.Error("the root file system is mounted in the test's own namespace")
	}
}
