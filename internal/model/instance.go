package model

import (
	"fmt"

	"github.com/billethq/billet/internal/errs"
)

// InstanceState is what the control plane knows of an instance.
type InstanceState string

// The states. A live instance is its subject's present one: everything but
// ended and fenced. Capacity stays charged until the compute is proved gone,
// so that of a fenced one too.
const (
	StateReserved InstanceState = "reserved" // charged; its node has not been seen to act
	StateStarting InstanceState = "starting"
	StateRunning  InstanceState = "running"
	StateStopping InstanceState = "stopping" // guest ending, or its disk being saved
	StateUnproven InstanceState = "unproven" // its node is silent; nobody has proved the compute gone
	StateFenced   InstanceState = "fenced"   // overtaken by a higher epoch; may still waste space
	StateEnded    InstanceState = "ended"    // compute proved gone
)

// InstanceDesired is what a node is told of an instance.
type InstanceDesired string

// What a node can be told. An instance that a node reports and the answer does
// not name counts as InstanceFence.
const (
	InstanceRun  InstanceDesired = "run"  // bring it up, keep it up; never restart it after it failed
	InstanceStop InstanceDesired = "stop" // end the guest, save the disk, commit, report ended
	// InstanceHibernate is stop with the guest's memory kept: it goes on where
	// it was. Until the commit it can be taken back by InstanceRun.
	InstanceHibernate InstanceDesired = "hibernate"
	InstanceDestroy   InstanceDesired = "destroy" // end the guest and remove everything local
	InstanceFence     InstanceDesired = "fence"   // end the guest, keep the overlay aside
)

// instanceTransitions is the one table of legal moves.
var instanceTransitions = map[InstanceState][]InstanceState{
	StateReserved: {StateStarting, StateRunning, StateStopping, StateUnproven, StateFenced, StateEnded},
	StateStarting: {StateRunning, StateStopping, StateUnproven, StateFenced, StateEnded},
	StateRunning:  {StateStarting, StateStopping, StateUnproven, StateFenced, StateEnded},
	StateStopping: {StateUnproven, StateFenced, StateEnded},
	StateUnproven: {StateStarting, StateRunning, StateStopping, StateFenced, StateEnded},
	StateFenced:   {StateEnded},
	StateEnded:    {},
}

// InstanceStates lists every state.
func InstanceStates() []InstanceState {
	return []InstanceState{StateReserved, StateStarting, StateRunning, StateStopping, StateUnproven, StateFenced, StateEnded}
}

// Live reports whether no other instance of the subject may start.
func (s InstanceState) Live() bool { return s != StateEnded && s != StateFenced }

// Charged reports whether the compute may exist, so that its node still pays
// for it.
func (s InstanceState) Charged() bool { return s != StateEnded }

// CheckTransition refuses an illegal move. Staying is always legal.
func CheckTransition(from, to InstanceState) error {
	if from == to {
		return nil
	}
	for _, s := range instanceTransitions[from] {
		if s == to {
			return nil
		}
	}
	return fmt.Errorf("instance %s to %s: %w", from, to, errs.New(errs.Conflict, "illegal transition"))
}

// Cause names why an instance ended. Causes come from what the host measured,
// never from a guess.
type Cause string

// The causes.
const (
	CauseNone             Cause = ""
	CauseStopped          Cause = "stopped"            // it was told to
	CauseExited           Cause = "exited"             // PID 1 of the guest ended by itself
	CauseOutOfMemory      Cause = "out_of_memory"      // the host's memory counter says so
	CauseTooManyProcesses Cause = "too_many_processes" // the host's pids counter says so
	CauseDiskFull         Cause = "disk_full"          // the host's disk under the overlay is full
	CauseCrashed          Cause = "crashed"            // the sandbox panicked; the detail has its log
	CauseKilled           Cause = "killed"             // the sandbox was killed by a signal from outside
	CauseVolumeLost       Cause = "volume_lost"        // the volume process died too often
	CauseVolumeCorrupt    Cause = "volume_corrupt"     // a block did not hash to its name
	CauseStartFailed      Cause = "start_failed"       // it never came up; the detail says which step
	CauseHostRebooted     Cause = "host_rebooted"
	CauseHostGone         Cause = "host_gone" // a person said that its host is gone for good
	CauseFenced           Cause = "fenced"
)
