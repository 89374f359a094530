// Package ledger is the records port: everything the control plane knows.
//
// Every method is one transaction that keeps one invariant. The ledger reads
// no clock and makes no id: both come in, so that a test owns them. Each
// mutating method writes its own event in the same transaction, with the
// actor and time of Meta; a call that changes nothing writes none. What a
// method makes or changes is stamped with Meta's time, whatever the value
// passed in says. Times are kept to the microsecond, in UTC; NUL and invalid
// UTF-8 in text come back as U+FFFD. Every record has a tenant and a region.
//
// Whoever asks for a tenant's things says whose, and another tenant's are
// neither read nor changed: they are errs.NotFound, or errs.Conflict where a
// name that is unique in the deployment is taken. Without a tenant are the calls
// that serve every one: what a node reports (its node and epoch guard it), what
// time has ended, and what is counted for the deployment.
//
// Package ledgertest is the conformance suite that each adapter runs.
//
// Errors: errs.NotFound, errs.Conflict (a name is taken, a state forbids it),
// errs.Stale (an epoch, parent or intent was overtaken), errs.Exhausted (no
// capacity, a ceiling reached), errs.Internal for a corrupt store, with a hint.
package ledger

import (
	"context"
	"time"

	"github.com/billethq/billet/internal/model"
)

// Meta says when and by whom; Actor is "" for the control plane itself.
type Meta struct {
	Now   time.Time
	Actor model.PrincipalID
}

// Deployment identifies one control plane and its ledger.
type Deployment struct {
	ID      string
	Created time.Time
}

// AllTenants asks a list for every tenant's: for the control plane itself, never
// for a caller.
const AllTenants model.TenantID = "*"

