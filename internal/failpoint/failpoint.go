// Package failpoint names the steps at which a test may stop a process, and
// stops it there.
//
// A test arms a step by creating the file $BILLET_FAILPOINTS/<step>. A process
// that reaches an armed step creates <step>.hit beside it, with its process id
// in it, and waits until the first file is gone: meanwhile the test kills what
// it wants to kill. Without the variable a step costs one branch. The variable
// is honoured only in binaries built with the tag "failpoint".
package failpoint

// Step is one place at which a fault can be injected.
type Step string

// The steps of create, flush, stop, hibernate and resume, in the order in which
// they are reached.
// The fault test enumerates Steps × processes and fails on one without a case.
const (
	CreateCommitted  Step = "create.committed"  // server: the workspace is in the ledger
	CreatePlaced     Step = "create.placed"     // server: the instance is reserved, no node has been told
	CreateAccepted   Step = "create.accepted"   // node: the answer is on the node's disk
	CreateVolume     Step = "create.volume"     // volume: the device is served, not yet mounted
	CreateMounted    Step = "create.mounted"    // volume: the file system is mounted, the node does not know
	CreateGuest      Step = "create.guest"      // node: the sandbox has been started
	CreateAttached   Step = "create.attached"   // node: the agent has dialled, control does not know
	FlushIntent      Step = "flush.intent"      // node: the intent is issued
	FlushFrozen      Step = "flush.frozen"      // volume: the file system is frozen
	FlushSealed      Step = "flush.sealed"      // volume: overlay swapped and thawed
	FlushBlocks      Step = "flush.blocks"      // volume: all blocks are stored, no leaf
	FlushRoot        Step = "flush.root"        // volume: the root is stored, the node does not know
	FlushUncommitted Step = "flush.uncommitted" // node: about to commit
	FlushCommitted   Step = "flush.committed"   // server: the head has moved, the node does not know
	FlushDropped     Step = "flush.dropped"     // volume: the sealed overlay is gone
	StopRecorded     Step = "stop.recorded"     // server: desired is stopped, no node has been told
	StopAccepted     Step = "stop.accepted"     // node: the answer is on the node's disk
	StopGuestEnded   Step = "stop.guest_ended"  // node: the sandbox is gone
	StopUnmounted    Step = "stop.unmounted"    // volume: cleanly unmounted, device still open
	StopSaved        Step = "stop.saved"        // node: the last commit is acknowledged
	StopReported     Step = "stop.reported"     // server: ended is in the ledger
	StopCleaned      Step = "stop.cleaned"      // node: everything local is removed

	HibernatePaused    Step = "hibernate.paused"    // node: the guest stands still
	HibernateMemory    Step = "hibernate.memory"    // node: its memory is in local files, the disk not sealed
	HibernateCaptured  Step = "hibernate.captured"  // node: memory and disk are taken, nothing is stored
	HibernateUploaded  Step = "hibernate.uploaded"  // node: both are stored, about to commit
	HibernateCommitted Step = "hibernate.committed" // node: the commit is acknowledged, the guest is there still
	ResumeLoaded       Step = "resume.loaded"       // node: the memory is in local files
	ResumeRestored     Step = "resume.restored"     // node: the sandbox has been restored, nothing is noted
)

// Steps lists every step, in the order above.
func Steps() []Step {
	return []Step{
		CreateCommitted, CreatePlaced, CreateAccepted, CreateVolume, CreateMounted, CreateGuest, CreateAttached,
		FlushIntent, FlushFrozen, FlushSealed, FlushBlocks, FlushRoot, FlushUncommitted, FlushCommitted, FlushDropped,
		StopRecorded, StopAccepted, StopGuestEnded, StopUnmounted, StopSaved, StopReported, StopCleaned,
		HibernatePaused, HibernateMemory, HibernateCaptured, HibernateUploaded, HibernateCommitted, ResumeLoaded, ResumeRestored,
	}
}
