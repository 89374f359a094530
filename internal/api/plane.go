package api

import (
	"context"
	"crypto/ed25519"
	"time"

	"github.com/billethq/billet/internal/model"
)

// Plane is everything a node says to the control plane. The HTTP client and
// the control plane itself both implement it, so that a node runs the same
// over a network, in one process, and in the simulator.
//
// Sync is level-triggered: a node posts what it sees, the answer is what
// should be. It blocks until the desired state differs from what the request
// says the node already has (Have), or until Wait has passed; it then answers
// with the present generation all the same. Calls may be repeated.
type Plane interface {
	Sync(ctx context.Context, req SyncRequest) (SyncResponse, error)
	// BeginFlush issues the intent that pins the base of an upload.
	// errs.Stale: the instance has been overtaken; keep the overlay, end the
	// guest, never retry under another epoch.
	BeginFlush(ctx context.Context, req BeginFlushRequest) (BeginFlushResponse, error)
	// CommitFlush makes an uploaded root the head of its subject. A repeated
	// commit of the same root succeeds. errs.Stale as above.
	CommitFlush(ctx context.Context, req CommitFlushRequest) (CommitFlushResponse, error)
	// CommitGeneration records an uploaded image generation and makes it the
	// head of its image, creating the image by name if need be. errs.Denied when
	// the image has another owner by now.
	CommitGeneration(ctx context.Context, req CommitGenerationRequest) (Image, error)
}

// SyncRequest is a node's whole view.
type SyncRequest struct {
	Node      model.NodeID       `json:"node"`
	Name      string             `json:"name"`
	BootID    string             `json:"boot_id"`
	Version   string             `json:"version"`
	Driver    model.DriverName   `json:"driver"`
	Capacity  model.Capacity     `json:"capacity"`
	Machine   string             `json:"machine,omitempty"` // fingerprint: whose memory it can restore
	Observed  []ObservedInstance `json:"observed"`
	Have      model.Generation   `json:"have"`
	WaitMilli int64              `json:"wait_ms"` // at most 60000
	// Life names this process of the node, and Report numbers what it reports,
	// rising: one that was given up may be heard after the next.
	Life   string `json:"life,omitempty"`
	Report uint64 `json:"report,omitempty"`
}

// ObservedInstance is what a node sees of one instance.
type ObservedInstance struct {
	ID     model.InstanceID    `json:"id"`
	Epoch  model.Epoch         `json:"epoch"`
	State  model.InstanceState `json:"state"` // starting, running, stopping or ended
	Cause  model.Cause         `json:"cause,omitempty"`
	Detail string              `json:"detail,omitempty"`
	Phases []model.Phase       `json:"phases,omitempty"`
	Base   model.Root          `json:"base,omitempty"` // the durable root it stands on
	// UnsavedBytes are guest pages not yet durable in the object store.
	UnsavedBytes int64 `json:"unsaved_bytes"`
	// Flushed is the newest DesiredInstance.Flush that has been met.
	Flushed uint64 `json:"flushed,omitempty"`
	// DurableAge: everything that was written up to so long ago is durable; in
	// nanoseconds, 0 is unknown. No time of day, which is another one on every
	// host.
	DurableAge time.Duration `json:"durable_age,omitempty"`
	// FlushError is why the last flush did not end well, "" when it did.
	FlushError string `json:"flush_error,omitempty"`
}

// SyncResponse is what a node is told.
type SyncResponse struct {
	Generation model.Generation  `json:"generation"`
	Instances  []DesiredInstance `json:"instances"`
	Projection Projection        `json:"projection"`
}

// DesiredInstance is what should be of one instance.
type DesiredInstance struct {
	ID          model.InstanceID      `json:"id"`
	Desired     model.InstanceDesired `json:"desired"`
	Epoch       model.Epoch           `json:"epoch"`
	Tenant      model.TenantID        `json:"tenant"`
	SubjectKind model.SubjectKind     `json:"subject_kind"`
	Subject     model.SubjectID       `json:"subject"`
	Name        string                `json:"name"` // the guest's host name
	Shape       model.Shape           `json:"shape"`
	Root        model.Root            `json:"root"` // the durable root to stand on
	Seq         model.Seq             `json:"seq"`  // of Root
	// Flush numbers the newest wish for a flush, so that somebody may build on
	// what was written until now; 0 is none. FlushMemory asks for the guest's
	// memory with it.
	Flush       uint64 `json:"flush,omitempty"`
	FlushMemory bool   `json:"flush_memory,omitempty"`
	// Memory is the memory image that was taken at Root, "" when there is none:
	// the guest goes on from it, unless the node finds that it cannot. Fork says
	// that it is another workspace's.
	Memory model.Root `json:"memory,omitempty"`
	Fork   bool       `json:"fork,omitempty"`
}

