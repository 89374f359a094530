package gvisor

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/billethq/billet/internal/driver"
	"github.com/billethq/billet/internal/driver/drivertest"
	"github.com/billethq/billet/internal/testenv"
)

func TestConformance(t *testing.T) {
	runsc := testenv.NeedRunsc(t)
	drivertest.Run(t, drivertest.Harness{
		New: func(t *testing.T, guestBinary string) driver.Driver {
			return newDriver(t, wrapper(t, "exec "+runsc+` --TESTONLY-afs-syscall-panic "$@"`), guestBinary)
		},
		CrashOp: "crash_gvisor",
		Watched: func(t *testing.T, pid int) bool { return controlConnections(t, pid) > 0 },
		Remains: func(t *testing.T, ref driver.Ref) []string { return cgroups(t, ref) },
	})
}

// wrapper writes a shell script to take runsc's place.
func wrapper(t *testing.T, script string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "runsc")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// controlConnections counts the connections that a sandbox has accepted on its
// control socket. The sentry has no other socket with that name.
func controlConnections(t *testing.T, pid int) int {
	t.Helper()
	table, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/unix", os.Getpid()))
	if err != nil {
		t.Fatal(err)
	}
	named := map[string]bool{} // inodes of connected sockets with that name
	for line := range strings.Lines(string(table)) {
		// Num RefCount Protocol Flags Type St Inode Path; St 03 is connected.
		f := strings.Fields(line)
		if len(f) == 8 && f[5] == "03" && strings.HasSuffix(f[7], "/runsc-guest.sock") {
			named["socket:["+f[6]+"]"] = true
		}
	}
	n := 0
	fds, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	for _, fd := range fds {
		if target, err := os.Readlink(fd); err == nil && named[target] {
			n++
		}
	}
	return n
}

func newDriver(t testing.TB, runsc, guestBinary string) *Driver {
	t.Helper()
	d, err := New(Config{
		Runsc: runsc, GuestBinary: guestBinary,
		Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// cgroups lists the instance's groups in every hierarchy, whoever made them.
func cgroups(t testing.TB, ref driver.Ref) []string {
	t.Helper()
	var all []string
	for _, pattern := range []string{"/sys/fs/cgroup/*/", "/sys/fs/cgroup/"} {
		found, err := filepath.Glob(pattern + DefaultCgroupParent + "/" + string(ref.ID))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, found...)
	}
	return all
}
