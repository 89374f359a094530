package gvisor

import (
	"log/slog"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/billethq/billet/internal/driver"
	"github.com/billethq/billet/internal/driver/drivertest"
	"github.com/billethq/billet/internal/testenv"
)

func TestConformance(t *testing.T) {
	runsc := testenv.NeedRunsc(t)
	drivertest.Run(t, drivertest.Harness{
		New: func(t *testing.T, guestBinary string) driver.Driver { return newDriver(t, runsc, guestBinary) },
		Crash: func(t *testing.T, pid int) {
			// The sentry is a Go program: SIGABRT makes its runtime give up.
			if err := syscall.Kill(pid, syscall.SIGABRT); err != nil {
				t.Fatal(err)
			}
		},
		Remains: func(t *testing.T, ref driver.Ref) []string { return cgroups(t, ref) },
	})
}

func newDriver(t *testing.T, runsc, guestBinary string) *Driver {
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
func cgroups(t *testing.T, ref driver.Ref) []string {
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
