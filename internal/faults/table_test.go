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
)

func processes() []process { return []process{killServer, killNode, killVolume, killRunsc} }

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

func only(o outcome) fate       { return fate{want: o} }
func noCase(why string) fate    { return fate{why: why} }
func (f fate) exists() bool     { return f.want != nothing }
func (r row) of(p process) fate { return r.fates[p] }
func fates(server, node, volume, runsc fate) map[process]fate {
	return map[process]fate{killServer: server, killNode: node, killVolume: volume, killRunsc: runsc}
}

// row is one step with what each process's death there leads to.
type row struct {
	step  failpoint.Step
	fates map[process]fate
}

// table has one row for each step.
func table() []row {
	noVolume := noCase("no volume process has been started yet")
	noGuest := noCase("no sandbox has been started yet")
	endedVolume := noCase("the volume process has ended already")
	endedGuest := noCase("the sandbox has ended already")
	on, again, failed, one := only(goesOn), only(restarts), only(fails), only(endsAsOne)
	return []row{
		{failpoint.CreateCommitted, fates(on, on, noVolume, noGuest)},
		{failpoint.CreatePlaced, fates(on, on, noVolume, noGuest)},
		{failpoint.CreateAccepted, fates(on, on, noVolume, noGuest)},
		{failpoint.CreateVolume, fates(on, on, on, noGuest)},
		{failpoint.CreateMounted, fates(on, on, on, noGuest)},
		{failpoint.CreateGuest, fates(on, on, again, failed)},
		{failpoint.CreateAttached, fates(on, on, again, failed)},
		{failpoint.FlushIntent, fates(on, on, again, failed)},
		{failpoint.FlushFrozen, fates(on, on, again, failed)},
		{failpoint.FlushSealed, fates(on, on, again, failed)},
		{failpoint.FlushBlocks, fates(on, on, again, failed)},
		{failpoint.FlushRoot, fates(on, on, again, failed)},
		{failpoint.FlushUncommitted, fates(on, on, again, failed)},
		{failpoint.FlushCommitted, fates(on, on, again, failed)},
		{failpoint.FlushDropped, fates(on, on, again, failed)},
		{failpoint.StopRecorded, fates(on, on, on, one)},
		{failpoint.StopAccepted, fates(on, on, on, one)},
		{failpoint.StopGuestEnded, fates(on, on, on, endedGuest)},
		{failpoint.StopUnmounted, fates(on, on, on, endedGuest)},
		{failpoint.StopSaved, fates(on, on, endedVolume, endedGuest)},
		{failpoint.StopReported, fates(on, on, endedVolume, endedGuest)},
		{failpoint.StopCleaned, fates(on, on, endedVolume, endedGuest)},
	}
}
