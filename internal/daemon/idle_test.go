package daemon

import (
	"fmt"
	"testing"
	"time"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/testenv"
)

// TestUp_UntouchedWorkspaceSavesNothing: a disk that is larger than its image,
// and so has grown, in a guest that has only been looked at.
func TestUp_UntouchedWorkspaceSavesNothing(t *testing.T) {
	testenv.NeedRoot(t)
	testenv.NeedFUSE(t)
	testenv.NeedLoop(t)
	testenv.LeakCheck(t)
	cfg := home(t)
	cfg.FlushEvery = 100 * time.Millisecond
	d := up(t, cfg)
	d.image("base")
	if _, err := d.client.CreateWorkspace(t.Context(), "", api.CreateWorkspaceRequest{Name: "one"}); err != nil {
		t.Fatal(err)
	}
	d.until("one", api.WorkspaceRunning)
	d.exec("one", "/bin/ls", "-R", "/bin", "/etc")
	since := time.Now()
	testenv.Await(t, 30*time.Second, func() error { // rounds of flushes that begin after it
		w, err := d.client.Workspace(t.Context(), "one")
		if err == nil && w.DurableAt.Before(since.Add(10*cfg.FlushEvery)) {
			err = fmt.Errorf("durable at %s", w.DurableAt)
		}
		return err
	})
	if _, err := d.client.StopWorkspace(t.Context(), "one", api.StopWorkspaceRequest{Cold: true}); err != nil {
		t.Fatal(err)
	}
	d.until("one", api.WorkspaceStopped)
	if s, err := d.client.Snapshots(t.Context(), "one"); err != nil || len(s) > 0 {
		t.Errorf("snapshots %+v, %v, want none", s, err)
	}
	if err := d.client.DeleteWorkspace(t.Context(), "one", true); err != nil {
		t.Fatal(err)
	}
	d.gone("one")
	d.down()
}
