// Package api holds the wire types of billet's HTTP API, its client, and the
// Plane that nodes speak.
//
// Times are RFC 3339 in UTC, sizes are bytes, durations of people's settings
// are Go durations as text. Errors are problem+json (RFC 9457) with the extra
// fields kind and hint.
package api

import (
	"time"

	"github.com/billethq/billet/internal/model"
)

// Version is the version of the wire: a client sends it as Billet-Api-Version
// and a server of another one answers 400 with what to do.
const Version = "1"

// Problem is an error on the wire (application/problem+json).
type Problem struct {
	Type   string `json:"type"`   // "about:blank"
	Title  string `json:"title"`  // the status text
	Status int    `json:"status"` // the HTTP status
	Detail string `json:"detail"` // the message
	Kind   string `json:"kind"`   // an errs.Kind
	Hint   string `json:"hint,omitempty"`
}

// WorkspaceState is what people see of a workspace.
type WorkspaceState string

// The states of a workspace. Failed is stopped with a cause.
const (
	WorkspaceStopped  WorkspaceState = "stopped"
	WorkspaceStarting WorkspaceState = "starting"
	WorkspaceRunning  WorkspaceState = "running"
	WorkspaceStopping WorkspaceState = "stopping"
	WorkspaceUnproven WorkspaceState = "unproven" // its node is silent
	WorkspaceFailed   WorkspaceState = "failed"
	WorkspaceDeleting WorkspaceState = "deleting"
)

// Workspace is a workspace as people see it.
type Workspace struct {
	ID      model.WorkspaceID `json:"id"`
	Tenant  model.TenantID    `json:"tenant"`
	Region  model.RegionID    `json:"region"`
	Name    string            `json:"name"`
	Class   model.Class       `json:"class"`
	Tier    string            `json:"tier"`
	Shape   model.Shape       `json:"shape"`
	Image   string            `json:"image"`
	State   WorkspaceState    `json:"state"`
	Desired model.Desired     `json:"desired"`
	Failure model.Cause       `json:"failure,omitempty"`
	Detail  string            `json:"detail,omitempty"` // of the failure or the wait
	Head    model.Root        `json:"head"`
	HeadSeq model.Seq         `json:"head_seq"`
	// DurableAt is when the newest durable state was committed; DurableAge is
	// how long ago that was when this was answered, in seconds.
	DurableAt    time.Time     `json:"durable_at"`
	DurableAge   float64       `json:"durable_age_seconds"`
	UnsavedBytes int64         `json:"unsaved_bytes"`
	FlushError   string        `json:"flush_error,omitempty"`
	Epoch        model.Epoch   `json:"epoch"`
	Instance     *Instance     `json:"instance,omitempty"` // the newest one, while live
	Created      time.Time     `json:"created"`
	Updated      time.Time     `json:"updated"`
	Phases       []model.Phase `json:"phases,omitempty"` // of the newest instance
	NextResume   *NextResume   `json:"next_resume,omitempty"`
	// Killed is when it was ended for the client that it was lent to.
	Killed *time.Time `json:"killed,omitempty"`
	// GivenUp is, in the answer to a forced start alone, what it has left behind.
	GivenUp *LostInstance `json:"given_up,omitempty"`
}

// NextResume is how a workspace comes back when somebody connects to it.
type NextResume struct {
	How   ResumeHow  `json:"how"`
	Why   string     `json:"why,omitempty"`   // of a cold one
	Until *time.Time `json:"until,omitempty"` // when the memory image is dropped
	Bytes int64      `json:"bytes,omitempty"` // of the memory image
}

// ResumeHow is one of the ways.
type ResumeHow string

// The ways.
const (
	ResumeMemory ResumeHow = "memory" // every process goes on where it was
	ResumeCold   ResumeHow = "cold"   // a boot from the disk
)

// Instance is an instance as people see it.
type Instance struct {
	ID     model.InstanceID    `json:"id"`
	Node   string              `json:"node"` // name
	Driver model.DriverName    `json:"driver"`
	State  model.InstanceState `json:"state"`
	Epoch  model.Epoch         `json:"epoch"`
	Cause  model.Cause         `json:"cause,omitempty"`
}

// CreateWorkspaceRequest makes a workspace. An empty name gets a generated
// one; an empty tier is the first configured; an empty image is the tier's.
type CreateWorkspaceRequest struct {
	Name  string      `json:"name,omitempty"`
	Tier  string      `json:"tier,omitempty"`
	Class model.Class `json:"class,omitempty"`
	Image string      `json:"image,omitempty"`
	// Disk overrides the tier's disk size, in bytes; 0 keeps it.
	Disk int64 `json:"disk,omitempty"`
	// Stopped leaves it stopped.
	Stopped bool `json:"stopped,omitempty"`
}

