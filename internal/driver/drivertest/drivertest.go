// Package drivertest is the conformance suite of the instance port: every
// driver passes Run.
//
// The guests are real. Their PID 1 is a small program (testdata/pid1) that
// obeys the test over the side socket.
package drivertest

import (
	"testing"

	"github.com/billethq/billet/internal/driver"
)

// Harness gives the suite a driver.
type Harness struct {
	// New returns a driver that knows nothing of any other value: what it
	// finds, it finds on the host. guestBinary is what Probe may boot: a PID 1
	// that dials the side socket.
	New func(t *testing.T, guestBinary string) driver.Driver
	// CrashOp is the operation of PID 1 that makes the kernel under it panic.
	CrashOp string
	// Watched reports whether a Wait has got hold of the guest whose process
	// is pid, so that it will hear PID 1's exit code.
	Watched func(t *testing.T, pid int) bool
	// Remains lists what the driver has on the host for ref outside ref.Dir.
	Remains func(t *testing.T, ref driver.Ref) []string
}

// Run runs the suite.
func Run(t *testing.T, h Harness) {
	for _, group := range []struct {
		name  string
		tests map[string]func(*testing.T, Harness)
	}{
		{"Lifecycle", lifecycle},
		{"Prepare", prepare},
		{"HalfMade", halfMade},
		{"Inside", inside},
		{"Cause", causes},
		{"Memory", memory},
	} {
		t.Run(group.name, func(t *testing.T) {
			for name, test := range group.tests {
				t.Run(name, func(t *testing.T) { test(t, h) })
			}
		})
	}
}
