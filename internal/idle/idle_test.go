package idle

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

const (
	window   = 30 * time.Minute
	jobCap   = 4 * time.Hour
	interval = 15 * time.Second
)

var policy = Policy{Window: window, JobCap: jobCap}

// per is what a counter adds in one interval of the tests.
type per struct {
	calls, ports, disk, egress int64
	cpu                        time.Duration
}

// after plays the same interval again and again for d.
func after(w Watch, d time.Duration, p per, jobs func(i int64) []Job) Watch {
	for end := w.at + d; w.at < end; {
		s := Sample{At: w.at + interval, Counters: w.counters}
		s.Counters.Calls += p.calls
		s.Counters.Ports += p.ports
		s.Counters.CPU += p.cpu
		s.Counters.Disk += p.disk
		s.Counters.Egress += p.egress
		if jobs != nil {
			s.Told, s.Jobs = true, jobs(int64(s.At/interval))
		}
		w = w.Add(s)
	}
	return w
}

func building(i int64) []Job { return []Job{{ID: "7", Name: "make", Ticks: i}} }
func sleeping(int64) []Job   { return []Job{{ID: "7", Name: "sleep 3600", Ticks: 3}} }

func TestJudge_WhatIsWork(t *testing.T) {
	for name, c := range map[string]struct {
		per   per
		jobs  func(int64) []Job
		awake bool
		by    Signal
		keep  Keep
	}{
		"nothing":                            {},
		"an idle guest":                      {per: per{cpu: 60 * time.Millisecond, disk: 40 << 10}},
		"a key in each interval":             {per: per{calls: 1}, awake: true, by: Input},
		"an idle tab's open socket":          {per: per{ports: 600}},
		"a page in use":                      {per: per{ports: 8 << 10}, awake: true, by: Ports},
		"a clock in a forgotten terminal":    {per: per{cpu: 300 * time.Millisecond, egress: 15 * 120}},
		"a full-screen program that redraws": {per: per{cpu: 600 * time.Millisecond, egress: 15 * 4 << 10}},
		"a compiler":                         {per: per{cpu: 14 * time.Second}, awake: true, by: CPU},
		"a tenth of a processor":             {per: per{cpu: 1500 * time.Millisecond}, awake: true, by: CPU},
		"a copy":                             {per: per{disk: 30 << 20}, awake: true, by: Disk},
		"a download from it":                 {per: per{egress: 30 << 20}, awake: true, by: Egress},
		"a job that sleeps":                  {per: per{cpu: 60 * time.Millisecond}, jobs: sleeping},
		"a job that sleeps in a busy guest":  {per: per{cpu: 900 * time.Millisecond}, jobs: sleeping},
		"a job that only says that it works": {per: per{cpu: 60 * time.Millisecond}, jobs: building},
		"a job that waits for a slow test":   {per: per{cpu: 600 * time.Millisecond}, jobs: building, awake: true, keep: KeepJob},
		"a job that writes now and then":     {per: per{disk: 400 << 10}, jobs: building, awake: true, keep: KeepJob},
	} {
		t.Run(name, func(t *testing.T) {
			w := after(Begin(Sample{}), time.Hour, c.per, c.jobs)
			v := w.Judge(policy, w.At())
			if v.Idle == c.awake || v.Keep != c.keep {
				t.Errorf("got %+v, want awake %v by %q, kept by %q", v, c.awake, c.by, c.keep)
			}
			if c.by != "" && (v.By != c.by || v.Active != w.At()) {
				t.Errorf("got activity of %s at %v, want of %s now", v.By, v.Active, c.by)
			}
		})
	}
}

