package ledgertest

import (
	"time"

	"github.com/billethq/billet/internal/ledger"
	"github.com/billethq/billet/internal/model"
)

// commitWith flushes with a memory image and returns the workspace afterwards.
func (f *fixture) commitWith(word string, in model.Instance, mem model.Memory) (model.Workspace, model.Snapshot) {
	f.Helper()
	w := must[model.Workspace](f)(f.l.Workspace(f.ctx, mine, string(in.Subject)))
	it := must[model.FlushIntent](f)(f.l.BeginFlush(f.ctx, f.m, f.newIntent("it"+word, in, w.Head)))
	s := f.snapshot(word, it)
	s.Memory = mem
	s = must[model.Snapshot](f)(f.l.CommitFlush(f.ctx, f.m, it.ID, in.ID, s))
	return must[model.Workspace](f)(f.l.Workspace(f.ctx, mine, string(in.Subject))), s
}

func (f *fixture) memory(word string, keep time.Duration) model.Memory {
	return model.Memory{Root: root(word), Machine: "m" + word, Bytes: 1 << 20, Until: kept(f.m.Now.Add(keep))}
}

// testMemory wants memory to belong to the disk that it was committed with:
// the next head has its own, or none, and dropping it changes nothing else.
// invariant 13
func testMemory(f *fixture) {
	_, in := f.running("one")
	first, second := f.memory("m1", time.Hour), f.memory("m2", 2*time.Hour)
	w, s1 := f.commitWith("s1", in, first)
	f.same("memory of the head", w.Memory, first)
	w, _ = f.commitWith("s2", in, model.Memory{})
	f.same("memory after a flush without", w.Memory, model.Memory{})
	w, s3 := f.commitWith("s3", in, second)
	f.same("memory of the newest head", w.Memory, second)

	f.writes(func() error { return f.l.DropMemory(f.ctx, f.m, mine, w.ID, root("other")) })
	f.same("memory after another was dropped", must[model.Workspace](f)(f.l.Workspace(f.ctx, mine, "one")).Memory, second)

	f.advance(90 * time.Minute)
	var n int
	f.writes(func() (err error) { n, err = f.l.ExpireMemory(f.ctx, f.m); return err }) // of an old snapshot: nobody's next resume changes
	f.same("expired snapshots", n, 1)
	f.advance(time.Hour)
	f.writes(func() (err error) { n, err = f.l.ExpireMemory(f.ctx, f.m); return err }, ledger.EventMemoryExpired)
	f.same("expired snapshots", n, 1)
	f.writes(func() (err error) { n, err = f.l.ExpireMemory(f.ctx, f.m); return err })
	f.same("expired again", n, 0)

	now := must[model.Workspace](f)(f.l.Workspace(f.ctx, mine, "one"))
	w.Memory = model.Memory{}
	f.same("the workspace but for its memory", now, w)
	all := must[[]model.Snapshot](f)(f.l.Snapshots(f.ctx, mine, w.ID))
	s1.Memory, s3.Memory = model.Memory{}, model.Memory{}
	f.same("the oldest snapshot but for its memory", all[len(all)-1], s1)
	f.same("the newest snapshot but for its memory", all[0], s3)
}

func testMemoryDropped(f *fixture) {
	_, in := f.running("one")
	mem := f.memory("m1", time.Hour)
	w, s := f.commitWith("s1", in, mem)
	f.advance(time.Second)
	f.writes(func() error { return f.l.DropMemory(f.ctx, f.m, mine, w.ID, mem.Root) }, ledger.EventMemoryDropped)
	w.Memory, s.Memory, w.Updated = model.Memory{}, model.Memory{}, f.now()
	f.same("the workspace but for its memory", must[model.Workspace](f)(f.l.Workspace(f.ctx, mine, "one")), w)
	f.same("the snapshot but for its memory", must[[]model.Snapshot](f)(f.l.Snapshots(f.ctx, mine, w.ID))[0], s)
}

// testMemoryForgotten wants a stop that keeps no memory, and a failure, to be
// followed by a boot: what was ended does not come back.
func testMemoryForgotten(f *fixture) {
	for word, end := range map[string]func(model.Workspace, model.Instance){
		"one": func(w model.Workspace, _ model.Instance) {
			w = must[model.Workspace](f)(f.l.SetDesired(f.ctx, f.m, mine, w.ID, model.DesiredStopped))
			f.same("memory in the answer", w.Memory, model.Memory{})
		},
		"two": func(_ model.Workspace, in model.Instance) { f.observe(in, model.StateEnded, model.CauseOutOfMemory) },
	} {
		_, in := f.running(word)
		mem := f.memory("m1", time.Hour)
		w, s := f.commitWith("s"+word, in, mem)
		end(w, in)
		f.same("memory", must[model.Workspace](f)(f.l.Workspace(f.ctx, mine, word)).Memory, model.Memory{})
		f.same("the snapshot's", must[[]model.Snapshot](f)(f.l.Snapshots(f.ctx, mine, w.ID))[0], s)
	}
}

// testMemoryOfAFork wants a fork to begin with the memory of its parent.
func testMemoryOfAFork(f *fixture) {
	fork := f.newWorkspace("fork")
	fork.Memory = f.memory("m1", time.Hour)
	f.do(func() error { _, _, err := f.l.CreateWorkspace(f.ctx, f.m, fork, ledger.Idempotency{}); return err }())
	f.same("memory of a fork", must[model.Workspace](f)(f.l.Workspace(f.ctx, mine, "fork")).Memory, fork.Memory)
}

// testLastFlushRefused wants a stop whose work was kept aside to be no success.
func testLastFlushRefused(f *fixture) {
	for word, d := range map[string]model.InstanceDesired{"one": model.InstanceStop, "two": model.InstanceHibernate} {
		w, in := f.running(word)
		f.do(drop(f.l.SetDesired(f.ctx, f.m, mine, w.ID, model.DesiredStopped)))
		f.do(f.l.SetInstanceDesired(f.ctx, f.m, mine, in.ID, d))
		f.observe(in, model.StateEnded, model.CauseFenced)
		w = must[model.Workspace](f)(f.l.Workspace(f.ctx, mine, word))
		f.same("desired and failure", []any{w.Desired, w.Failure}, []any{model.DesiredStopped, model.CauseFenced})
	}
}

// testHibernate wants an end that was asked for to fail nobody, also when it
// was taken back too late.
func testHibernate(f *fixture) {
	w, in := f.running("one")
	w = must[model.Workspace](f)(f.l.SetDesired(f.ctx, f.m, mine, w.ID, model.DesiredHibernated))
	f.do(f.l.SetInstanceDesired(f.ctx, f.m, mine, in.ID, model.InstanceHibernate))
	f.do(drop(f.l.SetDesired(f.ctx, f.m, mine, w.ID, model.DesiredRunning)))
	f.do(f.l.SetInstanceDesired(f.ctx, f.m, mine, in.ID, model.InstanceRun))
	f.observe(in, model.StateEnded, model.CauseStopped)
	w = must[model.Workspace](f)(f.l.Workspace(f.ctx, mine, "one"))
	f.same("desired and failure", []any{w.Desired, w.Failure}, []any{model.DesiredRunning, model.CauseNone})
}