// UpdateWorkspaceRequest changes a workspace's name.
type UpdateWorkspaceRequest struct {
	Name string `json:"name"`
}

// StartWorkspaceRequest asks for desired state running.
type StartWorkspaceRequest struct {
	// FromSnapshot starts it although an earlier instance is live: refused with
	// what that has not saved, unless Force gives it up.
	FromSnapshot bool `json:"from_snapshot,omitempty"`
	Force        bool `json:"force,omitempty"`
}

// StopWorkspaceRequest asks for a workspace to be saved and stopped.
type StopWorkspaceRequest struct {
	// Cold ends the guest as a machine is shut down, and keeps no memory.
	Cold bool `json:"cold,omitempty"`
}

// ForkWorkspaceRequest makes a new workspace on the newest durable root of
// another one, saving it first when it runs.
type ForkWorkspaceRequest struct {
	Name    string `json:"name,omitempty"`
	Stopped bool   `json:"stopped,omitempty"`
}

// ConnectRequest asks for a way into a workspace.
type ConnectRequest struct {
	// DeadlineMilli is how long to wait for it; 0 is a minute, the most ten.
	DeadlineMilli int64 `json:"deadline_ms,omitempty"`
}

// ConnectPhase is a step of the way into a workspace that has been reached.
type ConnectPhase struct {
	Name         ConnectPhaseName `json:"name"`
	ElapsedMilli int64            `json:"elapsed_ms"` // since the request
}

// ConnectPhaseName names a phase by what is being done, in the order below.
type ConnectPhaseName string

// The phases.
const (
	PhaseAuthorised      ConnectPhaseName = "authorised"
	PhasePlaced          ConnectPhaseName = "placed"
	PhaseFetchingBlocks  ConnectPhaseName = "fetching_blocks"  // of disk and memory
	PhaseRestoringMemory ConnectPhaseName = "restoring_memory" // or booting
	PhaseBooting         ConnectPhaseName = "booting"
	PhaseAttached        ConnectPhaseName = "attached"
)

// ConnectUpdate is one message of the stream of a connection: a phase, or how
// it ended.
type ConnectUpdate struct {
	Phase      *ConnectPhase `json:"phase,omitempty"`
	Attachment *Attachment   `json:"attachment,omitempty"`
	Problem    *Problem      `json:"problem,omitempty"`
}

// Attachment is a road to a guest: where, and the ticket that opens it.
type Attachment struct {
	Gateway  string           `json:"gateway"` // http://host:port or unix:///path
	Ticket   string           `json:"ticket"`
	Instance model.InstanceID `json:"instance,omitempty"`
	Epoch    model.Epoch      `json:"epoch,omitempty"`
	Node     model.NodeID     `json:"node"`
	Expires  time.Time        `json:"expires"`
}

// Snapshot is a durable state of a workspace.
type Snapshot struct {
	ID           model.SnapshotID `json:"id"`
	Root         model.Root       `json:"root"`
	Parent       model.Root       `json:"parent"`
	Epoch        model.Epoch      `json:"epoch"`
	Seq          model.Seq        `json:"seq"`
	Consistency  string           `json:"consistency"`
	StoredBytes  int64            `json:"stored_bytes"`
	WrittenBytes int64            `json:"written_bytes"`
	Created      time.Time        `json:"created"`
	// Memory is the memory image that was taken at Root, "" when there is none
	// (any more).
	Memory      model.Root `json:"memory,omitempty"`
	MemoryBytes int64      `json:"memory_bytes,omitempty"`
}

// Image is an image and its newest generation.
type Image struct {
	ID          model.ImageID      `json:"id"`
	Name        string             `json:"name"`
	Generation  model.GenerationID `json:"generation"`
	Root        model.Root         `json:"root"`
	Source      string             `json:"source"`
	DiskBytes   int64              `json:"disk_bytes"`
	UsedBytes   int64              `json:"used_bytes"`
	StoredBytes int64              `json:"stored_bytes"`
	Created     time.Time          `json:"created"`
	Updated     time.Time          `json:"updated"`
	Generations []Generation       `json:"generations,omitempty"` // newest first, in image show
}

