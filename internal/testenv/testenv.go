// Package testenv tells a test whether this machine can run it.
//
// A test says what it needs in its first lines (testenv.NeedFUSE(t)). A need
// that cannot be met skips the test with one line of a fixed form,
//
//	testenv: need <what>: <why>
//
// which tools/testsum counts and compares with the list of skips that are
// expected, so that a machine that lost an ability cannot pass by testing less.
package testenv

import (
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"
)

// need skips the test: what is missing, and why we think so.
func need(t testing.TB, what, why string) {
	t.Helper()
	t.Skipf("testenv: need %s: %s", what, why)
}

// NeedRoot skips unless the test runs as root.
func NeedRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		need(t, "root", "the test runs as an ordinary user")
	}
}

// NeedFUSE skips unless this process can mount a FUSE file system itself,
// which takes root and a working /dev/fuse.
func NeedFUSE(t testing.TB) {
	t.Helper()
	NeedRoot(t)
	f, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		need(t, "fuse", err.Error())
	}
	_ = f.Close()
}

// NeedLoop skips unless this process can attach loop devices.
func NeedLoop(t testing.TB) {
	t.Helper()
	NeedRoot(t)
	f, err := os.OpenFile("/dev/loop-control", os.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		need(t, "loop", err.Error())
	}
	defer f.Close()
	if _, err := unix.IoctlRetInt(int(f.Fd()), unix.LOOP_CTL_GET_FREE); err != nil {
		need(t, "loop", "no free device: "+err.Error())
	}
}

// NeedBinary returns the path of a program, or skips when there is none.
func NeedBinary(t testing.TB, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		need(t, name, "not on PATH; `make test-deps` installs it")
	}
	return path
}
