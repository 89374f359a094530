package node

import (
	"context"
	"time"

	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/model"
)

// Volumes makes and finds the volume processes of this node.
type Volumes interface {
	// Open adopts the volume process of spec.Dir when one runs, else it starts
	// one on what the directory holds. The file system is mounted afterwards.
	// ErrDamaged: no try will ever do better.
	Open(ctx context.Context, spec VolumeSpec) (Volume, error)
	// Exists reports whether dir holds an overlay, mounted or not.
	Exists(dir string) bool
	// Clear ends what is left of a volume process in dir and waits until its
	// mounts and loop device are gone. It touches no overlay.
	Clear(ctx context.Context, dir string) error
}

// ErrDamaged says that the object store has lost or altered a part of the disk.
var ErrDamaged = errs.New(errs.Internal, "the object store has lost or altered an object")

// VolumeSpec says which disk to open.
type VolumeSpec struct {
	Dir      string
	Instance model.InstanceID
	Subject  model.SubjectID
	Tenant   model.TenantID
	Epoch    model.Epoch
	Root     model.Root
	Size     int64
	Keys     []model.DomainKey
	// Mounting, which may be nil, is called by an Open that starts a process,
	// before the file system is mounted: with where that will be, and in which
	// mount namespace.
	Mounting func(rootfs, mountNS string)
}

// Volume is one volume process. Every call but Fault ends soon.
type Volume interface {
	// Mount tells where the file system is and in which mount namespace.
	Mount() (rootfs, mountNS string)
	// Status reads the present state.
	Status(ctx context.Context) (VolumeStatus, error)
	// Seal makes everything written so far ready for an upload and reports
	// whether there was nothing.
	Seal(ctx context.Context) (clean bool, err error)
	// Upload stores what is sealed. Repeating it gives the same root.
	Upload(ctx context.Context, up Upload) (Uploaded, error)
	// Committed says that root is the subject's head now.
	Committed(ctx context.Context, root model.Root) error
	// SaveMemory stores the memory that a driver took into dir as bound to disk,
	// which Upload stored last or the volume stands on.
	SaveMemory(ctx context.Context, dir string, disk model.Root, machine model.Machine, taken time.Time) (SavedMemory, error)
	// LoadMemory writes a memory image's files into dir, an empty directory. One
	// that is of another disk or cannot be restored on machine is
	// errs.Unsupported, a damaged one ErrDamaged.
	LoadMemory(ctx context.Context, root model.Root, dir string, machine model.Machine) (LoadedMemory, error)
	// Unmount unmounts cleanly; the device stays open for Seal and Upload.
	Unmount(ctx context.Context) error
	// Close ends the process. It returns when everything is gone.
	Close(ctx context.Context) error
	// Fault blocks until something is wrong; FaultGone when the process died.
	Fault(ctx context.Context) (Fault, error)
}

// VolumeStatus is what a volume process says of itself.
type VolumeStatus struct {
	Root         model.Root // the durable root it stands on
	UnsavedBytes int64
	Sealed       bool
	Faults       []Fault    // the first of each kind
	Pending      model.Root // uploaded, and its commit is not known; "" when none is
	Traffic      int64      // bytes that the guest's file system read and wrote since the process began
}

// Upload is what goes into a new root's metadata; all of it is the intent's,
// so that a repeated upload gives the same root.
type Upload struct {
	Intent  model.IntentID
	Epoch   model.Epoch
	Seq     model.Seq
	Started time.Time
}

// SavedMemory is a memory image in the object store that waits for its commit.
type SavedMemory struct {
	Root  model.Root
	Bytes int64
}

// LoadedMemory says what was written.
type LoadedMemory struct {
	Bytes int64
	Taken time.Time
}

// Uploaded is a root in the object store that waits for its commit.
type Uploaded struct {
	Root         model.Root
	Consistency  string
	StoredBytes  int64
	WrittenBytes int64
}

// FaultKind says what is wrong with a volume.
type FaultKind string

// The faults of a volume.
const (
	FaultGone     FaultKind = "gone"          // the process died
	FaultDiskFull FaultKind = "disk_full"     // the host's disk is full
	FaultCorrupt  FaultKind = "corrupt_block" // a block did not hash to its name
	FaultReadOnly FaultKind = "fs_readonly"   // the file system went read-only
)

// Fault is one of them, with words for people.
type Fault struct {
	Kind   FaultKind
	Detail string
}
