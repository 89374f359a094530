// Package driver is the instance port: how a node makes guests.
//
// A driver owns what it creates on the host under one Spec.Dir and one
// instance id, and nothing else. Everything it needs to find a guest again
// after the node restarts is on disk in Spec.Dir or in the kernel: a driver
// keeps no state that a new process could not read. Start, Stop and Delete are
// idempotent: calling one again, after a crash at any point, ends in the same
// state. Package drivertest is the conformance suite.
package driver

import (
	"context"
	"time"

	"github.com/billethq/billet/internal/model"
)

// Driver makes, finds and ends guests. Methods for different ids may run
// concurrently; the node serialises calls for one id, Wait excepted.
type Driver interface {
	Name() model.DriverName

	// Probe proves the boundary by booting a throw-away guest with a deadline
	// and ending it again. It leaves nothing behind. An error says what is
	// missing on this host (errs.Unsupported, with a hint).
	Probe(ctx context.Context) (Boundary, error)

	// Start brings the guest up: afterwards its PID 1 (the guest agent) has
	// been started. A guest that already runs is left alone. When Start fails
	// nothing of the guest runs any more, but Delete is still needed.
	Start(ctx context.Context, spec Spec) error

	// Inspect tells what is there, from the host's own evidence. A guest it
	// cannot find any trace of is Absent, with a nil error; an error means
	// that it could not find out (unknown is never absent).
	Inspect(ctx context.Context, ref Ref) (Status, error)

	// Wait blocks until the guest has ended and returns how. It works for a
	// guest that another process started (adoption).
	Wait(ctx context.Context, ref Ref) (Exit, error)

	// Stop ends the guest: a request (SIGTERM to PID 1), then, after grace,
	// by force. It returns nil only when the compute is proved gone. Zero
	// grace means by force at once. Stopping an absent guest is no error.
	Stop(ctx context.Context, ref Ref, grace time.Duration) error

	// Delete ends the guest by force if need be and removes everything the
	// driver made for it on the host: state, cgroups, mounts, namespaces.
	Delete(ctx context.Context, ref Ref) error
}

// Preparer is a Driver that can begin a start before the guest's root file
// system is there.
type Preparer interface {
	Driver

	// Prepare does of Start what needs neither root file system nor agent
	// socket: RootFS need not be mounted yet in MountNS, which needs to be valid
	// only while Prepare runs. A guest that is there is errs.Conflict. The caller
	// ends it by Start or Drop, before it calls anything else for this id; the
	// end of ctx, or of this process, leaves nothing that runs.
	Prepare(ctx context.Context, spec Spec) (Prepared, error)
}

// Prepared is a start that waits.
type Prepared interface {
	// Start brings the guest up, as Driver.Start does.
	Start(ctx context.Context) error
	// Drop gives it up, and returns when nothing of it runs.
	Drop()
}

// Meter is a Driver that measures its guests from outside, by counters that a
// guest cannot forge.
type Meter interface {
	Driver

	// Usage is what a guest has used since its start. errs.NotFound when there
	// is no guest.
	Usage(ctx context.Context, ref Ref) (Usage, error)
}

// Usage counts; it never falls as long as the guest lives.
type Usage struct {
	CPU time.Duration // of processor time, the sandbox itself included
}

// Ref finds a guest on this host.
type Ref struct {
	ID  model.InstanceID
	Dir string // the driver's private directory for this instance
}

// Spec describes a guest.
type Spec struct {
	Ref
	// RootFS is the path of the guest's root file system, as seen in the mount
	// namespace MountNS. The guest may write it.
	RootFS string
	// MountNS is the path of the mount namespace in which RootFS exists, such
	// as /proc/PID/ns/mnt; "" is the caller's own. It needs to be valid only
	// while Start runs.
	MountNS string
	// SideDir is a host directory, shown to the guest at guest.SideDir, in
	// which the node listens on agent.sock. Per instance.
	SideDir string
	// GuestBinary is the host path of billet-guest, shown read-only to the
	// guest and run as its PID 1.
	GuestBinary string
	Hostname    string
	Shape       model.Shape
	// Labels are recorded for people; no secret goes here.
	Labels map[string]string
}

// State is what a driver sees of a guest.
type State string

// The states of a guest on its host.
const (
	Absent  State = "absent"
	Running State = "running"
	Exited  State = "exited" // no compute is left; its remains await Delete
)

// Status is a driver's view of one guest.
type Status struct {
	State State
	PID   int  // the sandbox's process on the host, while running
	Exit  Exit // once exited
}

// Exit says how a guest ended, from the host's counters and the sandbox's own
// log, never from a guess.
type Exit struct {
	Cause  model.Cause
	Code   int    // PID 1's exit code, when Cause is exited
	Detail string // for people: the counter that moved, or the panic's first lines
}

// Boundary is what Probe found.
type Boundary struct {
	Driver   model.DriverName `json:"driver"`
	Platform string           `json:"platform"` // such as "systrap"
	Version  string           `json:"version"`
	Binary   string           `json:"binary"` // path
	Cgroup   int              `json:"cgroup"` // 1 or 2
	BootTime time.Duration    `json:"boot_time"`
	Machine  model.Machine    `json:"machine"` // what memory images of this host are bound to
}
