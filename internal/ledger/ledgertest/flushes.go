package ledgertest

import (
	"time"

	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/ledger"
	"github.com/billethq/billet/internal/model"
)

// testFlush wants heads that follow each other by commits alone, each of which
// may be asked for twice.
// invariant 13, 16
func testFlush(f *fixture) {
	w, in := f.running("one")
	var want []model.Snapshot
	for i, word := range []string{"s1", "s2", "s3"} {
		f.advance(time.Second)
		it := f.newIntent("it"+word, in, w.Head)
		it.Seq = 99 // not the caller's to say
		f.writes(func() error {
			got, err := f.l.BeginFlush(f.ctx, f.m, it)
			it.Seq, it.Started, it.Expires = model.Seq(i+1), f.now(), kept(it.Expires)
			f.same("intent", got, it)
			return err
		}, ledger.EventFlushBegun)
		f.advance(time.Second)
		s := f.snapshot(word, it)
		commit := func() (err error) {
			got, err := f.l.CommitFlush(f.ctx, f.m, it.ID, in.ID, s)
			if s.Created.IsZero() {
				s.Created = f.now()
			}
			f.same("snapshot", got, s)
			return err
		}
		f.writes(commit, ledger.EventFlushCommitted)
		w.Head, w.HeadSeq, w.HeadAt, w.Updated = s.Root, s.Seq, f.now(), f.now()
		f.same("head", must[model.Workspace](f)(f.l.Workspace(f.ctx, mine, "one")), w)
		f.advance(time.Second)
		want = append([]model.Snapshot{s}, want...)
		repeat := f.snapshot("another", it)
		repeat.Root = s.Root
		f.writes(func() error { // the answer was lost: the snapshot made then
			got, err := f.l.CommitFlush(f.ctx, f.m, it.ID, in.ID, repeat)
			f.same("snapshot again", got, want[0])
			return err
		})
		f.same("head again", must[model.Workspace](f)(f.l.Workspace(f.ctx, mine, "one")), w)
	}
	f.refused(errs.Stale, func() error { // only the head is answered again
		return drop(f.l.CommitFlush(f.ctx, f.m, "itgone", in.ID, want[2]))
	})
	f.same("snapshots, newest first", must[[]model.Snapshot](f)(f.l.Snapshots(f.ctx, mine, w.ID)), want)
	f.same("snapshots of another", len(must[[]model.Snapshot](f)(f.l.Snapshots(f.ctx, mine, "none"))), 0)
}

func testBeginFlushRefused(f *fixture) {
	w, in := f.running("one")
	refuse := func(kind errs.Kind, change func(*model.FlushIntent)) {
		f.Helper()
		it := f.newIntent("it", in, w.Head)
		change(&it)
		f.refused(kind, func() error { return drop(f.l.BeginFlush(f.ctx, f.m, it)) })
	}
	refuse(errs.NotFound, func(it *model.FlushIntent) { it.Instance = "none" })
	refuse(errs.Stale, func(it *model.FlushIntent) { it.Epoch++ })
	refuse(errs.Stale, func(it *model.FlushIntent) { it.Base = root("other") })
	f.do(drop(f.l.BeginFlush(f.ctx, f.m, f.newIntent("first", in, w.Head))))
	refuse(errs.Conflict, func(it *model.FlushIntent) { it.ID = id[model.IntentID]("first") })

	job := f.newInstance("job", w, in.Node)
	job.SubjectKind = model.SubjectJob
	job = must[model.Instance](f)(f.l.Place(f.ctx, f.m, job, f.ceiling()))
	refuse(errs.Unsupported, func(it *model.FlushIntent) { it.Instance, it.Epoch = job.ID, job.Epoch })

	f.observe(in, model.StateEnded, model.CauseExited)
	refuse(errs.Stale, func(*model.FlushIntent) {})

	_, fenced := f.running("two")
	f.do(f.l.Fence(f.ctx, f.m, mine, model.SubjectWorkspace, fenced.Subject))
	refuse(errs.Stale, func(it *model.FlushIntent) { it.Instance, it.Epoch = fenced.ID, fenced.Epoch })
	refuse(errs.Stale, func(it *model.FlushIntent) { it.Instance, it.Epoch = fenced.ID, fenced.Epoch+1 })
}

