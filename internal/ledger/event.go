package ledger

// The kinds of events, noun.verb. Everything about an instance is filed under
// the subject it runs for, with the instance's id in the data, so that the
// history of a workspace is one query.
const (
	EventDeploymentCreated = "deployment.created"
	EventPrincipalCreated  = "principal.created"
	EventPrincipalRemoved  = "principal.removed" // with its last token
	EventTokenCreated      = "token.created"
	EventTokenDeleted      = "token.deleted"
	EventSSHKeyAdded       = "ssh_key.added"
	EventSSHKeyRemoved     = "ssh_key.removed"

	EventNodeJoined  = "node.joined"
	EventNodeChanged = "node.changed" // capacity, boot id, version, driver or name
	EventNodeRemoved = "node.removed"

	EventImageCommitted = "image.committed" // a generation became the head
	EventImageDeleted   = "image.deleted"

	EventWorkspaceCreated = "workspace.created"
	EventWorkspaceRenamed = "workspace.renamed"
	EventWorkspaceDesired = "workspace.desired"
	EventWorkspaceFailed  = "workspace.failed"
	EventWorkspaceRemoved = "workspace.removed"

	EventInstancePlaced     = "instance.placed"
	EventInstanceDesired    = "instance.desired"
	EventInstanceMoved      = "instance.moved"      // to another state
	EventInstanceProgressed = "instance.progressed" // same state, new phases, cause or detail
	EventInstanceFenced     = "instance.fenced"
	EventSubjectFenced      = "subject.fenced" // the epoch rose; precedes its instances' events

	EventFlushBegun     = "flush.begun"
	EventFlushCommitted = "flush.committed"
	EventFlushExpired   = "flush.expired"

	EventPortShared   = "port.shared" // until the time in its data
	EventPortUnshared = "port.unshared"

	EventHoldPlaced   = "hold.placed" // until the time in its data, by its actor, and why
	EventHoldReleased = "hold.released"

	EventWorkspaceIdle  = "workspace.idle"  // hibernated because nobody worked in it; the data has the inputs
	EventWorkspaceAwake = "workspace.awake" // such a hibernation failed and was taken back

	EventMemoryExpired = "memory.expired"
	EventMemoryDropped = "memory.dropped"

	EventTermsCreated  = "terms.created"
	EventTermsDeadline = "terms.deadline" // it moved
	EventTermsNetwork  = "terms.network"
	EventTermsPaused   = "terms.paused" // at the deadline
	EventTermsKilled   = "terms.killed" // at the deadline, or on the client's word
	EventTermsRemoved  = "terms.removed"

	EventSnapshotKept      = "snapshot.kept"
	EventSnapshotForgotten = "snapshot.forgotten"
)

// MaxEvents bounds one answer of Events: a reader pages on by sequence number.
const MaxEvents = 1000
