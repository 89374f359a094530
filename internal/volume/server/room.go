package server

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/billethq/billet/internal/clock"
	"github.com/billethq/billet/internal/volume/device"
	"github.com/billethq/billet/internal/volume/fusedev"
	"github.com/billethq/billet/internal/volume/protocol"
)

const (
	// The pause between two tries of a write for which there was no room.
	roomFirst = 20 * time.Millisecond
	roomMost  = 500 * time.Millisecond
	// endWithin is how long a node that has been told is given to kill the
	// guest: it is a few calls. The killed guest is gone only when its writes
	// are let go, so this is also how long that takes.
	endWithin = 5 * time.Second
)

// room holds a guest's writes while the host's disk is full. To fail them is
// to trust that the guest hears of it, and a sandbox may drop the error of an
// fsync: the guest would take for stored what is not. A write that is held
// acknowledges nothing. The node is told at once and kills the guest; a killed
// process that waits for the disk ends only with its wait, so then, and not
// before, held writes fail. Until the node has been told they are held without
// an end: there is nobody who would kill the guest.
//
// Only what comes from the file system is held. What this process wants for
// itself fails at once.
type room struct {
	fusedev.Device

	guest atomic.Bool     // there is a guest, or was: until then errors are heard
	over  context.Context // ends when nothing is to be held any more
	end   context.CancelFunc
	told  sync.Once
}

func newRoom(dev fusedev.Device) *room {
	r := &room{Device: dev}
	r.over, r.end = context.WithCancel(context.Background())
	return r
}

// WriteAt implements fusedev.Device.
func (r *room) WriteAt(p []byte, off int64) error {
	return r.hold(func() error { return r.Device.WriteAt(p, off) })
}

// Zero implements fusedev.Device.
func (r *room) Zero(off, n int64) error {
	return r.hold(func() error { return r.Device.Zero(off, n) })
}

// Flush implements fusedev.Device.
func (r *room) Flush() error { return r.hold(r.Device.Flush) }

// hold tries again until there is room or nobody to wait for. The device has
// reported each failure.
func (r *room) hold(try func() error) error {
	for pause := roomFirst; ; pause = min(2*pause, roomMost) {
		err := try()
		if !device.IsFull(err) || !r.guest.Load() || clock.Sleep(r.over, clock.Jitter(pause)) != nil {
			return err
		}
	}
}

// tell notes that the node has been given these faults.
func (r *room) tell(faults ...protocol.Fault) {
	for _, f := range faults {
		if f.Kind == protocol.FaultDiskFull {
			r.told.Do(func() { time.AfterFunc(endWithin, r.end) })
		}
	}
}
