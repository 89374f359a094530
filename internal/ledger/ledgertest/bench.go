package ledgertest

import (
	"fmt"
	"testing"
	"time"

	"github.com/billethq/billet/internal/ledger"
	"github.com/billethq/billet/internal/model"
)

// counter is a ledger that counts what it sends to its database.
type counter interface{ Statements() int64 }

// BenchmarkLife measures one round of an instance's life with one flush: Place,
// BeginFlush, CommitFlush, the order to stop and the observed end: five
// transactions.
func BenchmarkLife(b *testing.B, fresh Fresh) {
	l := fresh(b)()
	defer l.Close()
	ctx, m := b.Context(), ledger.Meta{Now: start}
	n := model.Node{ID: "node", Capacity: model.Capacity{VCPUs: 1}}
	w := model.Workspace{ID: "ws", Name: "ws", Base: root("base"), Desired: model.DesiredRunning}
	check := func(err error) {
		if err != nil {
			b.Fatal(err)
		}
	}
	check(l.SeeNode(ctx, m, n))
	_, _, err := l.CreateWorkspace(ctx, m, w, ledger.Idempotency{})
	check(err)
	head := w.Base
	before, i := sent(l), 0
	for b.Loop() {
		i++
		in, err := l.Place(ctx, m, model.Instance{
			ID: model.InstanceID(fmt.Sprint("i", i)), Node: n.ID, SubjectKind: model.SubjectWorkspace, Subject: "ws", Shape: model.Shape{VCPUs: 1},
		}, ledger.Ceiling{Tier: "small", Max: 1, LeaseUntil: start.Add(lease)})
		check(err)
		it, err := l.BeginFlush(ctx, m, model.FlushIntent{
			ID: model.IntentID(fmt.Sprint("f", i)), Instance: in.ID, Epoch: in.Epoch, Base: head, Expires: start.Add(time.Hour),
		})
		check(err)
		s, err := l.CommitFlush(ctx, m, it.ID, in.ID, model.Snapshot{
			ID: model.SnapshotID(fmt.Sprint("s", i)), Workspace: "ws", Root: model.Root(fmt.Sprint("b3:", i)), Parent: head, Epoch: in.Epoch, Seq: it.Seq,
		})
		check(err)
		head = s.Root
		check(l.SetInstanceDesired(ctx, m, "", in.ID, model.InstanceStop))
		_, err = l.Observe(ctx, m, ledger.Observation{Node: n.ID, Instance: in.ID, Epoch: in.Epoch, State: model.StateEnded, Cause: model.CauseStopped})
		check(err)
	}
	b.ReportMetric(float64(sent(l)-before)/float64(i), "statements/op")
	if got, err := l.Workspace(ctx, "", "ws"); err != nil || got.HeadSeq != model.Seq(i) || got.Epoch != model.Epoch(i) {
		b.Fatalf("after %d rounds: %+v, %v", i, got, err)
	}
}

// BenchmarkWorkspaces measures a list of ten thousand workspaces.
func BenchmarkWorkspaces(b *testing.B, fresh Fresh) {
	const rows = 10_000
	l := fresh(b)()
	defer l.Close()
	ctx, m := b.Context(), ledger.Meta{Now: start}
	for i := range rows {
		w := model.Workspace{ID: model.WorkspaceID(fmt.Sprint("ws", i)), Name: fmt.Sprint("name", i), Base: root("base"), Desired: model.DesiredStopped}
		if _, _, err := l.CreateWorkspace(ctx, m, w, ledger.Idempotency{}); err != nil {
			b.Fatal(err)
		}
	}
	before, i := sent(l), 0
	for b.Loop() {
		i++
		if got, err := l.Workspaces(ctx, ""); err != nil || len(got) != rows {
			b.Fatalf("listed %d: %v", len(got), err)
		}
	}
	b.ReportMetric(float64(sent(l)-before)/float64(i), "statements/op")
}

// sent is how many statements the ledger has sent so far, if it counts them.
func sent(l ledger.Ledger) int64 {
	if c, ok := l.(counter); ok {
		return c.Statements()
	}
	return 0
}