// testCommitFlushRefused wants a stale node to win nothing.
// invariant 3
func testCommitFlushRefused(f *fixture) {
	w, in := f.running("one")
	other, otherIn := f.running("two")
	it := must[model.FlushIntent](f)(f.l.BeginFlush(f.ctx, f.m, f.newIntent("it", in, w.Head)))
	foreign := must[model.FlushIntent](f)(f.l.BeginFlush(f.ctx, f.m, f.newIntent("foreign", otherIn, other.Head)))
	before := must[model.Workspace](f)(f.l.Workspace(f.ctx, mine, "one"))
	refuse := func(kind errs.Kind, intent model.IntentID, instance model.InstanceID, change func(*model.Snapshot)) {
		f.Helper()
		s := f.snapshot("s", it)
		change(&s)
		f.refused(kind, func() error { return drop(f.l.CommitFlush(f.ctx, f.m, intent, instance, s)) })
		f.same("snapshots", len(must[[]model.Snapshot](f)(f.l.Snapshots(f.ctx, mine, w.ID))), 0)
		f.same("head", must[model.Workspace](f)(f.l.Workspace(f.ctx, mine, "one")).Head, before.Head)
	}
	same := func(*model.Snapshot) {}
	refuse(errs.NotFound, it.ID, "none", same)
	refuse(errs.Stale, "none", in.ID, same)
	refuse(errs.Stale, foreign.ID, in.ID, same)
	refuse(errs.Invalid, foreign.ID, otherIn.ID, same) // another workspace's snapshot
	refuse(errs.Stale, it.ID, in.ID, func(s *model.Snapshot) { s.Epoch++ })
	refuse(errs.Stale, it.ID, in.ID, func(s *model.Snapshot) { s.Parent = root("other") })
	refuse(errs.Stale, it.ID, in.ID, func(s *model.Snapshot) { s.Seq++ })

	f.do(f.l.Fence(f.ctx, f.m, mine, model.SubjectWorkspace, in.Subject))
	refuse(errs.Stale, it.ID, in.ID, same)
	refuse(errs.Stale, it.ID, in.ID, func(s *model.Snapshot) { s.Epoch++ }) // never under another epoch
	next := f.place("next", w, f.node("m", 8).ID)
	refuse(errs.Stale, it.ID, in.ID, same)
	refuse(errs.Stale, it.ID, next.ID, func(s *model.Snapshot) { s.Epoch = next.Epoch })

	// What was committed before the fence stays committed for whoever asks again.
	s := f.snapshot("t", foreign)
	f.do(drop(f.l.CommitFlush(f.ctx, f.m, foreign.ID, otherIn.ID, s)))
	f.do(f.l.Fence(f.ctx, f.m, mine, model.SubjectWorkspace, otherIn.Subject))
	f.do(drop(f.l.CommitFlush(f.ctx, f.m, foreign.ID, otherIn.ID, s)))
}

