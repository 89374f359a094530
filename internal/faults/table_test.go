//go:build failpoint

package faults

import "github.com/billethq/billet/internal/failpoint"

// process is what is killed.
type process string

const (
	killServer process = "server"
	killNode   process = "node"
	killVolume process = "volume"
	killRunsc  process = "runsc" // the sandbox's process
	killUp     process = "up"    // server, gateway and node at once, which "billet up" has in one process
)

func processes() []process { return []process{killServer, killNode, killVolume, killRunsc, killUp} }

// fate is what becomes of the workspace after a kill, without anybody asking
// for anything.
type fate struct {
	want outcome
	why  string // of a case that does not exist
}

type outcome int

const (
	nothing   outcome = iota
	goesOn            // what had been begun comes to its end: it runs, or it is stopped
	restarts          // the guest is started again on the disk as it was: it runs, or is stopped
	fails             // the workspace has failed, with cause killed
	endsAsOne         // the guest's end and the wish to stop it meet: stopped, or failed with cause killed
)

func only(o outcome) fate    { return fate{want: o} }
func noCase(why string) fate { return fate{why: why} }
func (f fate) exists() bool  { return f.want != nothing }

// row is one step with what each process's death there leads to.
type row struct {
	step                        failpoint.Step
	server, node, volume, runsc fate
}

// of returns what the death of p leads to. For control plane and node that are
// gone together, everything waits.
func (r row) of(p process) fate {
	return map[process]fate{
		killServer: r.server, killNode: r.node, killVolume: r.volume, killRunsc: r.runsc, killUp: only(goesOn),
	}[p]
}

// table has one row for each step.
func table() []row {
	noVolume := noCase("no volume process has been started yet")
	noGuest := noCase("no sandbox has been started yet")
	endedVolume := noCase("the volume process has ended already")
	endedGuest := noCase("the sandbox has ended already")
	on, again, failed, one := only(goesOn), only(restarts), only(fails), only(endsAsOne)
	return []row{
		{failpoint.CreateCommitted, on, on, noVolume, noGuest},
		{failpoint.CreatePlaced, on, on, noVolume, noGuest},
		{failpoint.CreateAccepted, on, on, noVolume, noGuest},
		{failpoint.CreateVolume, on, on, on, noGuest},
		{failpoint.CreateMounted, on, on, on, noGuest},
		{failpoint.CreateGuest, on, on, again, failed},
		{failpoint.CreateAttached, on, on, again, failed},
		{failpoint.FlushIntent, on, on, again, failed},
		{failpoint.FlushFrozen, on, on, again, failed},
		{failpoint.FlushSealed, on, on, again, failed},
		{failpoint.FlushBlocks, on, on, again, failed},
		{failpoint.FlushRoot, on, on, again, failed},
		{failpoint.FlushUncommitted, on, on, again, failed},
		{failpoint.FlushCommitted, on, on, again, failed},
		{failpoint.FlushDropped, on, on, again, failed},
		{failpoint.StopRecorded, on, on, on, one},
		{failpoint.StopAccepted, on, on, on, one},
		{failpoint.StopGuestEnded, on, on, on, endedGuest},
		{failpoint.StopUnmounted, on, on, on, endedGuest},
		{failpoint.StopSaved, on, on, endedVolume, endedGuest},
		{failpoint.StopReported, on, on, endedVolume, endedGuest},
		{failpoint.StopCleaned, on, on, endedVolume, endedGuest},
		// A disk that is lost under a guest ends it, and there is no memory to
		// keep: it is stopped. Once memory and disk are committed, nothing is lost.
		{failpoint.HibernatePaused, on, on, again, one},
		{failpoint.HibernateMemory, on, on, again, one},
		{failpoint.HibernateCaptured, on, on, again, one},
		// Its disk dies as it commits: whichever is heard of first, it is stopped.
		{failpoint.HibernateUploaded, on, on, on, one},
		{failpoint.HibernateCommitted, on, on, on, one},
		{failpoint.ResumeLoaded, on, on, again, noGuest},
		{failpoint.ResumeRestored, on, on, again, failed},
	}
}
