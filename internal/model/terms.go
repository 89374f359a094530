package model

import "time"

// Terms are what a client lent a workspace under: until when, what then, and
// what the client wants to find again. A workspace without terms is its
// owner's until it is deleted.
type Terms struct {
	Workspace WorkspaceID
	Tenant    TenantID
	Region    RegionID
	Template  string            // what the client called the image
	Metadata  map[string]string // the client's own words
	Envs      map[string]string // of every command that is started through the client's door
	Began     time.Time         // when it was last started on the client's word
	// Deadline is when the workspace ends: it is killed, or saved and stopped
	// where AutoPause is set. One that is stopped by then is left alone.
	Deadline   time.Time
	AutoPause  bool
	PauseCold  bool   // without the memory
	AutoResume bool   // the client's door starts it again
	Network    string // the client's wishes, as JSON; "" is none
	// Killed is when it was ended for the client, who sees it no more; an
	// operator can still take it back. Zero while it was not.
	Killed  time.Time
	Created time.Time
}

// TermsEnd says how a workspace on terms ends.
type TermsEnd struct {
	Desired Desired // what the workspace is to be: stopped or hibernated
	Kill    bool    // the client sees it no more
	Due     bool    // only if the deadline has come
}

// KeptSnapshot is a durable state that a client asked to keep: it outlives its
// workspace, and others begin from it.
type KeptSnapshot struct {
	ID        SnapshotID
	Tenant    TenantID
	Region    RegionID
	Name      string      // "" for none
	Workspace WorkspaceID // where it was taken
	Class     Class
	Tier      string
	Shape     Shape
	Image     string
	Root      Root
	Memory    Memory
	Terms     Terms // what a workspace that begins from it inherits: template, envs
	Created   time.Time
}
