package drivertest

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
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
	f.ask(request{Op: "write", Arg: "/made", Text: "from the guest"})
	got, err := os.ReadFile(filepath.Join(f.spec.RootFS, "made"))
	if err != nil || string(got) != "from the guest" {
		t.Errorf("the guest's write reached the root file system as %q, %v", got, err)
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