// Ledger is the port.
type Ledger interface {
	// EnsureDeployment returns the deployment, creating it (and the tenant
	// "default") with the given id when the ledger is new.
	EnsureDeployment(ctx context.Context, m Meta, id string) (Deployment, error)

	// EnsurePrincipal returns the principal of p's name, creating p when there
	// is none; names are unique in the deployment. errs.Conflict when it exists
	// with another class or role, or is another tenant's.
	EnsurePrincipal(ctx context.Context, m Meta, p model.Principal) (model.Principal, error)
	// Principal finds by id; errs.NotFound.
	Principal(ctx context.Context, id model.PrincipalID) (model.Principal, error)
	// AddSSHKey: errs.Conflict when anybody has the key already, or its
	// principal another one of that name.
	AddSSHKey(ctx context.Context, m Meta, k model.SSHKey) error
	// SSHKeys lists by principal and name.
	SSHKeys(ctx context.Context, tenant model.TenantID) ([]SSHKeyRecord, error)
	// SSHKey finds by fingerprint; errs.Unauthenticated when nobody has it.
	SSHKey(ctx context.Context, fingerprint string) (SSHKeyRecord, error)
	RemoveSSHKey(ctx context.Context, m Meta, tenant model.TenantID, id model.SSHKeyID) error
	// CreateToken makes a token of the principal of p's name, and that as
	// EnsurePrincipal does, in one transaction: none is left without the token
	// that was refused. Token names are unique in the deployment.
	CreateToken(ctx context.Context, m Meta, p model.Principal, t model.Token) (model.Principal, error)
	Tokens(ctx context.Context, tenant model.TenantID) ([]TokenRecord, error)
	// DeleteToken takes a name or an id. A principal goes with its last token, and
	// its keys with it: whoever gets a token of that name later is somebody else,
	// of whatever class and role, and owns nothing of it.
	DeleteToken(ctx context.Context, m Meta, tenant model.TenantID, ref string) error
	// TokenByHash finds an unexpired token and its principal, and notes its
	// use, at most once an hour and without an event; what keeps that from
	// being noted keeps nobody out. errs.Unauthenticated when there is none.
	TokenByHash(ctx context.Context, m Meta, hash [32]byte) (TokenRecord, error)

	// SeeNode inserts or updates a node by id. A changed capacity, boot id,
	// version, driver or name is an event; being seen again is not.
	SeeNode(ctx context.Context, m Meta, n model.Node) error
	Nodes(ctx context.Context) ([]model.Node, error)
	// RemoveNode forgets a node: Nodes lists it no more and Place finds it no
	// more. One that is seen again joins anew. errs.NotFound when there is none.
	// While instances are charged to it: errs.Conflict, unless gone, which is a
	// person's word that the host is gone for good and the only proof of an end
	// but the node's own. They then end, and are returned. A live one's subject
	// is fenced in the same transaction, so that nothing it flushes can be
	// committed, and it gets cause and detail; unless it was to be destroyed, its
	// workspace's Failure is that cause and its desired is stopped, unless it is
	// being deleted. Heads stay where they are.
	RemoveNode(ctx context.Context, m Meta, id model.NodeID, gone bool) ([]model.Instance, error)

	// CommitGeneration records g under the image of that name, creating the
	// image img when there is none, and makes g its head. The same root again
	// as the head changes nothing and returns the head. When img has an owner,
	// the image that is there must have the same: errs.Denied. Names are unique
	// in the deployment: errs.Conflict when another tenant has it.
	CommitGeneration(ctx context.Context, m Meta, img model.Image, g model.ImageGeneration) (ImageRecord, error)
	Images(ctx context.Context, tenant model.TenantID) ([]ImageRecord, error)
	// Image finds by name or id, with all generations, newest first.
	Image(ctx context.Context, tenant model.TenantID, ref string) (ImageRecord, []model.ImageGeneration, error)
	// DeleteImage forgets the image and its generations: workspaces made from
	// it keep their roots.
	DeleteImage(ctx context.Context, m Meta, tenant model.TenantID, ref string) error

	// CreateWorkspace inserts w with epoch 0 and its base as head, unless idem
	// names an earlier creation: then that workspace comes back with created
	// false (errs.Conflict when the earlier one had another fingerprint, or is
	// gone). errs.Conflict when the name is taken or the id was ever used.
	CreateWorkspace(ctx context.Context, m Meta, w model.Workspace, idem Idempotency) (got model.Workspace, created bool, err error)
	// Created returns the workspace that idem made before, if any; errs.Conflict
	// as CreateWorkspace.
	Created(ctx context.Context, tenant model.TenantID, idem Idempotency) (w model.Workspace, found bool, err error)
	// Workspace finds by name or id; names are unique in the deployment.
	Workspace(ctx context.Context, tenant model.TenantID, ref string) (model.Workspace, error)
	Workspaces(ctx context.Context, tenant model.TenantID) ([]model.Workspace, error)
	RenameWorkspace(ctx context.Context, m Meta, tenant model.TenantID, id model.WorkspaceID, name string) error
	// SetDesired changes what the owner wants; to running it clears Failure.
	// errs.Conflict once it is deleted, unless it is to be deleted again.
	SetDesired(ctx context.Context, m Meta, tenant model.TenantID, id model.WorkspaceID, d model.Desired) (model.Workspace, error)
	// RemoveWorkspace deletes the record of a workspace that is desired
	// deleted; errs.Conflict while an instance of it is live. Its name is
	// free again, its id never.
	RemoveWorkspace(ctx context.Context, m Meta, tenant model.TenantID, id model.WorkspaceID) error
	// TakeBack undoes CreateWorkspace: the record and the key that made it are
	// gone as if they had never been, so that the same creation can be asked for
	// again. errs.Conflict when the workspace has ever had an instance.
	TakeBack(ctx context.Context, m Meta, tenant model.TenantID, id model.WorkspaceID) error
	// ExpireIdempotency forgets keys used before t.
	ExpireIdempotency(ctx context.Context, before time.Time) error

	// Place charges in.Shape to in.Node and inserts the instance in state
	// reserved under the subject's next epoch, all in one transaction. It
	// refuses: errs.Conflict when the subject has a live instance or is a
	// workspace not desired running (a reconciler with an old view would
	// restart what has just failed), errs.Exhausted when the node lacks the
	// headroom or the tier's Max live instances are reached, errs.NotFound
	// without node, or workspace of in's tenant. Headroom is what instances that have not
	// ended leave: a fenced one is not proved gone. The returned instance has
	// its epoch.
	Place(ctx context.Context, m Meta, in model.Instance, ceiling Ceiling) (model.Instance, error)
	Instance(ctx context.Context, id model.InstanceID) (model.Instance, error)
	// Instances returns those that match, oldest first.
	Instances(ctx context.Context, f InstanceFilter) ([]model.Instance, error)
	// NewestInstance returns the instance of a subject's highest epoch that one
	// was placed under, at a cost that does not grow with its history. When one
	// is live, it is this.
	NewestInstance(ctx context.Context, tenant model.TenantID, kind model.SubjectKind, id model.SubjectID) (in model.Instance, found bool, err error)
	// SetInstanceDesired tells a live instance what should be of it.
	SetInstanceDesired(ctx context.Context, m Meta, tenant model.TenantID, id model.InstanceID, d model.InstanceDesired) error
	// Observe records what its node saw of an instance: state by the
	// transition table, cause, detail (cut to 8 KiB), phases, and the lease
	// renewed, never shortened: observations may arrive out of order. An
	// unasked end (its desired is run) sets the workspace's Failure and its
	// desired to stopped, unless it is being deleted. errs.Invalid for a state
	// that no node can see, errs.Conflict for an illegal transition, errs.Stale
	// when node or epoch do not match; an observation of a fenced or ended
	// instance changes nothing but fenced → ended. changed says whether
	// anything but the lease moved.
	Observe(ctx context.Context, m Meta, o Observation) (changed bool, err error)
	// MarkUnproven moves the live instances whose lease ended before m.Now to
	// unproven and returns them. Their capacity stays charged.
	MarkUnproven(ctx context.Context, m Meta) ([]model.Instance, error)
	// Fence raises the subject's epoch and marks its live instances fenced,
	// desired fence, so that nothing they flush can be committed any more.
	// errs.NotFound for a subject that never was.
	Fence(ctx context.Context, m Meta, tenant model.TenantID, kind model.SubjectKind, id model.SubjectID) error

	// GiveUp leaves an instance of a workspace behind: its epoch rises, the
	// instance is fenced as by Fence, and the workspace is wanted running, all
	// in one transaction: one that is fenced and wanted stopped would have lost
	// its work for nothing. errs.Conflict unless that very instance is live,
	// since nobody was told what another one has not saved, and once the
	// workspace is being deleted.
	GiveUp(ctx context.Context, m Meta, tenant model.TenantID, id model.WorkspaceID, in model.InstanceID) (model.Workspace, error)

	// BeginFlush records an intent of in.Tenant; in.Seq comes back as the subject's head
	// sequence plus one. errs.Stale unless the instance is live, its epoch is
	// the subject's and in.Base is the subject's head; errs.Unsupported for a
	// subject without a head, which is any but a workspace.
	BeginFlush(ctx context.Context, m Meta, in model.FlushIntent) (model.FlushIntent, error)
	// CommitFlush is the commit point of all durable state: it inserts the
	// snapshot and moves the head, and the memory that belongs to it, guarded
	// by epoch, parent root and an unexpired intent of an instance that is live
	// (errs.Stale otherwise), and removes the intent. An instance on its way
	// down is live: its last flush comes then. errs.Unavailable while the lease
	// has ended, which the next observation renews. When the head already is
	// s.Root under s.Epoch and s.Seq it returns the snapshot made then, and
	// changes nothing.
	CommitFlush(ctx context.Context, m Meta, intent model.IntentID, instance model.InstanceID, s model.Snapshot) (model.Snapshot, error)
	// ExpireMemory drops the memory images that were to be kept until before
	// m.Now, and returns of how many snapshots. Nothing else of a snapshot
	// changes.
	ExpireMemory(ctx context.Context, m Meta) (int, error)
	// DropMemory drops one memory image of a workspace, if its head has it
	// still: it turned out to be of no use.
	DropMemory(ctx context.Context, m Meta, tenant model.TenantID, ws model.WorkspaceID, root model.Root) error
	// ExpireIntents removes intents that expired before m.Now.
	ExpireIntents(ctx context.Context, m Meta) (int, error)
	// Snapshots of one workspace, newest first.
	Snapshots(ctx context.Context, tenant model.TenantID, ws model.WorkspaceID) ([]model.Snapshot, error)

	// CreateTerms puts a workspace on terms: before it is made, so that none
	// lives without its deadline. errs.Conflict when it is on some. The terms of
	// a workspace go with it.
	CreateTerms(ctx context.Context, m Meta, k model.Terms) error
	// Terms lists all, oldest first; WorkspaceTerms those of one workspace,
	// errs.NotFound when there are none.
	Terms(ctx context.Context, tenant model.TenantID) ([]model.Terms, error)
	WorkspaceTerms(ctx context.Context, tenant model.TenantID, id model.WorkspaceID) (model.Terms, error)
	// SetDeadline moves the deadline, with extend only to a later time, and
	// notes when the workspace was last started unless began is zero.
	// errs.NotFound without terms, and once it is killed.
	SetDeadline(ctx context.Context, m Meta, tenant model.TenantID, id model.WorkspaceID, deadline, began time.Time, extend bool) (model.Terms, error)
	// SetTermsNetwork replaces the wishes about the network.
	SetTermsNetwork(ctx context.Context, m Meta, tenant model.TenantID, id model.WorkspaceID, network string) error
	// EndTerms sets the workspace's desired, and that it was killed, in one
	// transaction with the look at the deadline: whoever was told that it was
	// extended in time keeps the workspace. ended is false when the deadline
	// has not come, or it was killed before. errs.NotFound without terms or
	// workspace.
	EndTerms(ctx context.Context, m Meta, tenant model.TenantID, id model.WorkspaceID, end model.TermsEnd) (ended bool, err error)
	// RemoveTerms makes a workspace an ordinary one.
	RemoveTerms(ctx context.Context, m Meta, tenant model.TenantID, id model.WorkspaceID) error

	// KeepSnapshot records a state that outlives its workspace; names other
	// than "" are unique in the deployment. KeptSnapshots lists all, oldest first.
	KeepSnapshot(ctx context.Context, m Meta, k model.KeptSnapshot) error
	KeptSnapshots(ctx context.Context, tenant model.TenantID) ([]model.KeptSnapshot, error)
	ForgetSnapshot(ctx context.Context, m Meta, tenant model.TenantID, id model.SnapshotID) error

	// PutShare makes a port of a workspace of s.Tenant public until s.Expires, by m.Actor;
	// a port that is public already gets the new time. errs.Exhausted beyond
	// MaxShares of one workspace, errs.Conflict once it is being deleted.
	PutShare(ctx context.Context, m Meta, s model.Share) (model.Share, error)
	// Shares are those of a workspace that have not expired at m.Now, by port.
	Shares(ctx context.Context, m Meta, tenant model.TenantID, ws model.WorkspaceID) ([]model.Share, error)
	// SharedPort finds one that has not expired by the name of its workspace,
	// whosever that is; errs.NotFound.
	SharedPort(ctx context.Context, m Meta, name string, port int) (model.Share, error)
	// DeleteShare ends one; errs.NotFound when there is none, or it has expired.
	DeleteShare(ctx context.Context, m Meta, tenant model.TenantID, ws model.WorkspaceID, port int) error
	// ExpireShares forgets those that have expired at m.Now.
	ExpireShares(ctx context.Context, m Meta) error

	// PutHold vetoes the hibernation of a workspace of h.Tenant for want of work until h.Expires, by
	// m.Actor; one that is held is held by the new word. errs.Conflict once it is being deleted.
	PutHold(ctx context.Context, m Meta, h model.Hold) (model.Hold, error)
	// DeleteHold ends one; errs.NotFound when there is none, or it has expired.
	DeleteHold(ctx context.Context, m Meta, tenant model.TenantID, ws model.WorkspaceID) error
	// ExpireHolds forgets those that have expired at m.Now.
	ExpireHolds(ctx context.Context, m Meta) error
	// Idleness is what the records of a workspace say about it; nothing of one
	// that is not there.
	Idleness(ctx context.Context, m Meta, tenant model.TenantID, ws model.WorkspaceID) (model.Idleness, error)
	// EndIdle hibernates a workspace in which nobody works, and its instance,
	// and counts that, in one transaction with the look at whatever may have
	// changed since the node has asked: ended is false unless both are to run
	// and do, and while the workspace is held or on terms. errs.Stale unless the
	// instance is its present one under that epoch.
	EndIdle(ctx context.Context, m Meta, tenant model.TenantID, ws model.WorkspaceID, end model.IdleEnd) (ended bool, err error)
	// WakeIdle takes such a hibernation back, because it has failed and the guest
	// runs on. woken is false when it is none any more.
	WakeIdle(ctx context.Context, m Meta, tenant model.TenantID, ws model.WorkspaceID, in model.InstanceID, why string) (woken bool, err error)
	// NoteStretch counts a time that an instance was awake past its window; once
	// by its number. errs.Stale when the epoch does not match.
	NoteStretch(ctx context.Context, m Meta, in model.InstanceID, epoch model.Epoch, s model.IdleStretch) (counted bool, err error)
	// IdleCounts are the counters of a tenant, by name, class and reason.
	IdleCounts(ctx context.Context, tenant model.TenantID) ([]model.IdleCount, error)

	// TierUse counts live instances by tier.
	TierUse(ctx context.Context) (map[string]int, error)

	// Events after seq, oldest first, at most limit and never more than
	// MaxEvents (which limit 0 stands for), of one subject when subject is not
	// "". Sequence numbers are in the order of commits: whoever goes on from
	// the last one it has seen misses none.
	Events(ctx context.Context, tenant model.TenantID, subject string, after int64, limit int) ([]model.Event, error)

	Close() error
}

