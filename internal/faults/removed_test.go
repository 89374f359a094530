//go:build failpoint

package faults

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/model"
)

// listens is longer than the minute for which a server that has started takes
// nobody for gone.
const listens = 2 * time.Minute

// TestRemoved_ComesBack: an admin has said that a node's host is gone, and was
// wrong: its guest has run on. The workspace starts elsewhere from what was
// saved, and the node that calls again finds nothing of its own.
// invariants 2, 3, 5
func TestRemoved_ComesBack(t *testing.T) {
	t.Parallel()
	w, b := twoNodes(t)
	stale := filepath.Base(w.instanceDir(w.node, "one"))
	name := w.node.cfg.Node.Name
	if _, err := w.client.RemoveNode(t.Context(), name, true); !errs.Is(err, errs.Conflict) {
		t.Fatalf("remove a node that is heard: got %v, want a conflict", err)
	}
	w.node.kill()
	awaitFor(t, listens, "the node is silent", func() error {
		_, err := w.client.RemoveNode(t.Context(), name, false)
		if err == nil {
			t.Fatal("a node was removed from under an instance without anybody's word")
		}
		if strings.Contains(err.Error(), "not proved gone") {
			return nil
		}
		return err
	})
	removed, err := w.client.RemoveNode(t.Context(), name, true)
	if err != nil {
		t.Fatal(err)
	}
	if len(removed.Lost) != 1 || removed.Lost[0].Workspace != "one" {
		t.Errorf("lost %+v, want the instance of workspace one", removed.Lost)
	}
	if ws := w.until("one", api.WorkspaceFailed); ws.Failure != model.CauseHostGone {
		t.Errorf("the workspace failed by %q, want host_gone", ws.Failure)
	}

	w.watch.allow(2) // a person has said that the first is gone
	if _, err := w.client.StartWorkspace(t.Context(), "one", api.StartWorkspaceRequest{}); err != nil {
		t.Fatal(err)
	}
	if ws := w.until("one", api.WorkspaceRunning); ws.Instance == nil || ws.Instance.Node != b.cfg.Node.Name {
		t.Fatalf("workspace one runs as %+v, want it on node b", ws.Instance)
	}
	w.holds("one")
	w.node.start()
	w.fenced(w.node, stale)
	w.write("one", "b")
	w.holds("one")
	w.close()
}
