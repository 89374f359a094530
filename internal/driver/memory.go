package driver

import "context"

// Hibernator is a Driver that can take a guest's memory to files and start a
// guest from them. Its methods are on the same terms as Driver's: idempotent,
// and with no state but the host's.
//
// A hibernation is Pause, Checkpoint, whatever else has to be of the same
// instant, and then either Continue, after which the guest goes on as if
// nothing had been, or Stop and Delete. The guest stays paused until one of
// them is called, also when the caller dies.
type Hibernator interface {
	Driver

	// Pause stops every process of the guest. A paused guest is Running to
	// Inspect: its compute is there.
	Pause(ctx context.Context, ref Ref) error

	// Checkpoint writes the memory of a paused guest into dir, an empty
	// directory on a file system of the host, and leaves the guest paused. The
	// files are not synced. After an error the guest is as it was, and dir
	// holds nothing of use.
	Checkpoint(ctx context.Context, ref Ref, dir string) error

	// Continue lets a paused guest go on, and tells its PID 1 to dial the node
	// again (SIGUSR1): what it reads from has hung up, which a process that
	// slept in the read does not notice. A guest that is not paused is only
	// told.
	Continue(ctx context.Context, ref Ref) error

	// Restore is Start from the files that Checkpoint made of a guest with the
	// same Shape, on the disk as it was then: processes go on where they were.
	// The files may be read on after Restore has returned, through descriptors
	// that are open by then. Paths, labels and side directory may differ from
	// the first guest's. After an error nothing of the guest runs, and it can be
	// started cold once it is deleted. That dir is of this host's kind (see
	// model.Machine) is for the caller to know.
	Restore(ctx context.Context, spec Spec, dir string) error
}
