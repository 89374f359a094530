package model

import "time"

// Hold is a person's veto of hibernation for want of work, until it expires.
type Hold struct {
	Workspace WorkspaceID
	Tenant    TenantID
	Region    RegionID
	Principal PrincipalID
	Reason    string
	Created   time.Time
	Expires   time.Time
}

// MaxHoldReason bounds the words of a hold.
const MaxHoldReason = 200

// SleepReason says why a workspace was hibernated.
type SleepReason string

// The reasons.
const (
	SleepAsked    SleepReason = "asked"    // somebody stopped it
	SleepIdle     SleepReason = "idle"     // nobody worked in it
	SleepDeadline SleepReason = "deadline" // of the terms that it is lent under
)

// Sleep is the newest hibernation of a workspace that is hibernated.
type Sleep struct {
	Workspace WorkspaceID
	Tenant    TenantID
	Region    RegionID
	Reason    SleepReason
	At        time.Time
	Since     time.Time   // of the newest activity, where the reason is idle
	User      PrincipalID // who was in it last
	Detail    string      // for people
}

// Idleness is what the records of a workspace say about it.
type Idleness struct {
	Hold  Hold  // that has not expired; zero: none
	Lent  bool  // on terms: the deadline of its client stands
	Sleep Sleep // zero: it is not hibernated
}

// IdleEnd is what a node asks: the hibernation of an instance in which nobody
// works.
type IdleEnd struct {
	Instance InstanceID
	Epoch    Epoch
	Since    time.Time         // of the newest activity
	User     PrincipalID       // who was in it last
	Detail   string            // for people: what the newest activity was
	Job      bool              // a foreground job runs
	Past     IdleStretch       // how long it was awake past its window; zero: it was not
	Inputs   map[string]string // for the event
}

// IdleStretch is a time in which an instance was awake past its window without
// anybody seen to work.
type IdleStretch struct {
	Number int64 // of an instance's, rising
	Keep   string
	Took   time.Duration
}

// CountName is a counter of hibernations and of how right they were.
type CountName string

// The counters. Reasons of the first are SleepReasons, of the second resumed
// and job, of the third what has kept the workspace awake, of the fourth none.
const (
	CountHibernations CountName = "hibernations"
	CountFalse        CountName = "false_hibernations"
	CountMissed       CountName = "missed_idleness"
	CountFailed       CountName = "failed_hibernations" // for want of work, and taken back
)

// The reasons of CountFalse.
const (
	FalseResumed = "resumed" // by who was in it last, within FalseWithin
	FalseJob     = "job"     // a foreground job was running
)

// FalseWithin is how soon a return shows that a hibernation was wrong.
const FalseWithin = 5 * time.Minute

// IdleCount is one counter of a tenant's class.
type IdleCount struct {
	Name   CountName
	Class  Class
	Reason string
	Count  int64
	Took   time.Duration // together; of CountMissed only
}
