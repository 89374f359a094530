// Package protocol is what a node and a volume process say to each other.
//
// The node writes one Document to the process's standard input and reads one
// Ready line from its standard output, after one that says where the file
// system will be, should the document ask. From then on they speak HTTP with JSON
// over a Unix socket in the volume's directory, with the version in the path.
// A process outlives the node that started it and may be spoken to by a newer
// one: within a version fields are only ever added, and a version that the
// process does not know is refused by name.
package protocol

import (
	"errors"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/model"
	"github.com/billethq/billet/internal/volume"
	"github.com/billethq/billet/internal/volume/mount"
)

// Version is the protocol that this build speaks.
const Version = 1

// Prefix begins the path of every call.
const Prefix = "/v1/"

// The calls. Status and Fault are GET, the others POST.
const (
	PathStatus    = Prefix + "status"
	PathFault     = Prefix + "fault"
	PathSeal      = Prefix + "seal"
	PathUpload    = Prefix + "upload"
	PathCommitted = Prefix + "committed"
	PathUnmount   = Prefix + "unmount"
	PathClose     = Prefix + "close"

	PathSaveMemory = Prefix + "memory/save"
	PathLoadMemory = Prefix + "memory/load"
)

// MaxDocument bounds a document or a call's body: both are small.
const MaxDocument = 1 << 20

// Document is the one thing on standard input. Exactly one field is set.
type Document struct {
	Volume *Config      `json:"volume,omitempty"`
	Helper *mount.Order `json:"helper,omitempty"` // see package mount
}

// Config says what volume to serve. It holds secrets, so it goes through a
// pipe, and never into argv, the environment or a file.
type Config struct {
	Version  int              `json:"version"`
	Instance model.InstanceID `json:"instance"`
	Subject  model.SubjectID  `json:"subject"`
	Tenant   model.TenantID   `json:"tenant"`
	Epoch    model.Epoch      `json:"epoch"`
	Root     model.Root       `json:"root"` // the subject's durable root
	Size     int64            `json:"size"` // of the device, in bytes
	Dir      string           `json:"dir"`  // private to the instance; made when missing
	Cache    CacheConfig      `json:"cache"`
	Store    StoreConfig      `json:"store"`
	// DomainKeys has the tenant's key, and the deployment's if the volume
	// builds on an image.
	DomainKeys []model.DomainKey `json:"domain_keys"`
	// Announce asks for the line that says where the file system will be.
	Announce bool `json:"announce,omitempty"`
}

// CacheConfig is the host's block cache.
type CacheConfig struct {
	Dir      string `json:"dir"`
	MaxBytes int64  `json:"max_bytes"`
	KeepFree int64  `json:"keep_free"` // bytes of its file system left to others
}

// StoreConfig is the object store.
type StoreConfig struct {
	Dir string `json:"dir"` // of the directory store
}

// Check refuses what no volume can be made of.
func (c *Config) Check() error {
	switch {
	case c.Version != Version:
		return errs.New(errs.Unsupported, "volume protocol version %d, this build speaks %d", c.Version, Version).
			WithHint("use a node and a volume binary of one release")
	case !model.IsID(string(c.Instance)):
		return errs.New(errs.Invalid, "instance %q is not an id", c.Instance)
	case c.Subject == "" || c.Tenant == "":
		return errs.New(errs.Invalid, "subject or tenant is missing")
	case !filepath.IsAbs(c.Dir) || !filepath.IsAbs(c.Store.Dir) || !filepath.IsAbs(c.Cache.Dir):
		return errs.New(errs.Invalid, "a directory of the volume, cache or store is not an absolute path")
	case c.Size <= 0 || c.Size%volume.BlockSize != 0 || c.Size > volume.MaxDeviceSize:
		return errs.New(errs.Invalid, "size %d is not a positive multiple of %d within %d", c.Size, int64(volume.BlockSize), int64(volume.MaxDeviceSize))
	}
	if c.Root == "" {
		return errs.New(errs.Invalid, "root is missing")
	}
	return c.Root.Check()
}

// Tag marks the loop device of an instance's volume.
func Tag(id model.InstanceID) string { return "billet:" + string(id) }

// Ready is the last line on standard output. Where the document asks for it,
// one comes before it that has only Mounting.
type Ready struct {
	Process
	Steps []Step   `json:"steps,omitempty"`
	Error *Problem `json:"error,omitempty"` // set: the process is ending, nothing is mounted
	// Mounting is the mount namespace in which the file system is about to be
	// mounted, at the place's RootFS; valid as MountNS is.
	Mounting string `json:"mounting,omitempty"`
}

// Step is a part of the start, with the time it took.
type Step struct {
	Name string        `json:"name"`
	Took time.Duration `json:"took"` // nanoseconds
}

// Process identifies a volume process and what it has made. It is also kept in
// a file of the volume's directory, where it may be out of date.
type Process struct {
	Version  int              `json:"version"`
	Instance model.InstanceID `json:"instance"`
	PID      int              `json:"pid"`
	// Start and BootID tell the process from another that was given its
	// number later.
	Start  uint64 `json:"start"` // clock ticks after boot
	BootID string `json:"boot_id"`
	Loop   string `json:"loop"`
	RootFS string `json:"rootfs"` // path of the file system in MountNS
	// MountNS is the path of the mount namespace, valid while the process
	// lives. It is not the process's own.
	MountNS string `json:"mount_ns"`
}

