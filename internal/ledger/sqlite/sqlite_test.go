package sqlite_test

import (
	"context"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/billethq/billet/internal/ledger"
	"github.com/billethq/billet/internal/ledger/sqlite"
	"github.com/billethq/billet/internal/model"
)

func TestSmoke(t *testing.T) {
	l, err := sqlite.Open(filepath.Join(t.TempDir(), "a?b#c%41.db"), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx := context.Background()
	m := ledger.Meta{Now: time.Now()}
	d, err := l.EnsureDeployment(ctx, m, "dep")
	if err != nil || d.ID != "dep" {
		t.Fatal(d, err)
	}
	w, created, err := l.CreateWorkspace(ctx, m, model.Workspace{ID: "w1", Name: "one", Desired: "running", Base: "b3:0"}, ledger.Idempotency{})
	if err != nil || !created || w.Head != "b3:0" {
		t.Fatal(w, err)
	}
	if err := l.SeeNode(ctx, m, model.Node{ID: "n1", Capacity: model.Capacity{VCPUs: 2, Memory: 10, Disk: 10}}); err != nil {
		t.Fatal(err)
	}
	in, err := l.Place(ctx, m, model.Instance{ID: "i1", Node: "n1", SubjectKind: "workspace", Subject: "w1", Shape: model.Shape{VCPUs: 1}}, ledger.Ceiling{LeaseUntil: m.Now})
	if err != nil || in.Epoch != 1 {
		t.Fatal(in, err)
	}
	fi, err := l.BeginFlush(ctx, m, model.FlushIntent{ID: "f1", Instance: "i1", Epoch: 1, Base: "b3:0", Expires: m.Now.Add(time.Hour)})
	if err != nil || fi.Seq != 1 {
		t.Fatal(fi, err)
	}
	for range 2 {
		s, err := l.CommitFlush(ctx, m, "f1", "i1", model.Snapshot{ID: "s1", Workspace: "w1", Root: "b3:1", Parent: "b3:0", Epoch: 1, Seq: 1})
		if err != nil || s.ID != "s1" {
			t.Fatal(s, err)
		}
	}
	if c, err := l.Observe(ctx, m, ledger.Observation{Node: "n1", Instance: "i1", Epoch: 1, State: "ended", Cause: "crashed"}); err != nil || !c {
		t.Fatal(c, err)
	}
	w, err = l.Workspace(ctx, "one")
	t.Logf("%+v %v", w, err)
	ev, err := l.Events(ctx, "", 0, 0)
	for _, e := range ev {
		t.Logf("%+v", e)
	}
	t.Log(err)
}