// MaxShares bounds the ports of one workspace that are public at once.
const MaxShares = 32

// TokenRecord is a token with its principal.
type TokenRecord struct {
	Token     model.Token
	Principal model.Principal
}

// SSHKeyRecord is a public key with its principal.
type SSHKeyRecord struct {
	Key       model.SSHKey
	Principal model.Principal
}

// ImageRecord is an image with its head generation.
type ImageRecord struct {
	Image model.Image
	Head  model.ImageGeneration
}

// Idempotency is a client's key for one creation. An empty Key is none.
type Idempotency struct {
	Key         string
	Principal   model.PrincipalID
	Fingerprint [32]byte // of the request
}

// Ceiling is what Place checks besides the node's headroom.
type Ceiling struct {
	Tier string
	Max  int // live instances of Tier; 0: no ceiling
	// LeaseUntil is the end of the new lease.
	LeaseUntil time.Time
}

// InstanceFilter selects: a tenant's, or AllTenants'. Other zero fields select all.
type InstanceFilter struct {
	Tenant  model.TenantID
	Node    model.NodeID
	Subject model.SubjectID
	Live    bool // only live ones
	Charged bool // only those whose capacity is charged
	Limit   int
}

// Observation is what a node saw of one instance.
type Observation struct {
	Node       model.NodeID
	Instance   model.InstanceID
	Epoch      model.Epoch
	State      model.InstanceState
	Cause      model.Cause
	Detail     string
	Phases     []model.Phase
	LeaseUntil time.Time
}
