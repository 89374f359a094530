package server

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/billethq/billet/internal/clock"
	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/volume/fusedev"
	"github.com/billethq/billet/internal/volume/protocol"
)

// fullDisk gives err for whatever is written.
type fullDisk struct {
	fusedev.Device
	err atomic.Pointer[error]
}

func newFullDisk(err error) *fullDisk {
	d := &fullDisk{}
	d.err.Store(&err)
	return d
}

func (d *fullDisk) WriteAt([]byte, int64) error { return *d.err.Load() }
func (d *fullDisk) Zero(int64, int64) error     { return *d.err.Load() }
func (d *fullDisk) Flush() error                { return *d.err.Load() }

func TestRoom_HoldsUntilSomebodyDecides(t *testing.T) {
	full := fmt.Errorf("write: %w", unix.ENOSPC)
	faults := []protocol.Fault{{Kind: protocol.FaultCorruptBlock}, {Kind: protocol.FaultDiskFull}}
	ops := map[string]func(*room) error{
		"write": func(r *room) error { return r.WriteAt(nil, 0) },
		"zero":  func(r *room) error { return r.Zero(0, 0) },
		"flush": func(r *room) error { return r.Flush() },
	}
	for name, test := range map[string]struct {
		first  error
		decide func(*room, *fullDisk)
		want   error
		within time.Duration // of the decision
	}{
		"there is room":    {full, func(_ *room, d *fullDisk) { var none error; d.err.Store(&none) }, nil, 2 * roomMost},
		"the node is told": {full, func(r *room, _ *fullDisk) { r.tell(faults...); r.tell(faults...) }, unix.ENOSPC, endWithin},
		"the guest ended":  {full, func(r *room, _ *fullDisk) { r.end() }, unix.ENOSPC, 0},
		"over quota":       {unix.EDQUOT, func(r *room, _ *fullDisk) { r.end() }, unix.EDQUOT, 0},
		"of a broken flush": {
			errs.Wrap(errs.Unavailable, unix.ENOSPC, "not known to be on disk"), func(r *room, _ *fullDisk) { r.end() }, unix.ENOSPC, 0,
		},
	} {
		for op, do := range ops {
			synctest.Test(t, func(t *testing.T) {
				disk := newFullDisk(test.first)
				r := newRoom(disk)
				r.guest.Store(true)
				defer r.end()
				ended := make(chan error, 1)
				go func() { ended <- do(r) }()
				time.Sleep(time.Minute)
				r.tell(faults[:1]...) // another fault is no reason
				time.Sleep(time.Minute)
				select {
				case err := <-ended:
					t.Fatalf("%s, %s: ended with %v before anything was decided", name, op, err)
				default:
				}
				took := clock.Start()
				test.decide(r, disk)
				if err := <-ended; !errors.Is(err, test.want) || took.Elapsed() > test.within {
					t.Errorf("%s, %s: ended with %v after %s, want %v within %s", name, op, err, took.Elapsed(), test.want, test.within)
				}
			})
		}
	}
}

// TestRoom_FailsWhatNobodyWaitsFor: a start must not hang, and another error
// than a full disk is heard at once.
func TestRoom_FailsWhatNobodyWaitsFor(t *testing.T) {
	full, other := newRoom(newFullDisk(unix.ENOSPC)), newRoom(newFullDisk(unix.EIO))
	other.guest.Store(true)
	defer full.end()
	defer other.end()
	if err := full.WriteAt(nil, 0); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("before there is a guest: got %v, want ENOSPC", err)
	}
	if err := other.WriteAt(nil, 0); !errors.Is(err, unix.EIO) {
		t.Errorf("got %v, want EIO", err)
	}
}
