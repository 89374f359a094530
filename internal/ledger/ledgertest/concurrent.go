package ledgertest

import (
	"fmt"
	"sync"
	"time"

	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/ledger"
	"github.com/billethq/billet/internal/model"
)

// racers is how many callers meet; each has its turn on one of two handles, as
// if there were two servers.
const racers = 8

// race lets the callers go at once and returns how many won. All others must
// have been refused with the kind.
func (f *fixture) race(loss errs.Kind, call func(l ledger.Ledger, i int) error) (won int) {
	f.Helper()
	handles := []ledger.Ledger{f.l, f.another()}
	results := make([]error, racers)
	begin := make(chan struct{})
	var wg sync.WaitGroup
	for i := range racers {
		wg.Go(func() {
			<-begin
			results[i] = call(handles[i%len(handles)], i)
		})
	}
	close(begin)
	wg.Wait()
	for i, err := range results {
		switch {
		case err == nil:
			won++
		case !errs.Is(err, loss):
			f.Fatalf("racer %d: got %v (kind %q), want kind %q", i, err, errs.KindOf(err), loss)
		}
	}
	return won
}

// testConcurrentSubject has all of them start one workspace, each on a node of
// its own.
// invariant 4
func testConcurrentSubject(f *fixture) {
	w := f.workspace("one")
	var nodes [racers]model.Node
	for i := range nodes {
		nodes[i] = f.node(fmt.Sprint("n", i), 8)
	}
	f.same("winners", f.race(errs.Conflict, func(l ledger.Ledger, i int) error {
		return drop(l.Place(f.ctx, f.m, f.newInstance(fmt.Sprint("i", i), w, nodes[i].ID), f.ceiling()))
	}), 1)
	f.same("instances", len(must[[]model.Instance](f)(f.l.Instances(f.ctx, ledger.InstanceFilter{Tenant: mine}))), 1)
	f.same("epoch", must[model.Workspace](f)(f.l.Workspace(f.ctx, mine, "one")).Epoch, model.Epoch(1))
}

// placeEach lets every racer place a workspace of its own on one node.
func (f *fixture) placeEach(vcpus int, c ledger.Ceiling) (won int) {
	f.Helper()
	n := f.node("n", vcpus)
	var all [racers]model.Workspace
	for i := range all {
		all[i] = f.workspace(fmt.Sprint("w", i))
	}
	won = f.race(errs.Exhausted, func(l ledger.Ledger, i int) error {
		return drop(l.Place(f.ctx, f.m, f.newInstance(fmt.Sprint("i", i), all[i], n.ID), c))
	})
	f.same("live", must[map[string]int](f)(f.l.TierUse(f.ctx)), map[string]int{"small": won})
	return won
}

func testConcurrentHeadroom(f *fixture) {
	f.same("placed where three fit", f.placeEach(3*2, f.ceiling()), 3)
}

func testConcurrentCeiling(f *fixture) {
	c := f.ceiling()
	c.Max = 2
	f.same("placed where two may", f.placeEach(100, c), 2)
}

func testConcurrentCommit(f *fixture) {
	w, in := f.running("one")
	var intents [racers]model.FlushIntent
	for i := range intents {
		intents[i] = must[model.FlushIntent](f)(f.l.BeginFlush(f.ctx, f.m, f.newIntent(fmt.Sprint("it", i), in, w.Head)))
	}
	f.same("winners", f.race(errs.Stale, func(l ledger.Ledger, i int) error {
		return drop(l.CommitFlush(f.ctx, f.m, intents[i].ID, in.ID, f.snapshot(fmt.Sprint("s", i), intents[i])))
	}), 1)
	snapshots := must[[]model.Snapshot](f)(f.l.Snapshots(f.ctx, mine, w.ID))
	f.same("snapshots", len(snapshots), 1)
	f.same("head", must[model.Workspace](f)(f.l.Workspace(f.ctx, mine, "one")).Head, snapshots[0].Root)
}

func testConcurrentName(f *fixture) {
	f.same("winners", f.race(errs.Conflict, func(l ledger.Ledger, i int) error {
		w := f.newWorkspace(fmt.Sprint("w", i))
		w.Name = "one"
		_, _, err := l.CreateWorkspace(f.ctx, f.m, w, ledger.Idempotency{})
		return err
	}), 1)
}

func testConcurrentIdempotency(f *fixture) {
	idem := ledger.Idempotency{Key: "key", Principal: id[model.PrincipalID]("ada")}
	var got [racers]model.WorkspaceID
	var made [racers]bool
	f.same("answered", f.race(errs.Internal, func(l ledger.Ledger, i int) error {
		w, created, err := l.CreateWorkspace(f.ctx, f.m, f.newWorkspace(fmt.Sprint("w", i)), idem)
		got[i], made[i] = w.ID, created
		return err
	}), racers)
	n := 0
	for i := range got {
		f.same("workspace", got[i], got[0])
		if made[i] {
			n++
		}
	}
	f.same("created", n, 1)
}

// testConcurrentFence has flushes and a fence meet: whatever the order, nothing
// is committed under the old epoch after the fence has returned.
func testConcurrentFence(f *fixture) {
	w, in := f.running("one")
	it := must[model.FlushIntent](f)(f.l.BeginFlush(f.ctx, f.m, f.newIntent("it", in, w.Head)))
	s := f.snapshot("s", it)
	won := f.race(errs.Stale, func(l ledger.Ledger, i int) error {
		if i == racers/2 {
			return l.Fence(f.ctx, f.m, mine, model.SubjectWorkspace, in.Subject)
		}
		return drop(l.CommitFlush(f.ctx, f.m, it.ID, in.ID, s))
	})
	got := must[model.Workspace](f)(f.l.Workspace(f.ctx, mine, "one"))
	switch got.Head {
	case w.Head: // the fence came first: it alone won
		f.same("winners", won, 1)
	case s.Root: // a commit came first: all others are repeats of it
		f.same("winners", won, racers)
	default:
		f.Fatalf("head is %s", got.Head)
	}
	f.same("epoch", got.Epoch, in.Epoch+1)
}

// testConcurrentEvents follows the history while it is written: a follower that
// goes on from the last event it has seen must miss none.
func testConcurrentEvents(f *fixture) {
	const each = 10
	done := make(chan struct{})
	follower := f.another()
	var followed []model.Event
	var wg sync.WaitGroup
	wg.Go(func() {
		var after int64
		for last := false; ; {
			page, err := follower.Events(f.ctx, ledger.AllTenants, "", after, 0)
			if err != nil {
				f.Errorf("follow: %v", err)
				return
			}
			followed = append(followed, page...)
			if n := len(page); n > 0 {
				after = page[n-1].Seq
			}
			if last {
				return
			}
			select {
			case <-done:
				last = true // one more look after the end
			case <-time.After(time.Millisecond):
			}
		}
	})
	won := f.race(errs.Internal, func(l ledger.Ledger, i int) error {
		for j := range each {
			w := f.newWorkspace(fmt.Sprintf("w%d-%d", i, j))
			if _, _, err := l.CreateWorkspace(f.ctx, f.m, w, ledger.Idempotency{}); err != nil {
				return err
			}
		}
		return nil
	})
	close(done)
	wg.Wait()
	f.same("writers", won, racers)
	f.same("events followed", followed, must[[]model.Event](f)(f.l.Events(f.ctx, ledger.AllTenants, "", 0, 0)))
	f.same("events", len(followed), racers*each)
}
