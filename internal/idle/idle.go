// Package idle decides when nobody works in a guest.
//
// It is pure: a node measures and passes samples in, what comes out is a
// verdict with all that led to it. What a guest cannot forge decides (seed 002,
// decision 10): the calls of its clients, its processor time, its disk and what
// it sends, all measured outside. What its agent says of jobs is advice: it
// counts only while the host's own counters see something move, and for no
// longer than a cap.
//
// Times are offsets from a start that the caller chooses, by a clock that never
// goes back.
package idle

import "time"

// Signal is one thing that a host measures of a guest from outside.
type Signal string

// The signals.
const (
	Input  Signal = "input"  // what clients ask of the guest that is somebody's doing
	Ports  Signal = "ports"  // bytes of clients into ports of the guest
	CPU    Signal = "cpu"    // processor time
	Disk   Signal = "disk"   // bytes of the guest's disk, read and written
	Egress Signal = "egress" // bytes out of the guest
)

// signals is the order in which they are told, and of two that moved last the
// one that is named.
var signals = [...]Signal{Input, Ports, CPU, Disk, Egress}

// Signals lists them in the order in which they are told.
func Signals() []Signal { return append([]Signal(nil), signals[:]...) }

// Threshold is from where on a signal is activity, and from where on it bears
// out what the agent says of a job. Both are rates over one sample.
type Threshold struct {
	Active   float64
	Progress float64 // 0: it says nothing of jobs
	Unit     string
}

// Thresholds of each signal. An idle guest with its agent was measured at
// 0.01 % of a processor and 0 B/s of its disk.
func Thresholds(s Signal) Threshold {
	switch s {
	case Input:
		// One call is enough: a person who types does not do so all the time.
		return Threshold{Active: minRate, Unit: "calls/s"}
	case Ports:
		// What a page sends that somebody uses; a socket that is only kept
		// open sends some bytes now and then.
		return Threshold{Active: 256, Unit: "B/s"}
	case CPU:
		// A shell that prints the time each second was measured at 1.6 %, top
		// at 0.4 %: five times and twice that, for slower machines. A compiler
		// uses all it gets.
		return Threshold{Active: 0.08, Progress: 0.03, Unit: "CPU"}
	case Disk:
		// A file that is written and synced each 5 s was measured at 11 KiB/s,
		// the journal's part included: six times that. A copy is far above.
		return Threshold{Active: 64 << 10, Progress: 16 << 10, Unit: "B/s"}
	case Egress:
		// A full-screen program that redraws each second sends 2 to 4 KiB/s,
		// and nobody may be looking.
		return Threshold{Active: 16 << 10, Progress: 4 << 10, Unit: "B/s"}
	}
	return Threshold{}
}

// minRate is less than one of anything in the longest time between samples.
const minRate = 1e-9

// Counters are what was measured since some start. They only rise; one that
// falls was begun anew, which counts as activity: nobody knows what it missed.
type Counters struct {
	Calls  int64 // Input: calls, and pieces of what is uploaded
	Ports  int64
	CPU    time.Duration
	Disk   int64
	Egress int64
}

// of is the counter of a signal, in its unit.
func (c Counters) of(s Signal) float64 {
	switch s {
	case Input:
		return float64(c.Calls)
	case Ports:
		return float64(c.Ports)
	case CPU:
		return c.CPU.Seconds()
	case Disk:
		return float64(c.Disk)
	case Egress:
		return float64(c.Egress)
	}
	return 0
}

// Job is a foreground job as the guest's agent tells it: a command that a
// client started, or what runs in the foreground of its terminal.
type Job struct {
	ID     string // the same as long as it is the same job
	Name   string // for people
	Ticks  int64  // of processor time, all its processes together
	Output int64  // bytes that it wrote
}

// Sample is what was seen at one moment.
type Sample struct {
	At       time.Duration
	Counters Counters
	// Told says that the agent has answered; Jobs is what it said.
	Told bool
	Jobs []Job
}

// Policy is what a node is told for one instance.
type Policy struct {
	// Window is how long nothing may happen before the guest is idle; 0 or
	// less: it never is.
	Window time.Duration
	// JobCap is how long after the newest activity jobs may keep a guest awake.
	JobCap time.Duration
}
