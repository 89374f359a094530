package idle

import "time"

// Keep names what moves a deadline beyond the window after the newest activity.
type Keep string

// What keeps a guest awake that nobody is seen to work in.
const (
	KeepNothing Keep = ""
	KeepJob     Keep = "job"     // a job that makes progress, up to the cap
	KeepHold    Keep = "hold"    // a person's veto
	KeepBackoff Keep = "backoff" // hibernation has failed lately
	// KeepDelay: nothing. The deadline is over, and whoever could end the guest
	// has not yet.
	KeepDelay Keep = "delay"
)

// Hold is a veto until a moment.
type Hold struct {
	Keep  Keep
	Until time.Duration
}

// Verdict is what a watch amounts to at a moment.
type Verdict struct {
	Active   time.Duration // the newest activity that the host measured
	By       Signal        // what that was
	Deadline time.Duration // when the guest is idle, if nothing more happens
	Keep     Keep          // what has moved the deadline, nothing where activity alone did
	Job      string        // the name of the job, where one did
	Idle     bool          // the deadline has come
	// Past is what keeps the guest awake beyond the window after Active, once
	// that is over.
	Past Keep
}

// Judge says whether the guest is idle at a moment.
//
// Whatever the guest does and says, its deadline is at most Active, the window
// and the cap; only a hold, which the guest cannot make, is later.
func (w Watch) Judge(p Policy, at time.Duration, holds ...Hold) Verdict {
	v := Verdict{}
	v.Active, v.By = w.active()
	v.Deadline = v.Active + p.Window
	due := v.Deadline
	if job := min(w.jobAt, v.Active+max(p.JobCap, 0)); job > v.Active {
		v.Deadline, v.Keep, v.Job = job+p.Window, KeepJob, w.moving
	}
	for _, h := range holds {
		if h.Until > v.Deadline {
			v.Deadline, v.Keep, v.Job = h.Until, h.Keep, ""
		}
	}
	if p.Window <= 0 {
		return v
	}
	v.Idle = at >= v.Deadline
	switch {
	case at < due:
	case v.Idle:
		v.Past = KeepDelay
	default:
		v.Past = v.Keep
	}
	return v
}