// Generation is one immutable version of an image.
type Generation struct {
	ID          model.GenerationID `json:"id"`
	Root        model.Root         `json:"root"`
	Source      string             `json:"source"`
	DiskBytes   int64              `json:"disk_bytes"`
	UsedBytes   int64              `json:"used_bytes"`
	StoredBytes int64              `json:"stored_bytes"`
	Created     time.Time          `json:"created"`
}

// Node is a node as people see it.
type Node struct {
	ID        model.NodeID     `json:"id"`
	Name      string           `json:"name"`
	Region    model.RegionID   `json:"region"`
	Driver    model.DriverName `json:"driver"`
	Version   string           `json:"version"`
	BootID    string           `json:"boot_id"`
	Capacity  model.Capacity   `json:"capacity"`
	Used      model.Capacity   `json:"used"` // charged to live leases
	Instances int              `json:"instances"`
	LastSeen  time.Time        `json:"last_seen"`
	Silent    bool             `json:"silent"`
}

// RemovedNode is a node that was removed, and what went with it.
type RemovedNode struct {
	ID   model.NodeID   `json:"id"`
	Name string         `json:"name"`
	Lost []LostInstance `json:"lost"`
}

// LostInstance is an instance that was given up, or ended by the word that its
// host is gone. What it wrote after DurableAt is lost: UnsavedBytes is how much that was when
// its node was last heard, 0 when nobody knows.
type LostInstance struct {
	ID           model.InstanceID `json:"id"`
	Node         string           `json:"node,omitempty"`  // name
	Workspace    string           `json:"workspace"`       // name; "" when it is gone
	Cause        model.Cause      `json:"cause,omitempty"` // host_gone, or fenced: the workspace had left it before
	DurableAt    time.Time        `json:"durable_at"`
	UnsavedBytes int64            `json:"unsaved_bytes"`
}

// Token is a token without its secret.
type Token struct {
	ID        model.TokenID `json:"id"`
	Name      string        `json:"name"`
	Principal string        `json:"principal"` // name
	Class     model.Class   `json:"class"`
	Role      model.Role    `json:"role"`
	Created   time.Time     `json:"created"`
	Expires   *time.Time    `json:"expires,omitempty"`
	LastUsed  *time.Time    `json:"last_used,omitempty"`
}

// CreateTokenRequest makes a token, and its principal when there is none of
// that name.
type CreateTokenRequest struct {
	Name    string      `json:"name"`
	Class   model.Class `json:"class,omitempty"` // human when empty
	Role    model.Role  `json:"role,omitempty"`  // user when empty
	Expires string      `json:"expires_in,omitempty"`
	// E2B gives the secret the shape that clients of the E2B API check, and
	// makes the class agent when it is empty.
	E2B bool `json:"e2b,omitempty"`
}

// CreatedToken shows the secret once.
type CreatedToken struct {
	Token
	Secret string `json:"secret"`
}

// Tier is a tier and its use.
type Tier struct {
	Name    string             `json:"name"`
	Shape   model.Shape        `json:"shape"`
	Image   string             `json:"image"`
	Drivers []model.DriverName `json:"drivers"`
	Classes []model.Class      `json:"classes,omitempty"`
	Max     int                `json:"max"`
	Live    int                `json:"live"`
}

// Event is one line of history.
type Event struct {
	Seq         int64             `json:"seq"`
	At          time.Time         `json:"at"`
	Actor       string            `json:"actor,omitempty"` // principal id; empty for control itself
	Kind        string            `json:"kind"`
	SubjectKind string            `json:"subject_kind"`
	Subject     string            `json:"subject"`
	Data        map[string]string `json:"data,omitempty"`
}

// Progress is one message of a wait: the state of the workspace at that time.
type Progress struct {
	Workspace Workspace `json:"workspace"`
	// Done is set on the last one: the wait is over, well or with Problem.
	Done    bool     `json:"done"`
	Problem *Problem `json:"problem,omitempty"`
}

// Info describes a deployment to its clients.
type Info struct {
	Version    string `json:"version"`     // of the binary
	APIVersion string `json:"api_version"` // Version
	Deployment string `json:"deployment"`
	// TicketKey is the Ed25519 public key with which gateways verify tickets.
	TicketKey []byte `json:"ticket_key"`
	// Stored: the ledger has an image or a workspace, so there is an object store.
	Stored bool `json:"stored,omitempty"`
	// API is where the API is served over TCP, and with it the E2B API.
	API string `json:"api,omitempty"`
}

// List is a page of anything.
type List[T any] struct {
	Items []T `json:"items"`
}

// Health is the answer of a server that answers.
type Health struct {
	Status string `json:"status"` // "ok"
}
