package gvisor

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/billethq/billet/internal/driver"
	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/guest/guestpath"
	"github.com/billethq/billet/internal/model"
)

func goodSpec() driver.Spec {
	return driver.Spec{
		Ref:    driver.Ref{ID: "aaaaaaaaaaaaaaaaaaaa", Dir: "/d"},
		RootFS: "/r", SideDir: "/s", GuestBinary: "/g", Hostname: "h",
		Shape:  model.Shape{VCPUs: 1, Memory: 1 << 30, Disk: 1, Processes: 100, OpenFiles: 64},
		Labels: map[string]string{"dev.gvisor.flag.debug": "true"},
	}
}

func TestBundle(t *testing.T) {
	t.Setenv("BILLET_SECRET", "hunter2")
	b := bundle(goodSpec(), "/billet/x")
	for _, m := range b.Mounts {
		if m.Type == "bind" && !slices.Contains(m.Options, "ro") {
			t.Errorf("the guest may write %s of the host", m.Source)
		}
		if m.Destination == guestpath.SideDir && m.Source != "/s" {
			t.Errorf("side directory is %s", m.Source)
		}
	}
	if got := strings.Join(b.Process.Env, " "); strings.Contains(got, "hunter2") {
		t.Errorf("the node's environment reaches the guest: %s", got)
	}
	for k := range b.Annotations {
		if !strings.HasPrefix(k, "io.billet.label.") {
			t.Errorf("a label became the annotation %s, which runsc may obey", k)
		}
	}
	if b.Root.Path != "/r" || b.Root.Readonly || b.Linux.CgroupsPath != "/billet/x" || b.Process.NoNewPrivileges {
		t.Errorf("got root %+v, cgroup %s, no_new_privileges %v", b.Root, b.Linux.CgroupsPath, b.Process.NoNewPrivileges)
	}
}

func TestCheckSpec_Refuses(t *testing.T) {
	if err := checkSpec(goodSpec()); err != nil {
		t.Fatalf("a good one: %v", err)
	}
	for name, spoil := range map[string]func(*driver.Spec){
		"relative root":   func(s *driver.Spec) { s.RootFS = "r" },
		"relative side":   func(s *driver.Spec) { s.SideDir = "" },
		"relative binary": func(s *driver.Spec) { s.GuestBinary = "g" },
		"no memory":       func(s *driver.Spec) { s.Shape.Memory = 0 },
		"no processor":    func(s *driver.Spec) { s.Shape.VCPUs = 0 },
		"no processes":    func(s *driver.Spec) { s.Shape.Processes = -1 },
		"no open files":   func(s *driver.Spec) { s.Shape.OpenFiles = 0 },
	} {
		s := goodSpec()
		spoil(&s)
		if err := checkSpec(s); !errs.Is(err, errs.Invalid) {
			t.Errorf("%s: got %v, want invalid", name, err)
		}
	}
}

func TestConsole_CannotGrow(t *testing.T) {
	f, err := newConsole()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if got := readConsole(f); got != "" {
		t.Errorf("a new one reads %q", got)
	}
	if _, err := f.WriteString("first words\n"); err != nil {
		t.Fatal(err)
	}
	if got := readConsole(f); got != "first words" {
		t.Errorf("got %q", got)
	}
	for _, grow := range []func() error{
		func() error { _, err := f.Write(make([]byte, 2*consoleSize)); return err },
		func() error { _, err := f.WriteAt([]byte("x"), 1<<40); return err },
		func() error { return f.Truncate(1 << 40) },
	} {
		if err := grow(); err == nil {
			t.Error("it grew")
		}
	}
	if info, err := f.Stat(); err != nil || info.Size() != consoleSize {
		t.Errorf("size %v, %v", info.Size(), err)
	}
	me, err := identify(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	again := openConsole(me)
	if again == nil {
		t.Fatal("not found in the process that has it")
	}
	defer again.Close()
	if got := readConsole(again); got != "first words" {
		t.Errorf("found: got %q", got)
	}
}

func TestBounded_KeepsTheEnd(t *testing.T) {
	b := &bounded{max: 5}
	for _, s := range []string{"abc", "defgh", "", "0123456789", "x"} {
		if n, err := b.Write([]byte(s)); n != len(s) || err != nil {
			t.Fatalf("write %q: %d, %v", s, n, err)
		}
	}
	if got := b.String(); got != "6789x" {
		t.Errorf("got %q, want %q", got, "6789x")
	}
}