func TestJudge_Deadline(t *testing.T) {
	quiet := after(Begin(Sample{At: time.Minute}), 40*time.Minute, per{}, nil)
	worked := after(Begin(Sample{At: time.Minute}), 40*time.Minute, per{cpu: 600 * time.Millisecond}, building)
	long := after(Begin(Sample{At: time.Minute}), jobCap+window+time.Minute, per{cpu: 600 * time.Millisecond}, building)
	for name, c := range map[string]struct {
		watch Watch
		p     Policy
		at    time.Duration
		holds []Hold
		want  Verdict
	}{
		"before": {watch: quiet, p: policy, at: 30 * time.Minute, want: Verdict{Active: time.Minute, By: Input, Deadline: 31 * time.Minute}},
		"at":     {watch: quiet, p: policy, at: 31 * time.Minute, want: Verdict{Active: time.Minute, By: Input, Deadline: 31 * time.Minute, Idle: true, Past: KeepDelay}},
		"off":    {watch: quiet, at: 9 * time.Hour, want: Verdict{Active: time.Minute, By: Input, Deadline: time.Minute}},
		"held": {watch: quiet, p: policy, at: 40 * time.Minute, holds: []Hold{{KeepHold, time.Hour}},
			want: Verdict{Active: time.Minute, By: Input, Deadline: time.Hour, Keep: KeepHold, Past: KeepHold}},
		"held, and let go": {watch: quiet, p: policy, at: time.Hour, holds: []Hold{{KeepHold, time.Hour}},
			want: Verdict{Active: time.Minute, By: Input, Deadline: time.Hour, Keep: KeepHold, Idle: true, Past: KeepDelay}},
		"a hold that ends sooner": {watch: quiet, p: policy, at: 20 * time.Minute, holds: []Hold{{KeepHold, 25 * time.Minute}},
			want: Verdict{Active: time.Minute, By: Input, Deadline: 31 * time.Minute}},
		"the longer of two": {watch: quiet, p: policy, at: 40 * time.Minute, holds: []Hold{{KeepHold, 50 * time.Minute}, {KeepBackoff, time.Hour}},
			want: Verdict{Active: time.Minute, By: Input, Deadline: time.Hour, Keep: KeepBackoff, Past: KeepBackoff}},
		"a job": {watch: worked, p: policy, at: 41 * time.Minute,
			want: Verdict{Active: time.Minute, By: Input, Deadline: 71 * time.Minute, Keep: KeepJob, Job: "make", Past: KeepJob}},
		"a job beyond the cap": {watch: long, p: policy, at: long.At(),
			want: Verdict{Active: time.Minute, By: Input, Deadline: time.Minute + jobCap + window, Keep: KeepJob, Job: "make", Idle: true, Past: KeepDelay}},
		"a job without a cap to speak of": {watch: worked, p: Policy{Window: window}, at: 41 * time.Minute,
			want: Verdict{Active: time.Minute, By: Input, Deadline: 31 * time.Minute, Idle: true, Past: KeepDelay}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, c.watch.Judge(c.p, c.at, c.holds...)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// A counter that falls belongs to another process: what the first one counted
// last is not known.
func TestAdd_CounterBegunAnewIsActivity(t *testing.T) {
	w := Begin(Sample{Counters: Counters{Disk: 1 << 30}}).Add(Sample{At: time.Minute})
	if v := w.Judge(policy, time.Minute); v.Active != time.Minute || v.By != Disk {
		t.Errorf("got %+v", v)
	}
}

func TestAdd_TooSoonIsLeftForTheNext(t *testing.T) {
	w := Begin(Sample{}).Add(Sample{At: time.Millisecond, Counters: Counters{CPU: time.Millisecond}})
	if v := w.Judge(policy, time.Minute); v.Active != 0 {
		t.Errorf("a burst of a millisecond is activity: %+v", v)
	}
	w = w.Add(Sample{At: time.Second, Counters: Counters{CPU: 500 * time.Millisecond}})
	if r := w.Readings()[2]; r.Signal != CPU || r.Rate != 0.5 {
		t.Errorf("got %+v, want half a processor over the whole second", r)
	}
}

// TestJudge_Bounds: whatever a guest does and its agent says, it sleeps no
// earlier than a window after the newest activity, and no later than the cap
// beyond that; only a hold is later.
func TestJudge_Bounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := Policy{
			Window: time.Duration(rapid.IntRange(1, 3600).Draw(t, "window")) * time.Second,
			JobCap: time.Duration(rapid.IntRange(0, 7200).Draw(t, "cap")) * time.Second,
		}
		w := Begin(Sample{})
		var active time.Duration
		var c Counters
		for range rapid.IntRange(0, 60).Draw(t, "samples") {
			took := time.Duration(rapid.IntRange(200, 120_000).Draw(t, "took")) * time.Millisecond
			busy := rapid.Bool().Draw(t, "busy")
			if share := rapid.Float64Range(0, 0.0799).Draw(t, "share"); busy {
				c.CPU += took
			} else {
				c.CPU += time.Duration(share * float64(took))
			}
			s := Sample{At: w.At() + took, Counters: c, Told: rapid.Bool().Draw(t, "told")}
			for i := range rapid.IntRange(0, 3).Draw(t, "jobs") {
				s.Jobs = append(s.Jobs, Job{ID: string(rune('a' + i)), Ticks: rapid.Int64().Draw(t, "ticks"), Output: rapid.Int64().Draw(t, "output")})
			}
			if busy {
				active = s.At
			}
			w = w.Add(s)
		}
		at := w.At() + time.Duration(rapid.IntRange(0, 20_000).Draw(t, "later"))*time.Second
		v := w.Judge(p, at)
		if v.Active != active {
			t.Fatalf("activity at %v, want %v", v.Active, active)
		}
		if v.Deadline < active+p.Window || v.Deadline > active+p.Window+p.JobCap {
			t.Fatalf("deadline %v is not within %v and %v", v.Deadline, active+p.Window, active+p.Window+p.JobCap)
		}
		if v.Idle != (at >= v.Deadline) || (v.Past != KeepNothing) != (at >= active+p.Window) {
			t.Fatalf("at %v: %+v", at, v)
		}
		until := time.Duration(rapid.IntRange(0, 40_000).Draw(t, "hold")) * time.Second
		if h := w.Judge(p, at, Hold{KeepHold, until}); h.Deadline != max(v.Deadline, until) {
			t.Fatalf("held until %v the deadline is %v, want the later of that and %v", until, h.Deadline, v.Deadline)
		}
	})
}
