package leaks

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// only returns the one leak of a kind in the scope.
func only(t *testing.T, s Scope, kind string) Leak {
	t.Helper()
	var found []Leak
	for _, l := range Find(s) {
		if l.Kind == kind {
			found = append(found, l)
		}
	}
	if len(found) != 1 {
		t.Fatalf("found %v, want one %s", found, kind)
	}
	return found[0]
}

func TestFind_ProcessByMarkAndByPath(t *testing.T) {
	for name, start := range map[string]func(dir string) *exec.Cmd{
		"by mark": func(string) *exec.Cmd {
			cmd := exec.Command("sleep", "60")
			cmd.Env = []string{"LEAKS_TEST=" + t.Name()}
			return cmd
		},
		"by path": func(dir string) *exec.Cmd { return exec.Command("sh", "-c", "sleep 60 & wait", dir+"/x") },
	} {
		t.Run(name, func(t *testing.T) {
			s := Scope{Env: "LEAKS_TEST=TestFind_ProcessByMarkAndByPath", Dir: t.TempDir()}
			cmd := start(s.Dir)
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = cmd.Process.Kill() })
			l := only(t, s, "process")
			if err := l.Remove(); err != nil {
				t.Error(err)
			}
			if err := cmd.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
				t.Errorf("the process ended by %v, want a kill", err)
			}
		})
	}
}

func TestFind_MountOnMount(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("testenv: need root: mounts")
	}
	s := Scope{Dir: t.TempDir()}
	outer := filepath.Join(s.Dir, "outer")
	inner := filepath.Join(outer, "inner")
	for _, dir := range []string{outer, inner} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := unix.Mount("leaks-test", dir, "tmpfs", 0, ""); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	}
	left := s.mounts()
	if len(left) != 2 || left[0].Name != inner || left[1].Name != outer {
		t.Fatalf("found %v, want inner, then outer", left)
	}
	for _, l := range left {
		if err := l.Remove(); err != nil {
			t.Errorf("remove %s: %v", l, err)
		}
	}
	if left := s.mounts(); len(left) != 0 {
		t.Errorf("still there: %v", left)
	}
}

func TestFind_OrphanedLoopDevice(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("testenv: need root: loop devices")
	}
	// A device on a file that is gone, as one in a private mount namespace is.
	file := filepath.Join(t.TempDir(), "disk")
	if err := os.WriteFile(file, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("losetup", "--find", "--show", file).Output()
	if err != nil {
		t.Skip("testenv: need loop: " + err.Error())
	}
	device := strings.TrimSpace(string(out))
	t.Cleanup(func() { _ = detach(device) })
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	find := func() []Leak {
		return slices.DeleteFunc(Scope{Dir: "/nowhere"}.loops(), func(l Leak) bool { return !strings.HasPrefix(l.Name, device+" ") })
	}

	open, err := os.Open(device)
	if err != nil {
		t.Fatal(err)
	}
	if found := find(); len(found) != 0 {
		t.Errorf("%v is in use", found)
	}
	_ = open.Close()
	found := find()
	if len(found) != 1 {
		t.Fatalf("found %v, want %s", found, device)
	}
	if err := found[0].Remove(); err != nil {
		t.Error(err)
	}
	if found := find(); len(found) != 0 {
		t.Errorf("still there: %v", found)
	}
}