// Status is what a volume process says of itself.
type Status struct {
	Process
	Root model.Root `json:"root"` // what it stands on
	Size int64      `json:"size"`
	// UnsavedBytes are guest pages that are not in the object store.
	UnsavedBytes int64 `json:"unsaved_bytes"`
	Sealed       bool  `json:"sealed"` // a seal waits for its commit
	// Pending is the root uploaded last, "" when it is committed or none is.
	Pending  model.Root `json:"pending,omitempty"`
	Mounted  bool       `json:"mounted"`
	Faults   []Fault    `json:"faults,omitempty"`
	Counters Counters   `json:"counters"`
}

// Counters count since the process began.
type Counters struct {
	Reads   int64 `json:"reads"`   // requests of the file system
	Writes  int64 `json:"writes"`  // the same, discards included
	Flushes int64 `json:"flushes"` // the same
	Fills   int64 `json:"fills"`   // pages completed from below
	Stalls  int64 `json:"stalls"`  // tries of a read that found no store
	// ReadBytes and WrittenBytes are those of the file system, discards left out.
	ReadBytes    int64               `json:"read_bytes"`
	WrittenBytes int64               `json:"written_bytes"`
	Fetch        volume.FetcherStats `json:"fetch"`
	Cache        volume.CacheStats   `json:"cache"`
}

// FaultKind says what went wrong under a guest.
type FaultKind string

// The kinds of faults.
const (
	FaultDiskFull     FaultKind = "disk_full"     // the host's disk under the overlay is full
	FaultCorruptBlock FaultKind = "corrupt_block" // the store lost or altered an object
	FaultReadOnly     FaultKind = "fs_readonly"   // the kernel gave up the file system
)

// Fault is the first of its kind.
type Fault struct {
	Kind   FaultKind  `json:"kind"`
	Detail string     `json:"detail"`
	Block  int64      `json:"block,omitempty"` // of corrupt_block
	Key    string     `json:"key,omitempty"`
	Root   model.Root `json:"root,omitempty"`
}

// SealRequest asks to set aside what was written for an upload.
type SealRequest struct {
	// Freeze the file system for the moment of the seal, so that the root
	// needs no journal replay.
	Freeze bool `json:"freeze"`
}

// SealResponse says what there is to upload.
type SealResponse struct {
	Clean bool `json:"clean"` // nothing was written: there is nothing to upload
}

// UploadRequest is the intent.
type UploadRequest struct {
	Intent  model.IntentID `json:"intent"`
	Epoch   model.Epoch    `json:"epoch"`
	Seq     model.Seq      `json:"seq"`
	Started time.Time      `json:"started"`
}

// UploadResponse is a root that is stored and not yet committed.
type UploadResponse struct {
	Root         model.Root         `json:"root"`
	Consistency  volume.Consistency `json:"consistency"`
	StoredBytes  int64              `json:"stored_bytes"`
	WrittenBytes int64              `json:"written_bytes"`
	Blocks       int64              `json:"blocks"`
}

// CommittedRequest says that the ledger has the root.
type CommittedRequest struct {
	Root model.Root `json:"root"`
}

// SaveMemoryRequest asks to store the memory that a driver took into Dir, all
// of it, as bound to the content of Disk: the root that was uploaded last, or
// the one that the volume stands on.
type SaveMemoryRequest struct {
	Dir     string        `json:"dir"`
	Disk    model.Root    `json:"disk"`
	Machine model.Machine `json:"machine"`
	Created time.Time     `json:"created"`
}

// SaveMemoryResponse is a memory image that is stored and in no snapshot yet.
type SaveMemoryResponse struct {
	Root        model.Root `json:"root"`
	StoredBytes int64      `json:"stored_bytes"` // added to the object store
	Bytes       int64      `json:"bytes"`        // of the memory itself
}

// LoadMemoryRequest asks to write a memory image's files into Dir, which has to
// be there and to hold none of them. One that cannot be restored on Machine, or
// is of another disk than the one the volume stands on, is refused as
// errs.Unsupported.
type LoadMemoryRequest struct {
	Root    model.Root    `json:"root"`
	Dir     string        `json:"dir"`
	Machine model.Machine `json:"machine"`
}

// LoadMemoryResponse says what was written.
type LoadMemoryResponse struct {
	Bytes int64     `json:"bytes"`
	Taken time.Time `json:"taken"`
}

// Problem is an error on the wire.
type Problem struct {
	Kind    errs.Kind `json:"kind"`
	Message string    `json:"message"`
	Hint    string    `json:"hint,omitempty"`
	Damaged bool      `json:"damaged,omitempty"` // the store lost or altered an object
}

// NewProblem returns nil for nil.
func NewProblem(err error) *Problem {
	if err == nil {
		return nil
	}
	var corrupt *volume.CorruptError
	return &Problem{Kind: errs.KindOf(err), Message: err.Error(), Hint: errs.HintOf(err), Damaged: errors.As(err, &corrupt)}
}

// Err is the error that p was made of, without its causes. A node that has to
// know whether the store is at fault finds a *DamagedError.
func (p *Problem) Err() error {
	if p == nil {
		return nil
	}
	err := &errs.Error{Kind: p.Kind, Message: p.Message, Hint: p.Hint}
	if p.Damaged {
		return &DamagedError{err}
	}
	return err
}

// DamagedError is a *volume.CorruptError of the process on the other side.
type DamagedError struct{ err error }

func (e *DamagedError) Error() string { return e.err.Error() }
func (e *DamagedError) Unwrap() error { return e.err }

// LogValue keeps the keys out of logs.
func (c Config) LogValue() slog.Value {
	return slog.GroupValue(slog.String("instance", string(c.Instance)), slog.String("root", string(c.Root)))
}