// Projection is the policy a node needs to act alone.
type Projection struct {
	Deployment string `json:"deployment"`
	// DomainKeys key the content hash of each dedup domain. Secret: a node
	// keeps them in files of mode 0600 only.
	DomainKeys []model.DomainKey `json:"domain_keys"`
	Gateways   []Gateway         `json:"gateways"`
	// SessionTicket opens the node's own sessions with the gateways.
	SessionTicket string `json:"session_ticket"`
	// TicketKey verifies tickets that control signed.
	TicketKey  ed25519.PublicKey `json:"ticket_key"`
	FlushEvery time.Duration     `json:"flush_every"` // nanoseconds
	StopGrace  time.Duration     `json:"stop_grace"`  // nanoseconds
}

// Gateway is where a node keeps an outgoing session.
type Gateway struct {
	Name string `json:"name"`
	URL  string `json:"url"` // http://host:port or unix:///path
}

// BeginFlushRequest asks for an intent.
type BeginFlushRequest struct {
	Node     model.NodeID     `json:"node"`
	Instance model.InstanceID `json:"instance"`
	Epoch    model.Epoch      `json:"epoch"`
	Base     model.Root       `json:"base"`
	// Pending is a root that the instance uploaded on Base and whose commit it
	// does not know, "" when there is none.
	Pending model.Root `json:"pending,omitempty"`
}

// BeginFlushResponse is the intent: everything that goes into the new root's
// metadata comes from here, so that a repeated upload gives the same root.
type BeginFlushResponse struct {
	// Committed: Pending is the head already, and there is no intent.
	Committed bool           `json:"committed"`
	Intent    model.IntentID `json:"intent,omitempty"`
	Seq       model.Seq      `json:"seq"`
	Started   time.Time      `json:"started"`
	Expires   time.Time      `json:"expires"`
}

// CommitFlushRequest makes Root the head.
type CommitFlushRequest struct {
	Node         model.NodeID     `json:"node"`
	Instance     model.InstanceID `json:"instance"`
	Epoch        model.Epoch      `json:"epoch"`
	Intent       model.IntentID   `json:"intent"`
	Base         model.Root       `json:"base"`
	Root         model.Root       `json:"root"`
	Seq          model.Seq        `json:"seq"`
	Consistency  string           `json:"consistency"`
	StoredBytes  int64            `json:"stored_bytes"`
	WrittenBytes int64            `json:"written_bytes"`
	// Memory was taken at Root, which may then be Base itself.
	Memory *CommitMemory `json:"memory,omitempty"`
}

// CommitMemory is a memory image that goes into a snapshot.
type CommitMemory struct {
	Root    model.Root `json:"root"`
	Machine string     `json:"machine"` // fingerprint
	Bytes   int64      `json:"bytes"`
}

// CommitFlushResponse names the snapshot.
type CommitFlushResponse struct {
	Snapshot model.SnapshotID `json:"snapshot"`
}

// CommitGenerationRequest records an image generation.
type CommitGenerationRequest struct {
	Node        model.NodeID   `json:"node"`
	Tenant      model.TenantID `json:"tenant"`
	Image       string         `json:"image"`
	Root        model.Root     `json:"root"`
	Source      string         `json:"source"`
	DiskBytes   int64          `json:"disk_bytes"`
	UsedBytes   int64          `json:"used_bytes"`
	StoredBytes int64          `json:"stored_bytes"`
	// Principal made it and Owner may replace it, as the ticket said; both ""
	// for what the node made by itself.
	Principal model.PrincipalID `json:"principal,omitempty"`
	Owner     model.PrincipalID `json:"owner,omitempty"`
}
