package sqlite_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/billethq/billet/internal/ledger"
	"github.com/billethq/billet/internal/model"
)

// TestStatements pins what the calls that run all the time cost. Each number
// includes BEGIN and COMMIT; none grows with what the ledger holds.
func TestStatements(t *testing.T) {
	l := open(t, filepath.Join(t.TempDir(), "ledger.db"))
	ctx, m := t.Context(), ledger.Meta{Now: time.Unix(1_000_000, 0)}
	count := func(what string, want int64, call func() error) {
		t.Helper()
		before := l.Statements()
		if err := call(); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if got := l.Statements() - before; got != want {
			t.Errorf("%s took %d statements, want %d", what, got, want)
		}
	}
	n := model.Node{ID: "node", Capacity: model.Capacity{VCPUs: 1}}
	w := model.Workspace{ID: "ws", Name: "ws", Base: "base", Desired: model.DesiredRunning}
	in := model.Instance{ID: "in", Node: n.ID, SubjectKind: model.SubjectWorkspace, Subject: "ws", Epoch: 1}
	it := model.FlushIntent{ID: "it", Instance: in.ID, Epoch: 1, Base: "base", Expires: m.Now.Add(time.Hour)}
	s := model.Snapshot{ID: "s", Workspace: w.ID, Root: "root", Parent: "base", Epoch: 1, Seq: 1}
	seen := ledger.Observation{Node: n.ID, Instance: in.ID, Epoch: 1, State: model.StateRunning, LeaseUntil: m.Now.Add(time.Minute)}

	see := func() error { return l.SeeNode(ctx, m, n) }
	observe := func() error { _, err := l.Observe(ctx, m, seen); return err }
	commit := func() error { _, err := l.CommitFlush(ctx, m, it.ID, in.ID, s); return err }
	count("a node's first visit", 5, see)
	count("a node's next visit", 4, see)
	count("create", 7, func() error { _, _, err := l.CreateWorkspace(ctx, m, w, ledger.Idempotency{}); return err })
	count("place", 9, func() error { _, err := l.Place(ctx, m, in, ledger.Ceiling{Tier: "t", Max: 1}); return err })
	count("observe a move", 5, observe)
	count("renew a lease", 4, observe)
	count("begin flush", 6, func() error { _, err := l.BeginFlush(ctx, m, it); return err })
	count("commit flush", 10, commit)
	count("commit flush again", 3, commit)
	count("list", 3, func() error { _, err := l.Workspaces(ctx, ""); return err })
}
