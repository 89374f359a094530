package model

import "time"

// Class says who is waiting; it chooses the order in which work is refused.
type Class string

// The classes. ClassNode and ClassAdmin belong to principals only.
const (
	ClassHuman Class = "human"
	ClassAgent Class = "agent"
	ClassCI    Class = "ci"
)

// Role says what a principal may call.
type Role string

// The roles of principals.
const (
	RoleAdmin Role = "admin" // everything, tokens included
	RoleUser  Role = "user"  // workspaces of its tenant, and images of its own
	RoleNode  Role = "node"  // the plane, for one node
	// RoleGateway asks who has which key, and opens roads for them.
	RoleGateway Role = "gateway"
)

// Principal is who acts: a person, an agent or a node.
type Principal struct {
	ID      PrincipalID
	Tenant  TenantID
	Region  RegionID
	Name    string // a DNS label
	Class   Class
	Role    Role
	Created time.Time
}

// Token authenticates a principal. Only the SHA-256 of its secret is kept.
type Token struct {
	ID        TokenID
	Tenant    TenantID
	Region    RegionID
	Principal PrincipalID
	Name      string
	Hash      [32]byte
	Created   time.Time
	Expires   time.Time // zero: never
	LastUsed  time.Time // zero: never; kept to the hour
}

// SSHKey is a public key with which its principal may enter workspaces.
type SSHKey struct {
	ID          SSHKeyID
	Tenant      TenantID
	Region      RegionID
	Principal   PrincipalID
	Name        string // unique among its principal's
	Fingerprint string // SHA256:…, unique
	PublicKey   string // one line, without a comment
	Created     time.Time
}

// DriverName names a way to make instances.
type DriverName string

// DriverGVisor is the embedded default driver.
const DriverGVisor DriverName = "gvisor"

// Shape is what an instance may use. Sizes are bytes.
type Shape struct {
	VCPUs     int   `json:"vcpus"`
	Memory    int64 `json:"memory"`
	Disk      int64 `json:"disk"`
	Processes int   `json:"processes"` // guest processes and threads
	OpenFiles int   `json:"open_files"`
}

// Tier is a named shape that work asks for.
type Tier struct {
	Name    string
	Shape   Shape
	Image   string // name of the image used when none is asked for
	Drivers []DriverName
	Classes []Class // empty: every class
	Max     int     // live instances at once; 0: no ceiling
	// MemoryKeep is how long memory images are kept: 0 is the class's window,
	// KeepNothing none.
	MemoryKeep time.Duration
}

// Node is the billet agent on a host, as the control plane last saw it.
type Node struct {
	ID       NodeID
	Tenant   TenantID
	Region   RegionID
	Name     string
	Driver   DriverName
	BootID   string // the kernel's boot id
	Version  string // of billet
	Capacity Capacity
	LastSeen time.Time
	Created  time.Time
}

// Capacity is what a node offers to instances. Sizes are bytes.
type Capacity struct {
	VCPUs  int   `json:"vcpus"`
	Memory int64 `json:"memory"`
	Disk   int64 `json:"disk"`
}

// Desired is what the owner of a workspace wants of it.
type Desired string

// The desired states of a workspace.
const (
	DesiredRunning Desired = "running"
	// DesiredHibernated is stopped with the memory kept, where that can be.
	DesiredHibernated Desired = "hibernated"
	DesiredStopped    Desired = "stopped"
	DesiredDeleted    Desired = "deleted"
)

// KeepNothing is a decay window of none: memory is not kept at all.
const KeepNothing time.Duration = -1

// Workspace is a durable artefact: state and a pointer to its newest snapshot.
// It has no host (seed 002, decision 1).
type Workspace struct {
	ID      WorkspaceID
	Tenant  TenantID
	Region  RegionID
	Owner   PrincipalID
	Name    string
	Class   Class
	Tier    string
	Shape   Shape // copied from the tier when the workspace was made
	Image   string
	Base    Root // the root it was made from: an image generation's or a fork's
	Head    Root // its newest durable root; Base until the first commit
	HeadSeq Seq
	HeadAt  time.Time // when Head became durable
	Memory  Memory    // taken at Head, of this workspace or the one it was forked from
	Epoch   Epoch     // the counter of this subject: the epoch of its newest instance
	Desired Desired
	// Failure is the cause of the newest instance's unasked end, "" when it
	// has been started again or never failed. While it is set, nothing starts
	// the workspace but an explicit request.
	Failure Cause
	Created time.Time
	Updated time.Time
}

// SubjectKind says what an instance runs for.
type SubjectKind string

// The kinds of subjects.
const (
	SubjectWorkspace SubjectKind = "workspace"
	SubjectJob       SubjectKind = "job"
	SubjectPrebuild  SubjectKind = "prebuild"
	SubjectProbe     SubjectKind = "probe"
)

// Instance is one guest on one node, for one subject, under one lease and
// epoch.
type Instance struct {
	ID          InstanceID
	Tenant      TenantID
	Region      RegionID
	Node        NodeID
	Driver      DriverName
	Shape       Shape
	SubjectKind SubjectKind
	Subject     SubjectID
	Epoch       Epoch
	State       InstanceState
	Desired     InstanceDesired
	Cause       Cause // why it ended or failed
	Detail      string
	Phases      []Phase
	LeaseUntil  time.Time
	Created     time.Time
	Updated     time.Time
}

// Phase is a named step of an instance's way, with the time it was reached.
type Phase struct {
	Name   string    `json:"name"`
	At     time.Time `json:"at"`
	Detail string    `json:"detail,omitempty"` // what is worth knowing of it
}

// Snapshot is an immutable, durable volume root of a workspace.
type Snapshot struct {
	ID        SnapshotID
	Tenant    TenantID
	Region    RegionID
	Workspace WorkspaceID
	Root      Root
	Parent    Root
	Epoch     Epoch
	Seq       Seq
	// Consistency is "crash" or "frozen" (storage.md, root metadata).
	Consistency string
	// Bytes that this snapshot added to the object store, and the bytes of
	// guest pages that it made durable.
	StoredBytes  int64
	WrittenBytes int64
	Created      time.Time
	Memory       Memory // taken at Root
}

// Image is a named base disk; Head is its newest generation.
type Image struct {
	ID     ImageID
	Tenant TenantID
	Region RegionID
	// Owner is the user who made it; "" when an admin or the node itself did.
	Owner   PrincipalID
	Name    string
	Head    GenerationID
	Created time.Time
	Updated time.Time
}

// ImageGeneration is one immutable version of an image.
type ImageGeneration struct {
	ID          GenerationID
	Tenant      TenantID
	Region      RegionID
	Image       ImageID
	Root        Root
	Source      string // what it was made from, for people
	DiskBytes   int64  // size of the device
	UsedBytes   int64  // bytes of non-zero blocks
	StoredBytes int64  // bytes added to the object store
	Created     time.Time
}

// FlushIntent pins a base root while a node uploads on top of it.
type FlushIntent struct {
	ID       IntentID
	Tenant   TenantID
	Region   RegionID
	Instance InstanceID
	Subject  SubjectID
	Epoch    Epoch
	Base     Root
	Seq      Seq // the sequence number the commit will take
	Started  time.Time
	Expires  time.Time
}

// Event is one line of a deployment's history; Seq orders them.
type Event struct {
	Seq         int64
	Tenant      TenantID
	Region      RegionID
	At          time.Time
	Actor       PrincipalID // "" for the control plane itself
	Kind        string      // noun.verb, such as workspace.created
	SubjectKind string
	Subject     string // id of what it is about
	Data        map[string]string
}
