package idle

import (
	"slices"
	"time"
)

// minInterval is the least time between two samples that rates are taken over:
// below it one wake-up of the guest's kernel looks like work.
const minInterval = 200 * time.Millisecond

// Watch is what the samples of one guest have shown so far. It is a value: Add
// returns the next one.
type Watch struct {
	at       time.Duration // of the newest sample
	counters Counters
	rates    [len(signals)]float64
	last     [len(signals)]time.Duration // when it was last active

	jobs   []Job         // of the newest answer
	jobAt  time.Duration // when a job was last seen to move, and the host's counters with it
	moving string        // the name of that job
}

// Begin starts with a guest that counts as active: it was just started, or
// whoever watched it before is gone and may have seen something.
func Begin(s Sample) Watch {
	w := Watch{at: s.At, counters: s.Counters, jobs: slices.Clone(s.Jobs), jobAt: s.At}
	for i := range w.last {
		w.last[i] = s.At
	}
	return w
}

// Add takes the next sample. One that comes too soon is left out, and what it
// counted is in the next.
func (w Watch) Add(s Sample) Watch {
	took := s.At - w.at
	if took < minInterval {
		return w
	}
	for i, signal := range signals {
		delta := s.Counters.of(signal) - w.counters.of(signal)
		w.rates[i] = max(delta, 0) / took.Seconds()
		if delta < 0 || w.rates[i] >= Thresholds(signal).Active {
			w.last[i] = s.At
		}
	}
	w.at, w.counters = s.At, s.Counters
	if !s.Told {
		return w
	}
	if name, moved := w.moved(s.Jobs); moved && w.borneOut() {
		w.jobAt, w.moving = s.At, name
	}
	w.jobs = slices.Clone(s.Jobs)
	return w
}

// moved names a job that has used processor time or written since the answer
// before.
func (w Watch) moved(jobs []Job) (string, bool) {
	for _, j := range jobs {
		at := slices.IndexFunc(w.jobs, func(old Job) bool { return old.ID == j.ID })
		if at >= 0 && (w.jobs[at].Ticks != j.Ticks || w.jobs[at].Output != j.Output) {
			return j.Name, true
		}
	}
	return "", false
}

// borneOut reports whether the host has seen enough move in the newest interval
// for a job to make progress.
func (w Watch) borneOut() bool {
	for i, signal := range signals {
		if p := Thresholds(signal).Progress; p > 0 && w.rates[i] >= p {
			return true
		}
	}
	return false
}

// Reading is the newest of one signal.
type Reading struct {
	Signal Signal
	Rate   float64
	Last   time.Duration // when it was last active
}

// Readings are those of all signals, in their order.
func (w Watch) Readings() []Reading {
	out := make([]Reading, len(signals))
	for i, s := range signals {
		out[i] = Reading{Signal: s, Rate: w.rates[i], Last: w.last[i]}
	}
	return out
}

// Jobs are those of the agent's newest answer.
func (w Watch) Jobs() []Job { return slices.Clone(w.jobs) }

// JobAt is when a job was last seen to move, and Begin's moment before any was.
func (w Watch) JobAt() time.Duration { return w.jobAt }

// At is when the newest sample was taken.
func (w Watch) At() time.Duration { return w.at }

// active is the newest activity that the host measured.
func (w Watch) active() (time.Duration, Signal) {
	at, by := w.last[0], signals[0]
	for i, s := range signals {
		if w.last[i] > at {
			at, by = w.last[i], s
		}
	}
	return at, by
}