// testCommitFlushState commits in every state that the instance can have come
// to since its flush began.
// invariant 3
func testCommitFlushState(f *fixture) {
	type step func(in model.Instance)
	see := func(s model.InstanceState, c model.Cause) step {
		return func(in model.Instance) { f.observe(in, s, c) }
	}
	tell := func(d model.InstanceDesired) step {
		return func(in model.Instance) { f.do(f.l.SetInstanceDesired(f.ctx, f.m, mine, in.ID, d)) }
	}
	silent := func(model.Instance) {
		f.advance(lease + time.Microsecond)
		f.do(drop(f.l.MarkUnproven(f.ctx, f.m)))
	}
	for word, c := range map[string]struct {
		steps []step
		want  errs.Kind
	}{
		"reserved":     {nil, ""}, // its report may come after its flush
		"starting":     {[]step{see(model.StateStarting, "")}, ""},
		"running":      {[]step{see(model.StateRunning, "")}, ""},
		"told":         {[]step{see(model.StateRunning, ""), tell(model.InstanceStop)}, ""},
		"stopping":     {[]step{tell(model.InstanceStop), see(model.StateStopping, "")}, ""},
		"hibernating":  {[]step{tell(model.InstanceHibernate), see(model.StateStopping, "")}, ""},
		"crashed":      {[]step{see(model.StateRunning, ""), see(model.StateStopping, model.CauseCrashed)}, ""},
		"leaseends":    {[]step{func(model.Instance) { f.advance(lease) }}, ""},
		"leaseended":   {[]step{func(model.Instance) { f.advance(lease + time.Microsecond) }}, errs.Unavailable},
		"unproven":     {[]step{see(model.StateStopping, ""), silent}, errs.Unavailable},
		"heardagain":   {[]step{silent, see(model.StateStopping, "")}, ""},
		"ended":        {[]step{see(model.StateEnded, model.CauseStopped)}, errs.Stale},
		"endedsilent":  {[]step{silent, see(model.StateEnded, model.CauseStopped)}, errs.Stale},
		"fencedsilent": {[]step{silent, func(in model.Instance) { f.do(f.l.Fence(f.ctx, f.m, mine, in.SubjectKind, in.Subject)) }}, errs.Stale},
	} {
		f.m.Now = start
		w := f.workspace(word)
		in := f.place(word+"i", w, f.node(word+"n", 8).ID)
		it := must[model.FlushIntent](f)(f.l.BeginFlush(f.ctx, f.m, f.newIntent(word, in, w.Head)))
		for _, s := range c.steps {
			s(in)
		}
		_, err := f.l.CommitFlush(f.ctx, f.m, it.ID, in.ID, f.snapshot("s"+word, it))
		head := must[model.Workspace](f)(f.l.Workspace(f.ctx, mine, word)).Head
		if committed := head == root("s"+word); errs.KindOf(err) != c.want || committed != (c.want == "") {
			f.Errorf("%s: got %v (kind %q), committed %t, want kind %q", word, err, errs.KindOf(err), committed, c.want)
		}
	}
}

func testFlushExpiry(f *fixture) {
	w, in := f.running("one")
	it := must[model.FlushIntent](f)(f.l.BeginFlush(f.ctx, f.m, f.newIntent("it", in, w.Head)))
	expire := func(want int, events ...string) {
		f.Helper()
		f.writes(func() error {
			n, err := f.l.ExpireIntents(f.ctx, f.m)
			f.same("expired", n, want)
			return err
		}, events...)
	}
	f.m.Now = it.Expires
	expire(0) // expires now: not before now
	f.advance(time.Microsecond)
	f.renew(in)
	f.refused(errs.Stale, func() error { return drop(f.l.CommitFlush(f.ctx, f.m, it.ID, in.ID, f.snapshot("s", it))) })
	expire(1, ledger.EventFlushExpired)
	expire(0)
	f.m.Now = it.Expires // it is gone, not only late
	f.refused(errs.Stale, func() error { return drop(f.l.CommitFlush(f.ctx, f.m, it.ID, in.ID, f.snapshot("s", it))) })

	again := must[model.FlushIntent](f)(f.l.BeginFlush(f.ctx, f.m, f.newIntent("again", in, w.Head)))
	f.same("number of the next", again.Seq, it.Seq)
	f.m.Now = again.Expires // the last moment
	f.renew(in)
	f.do(drop(f.l.CommitFlush(f.ctx, f.m, again.ID, in.ID, f.snapshot("s", again))))
}
