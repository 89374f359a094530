//go:build failpoint

package faults

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/config"
	"github.com/billethq/billet/internal/model"
	"github.com/billethq/billet/internal/volume/protocol"
)

// TestEnd_Exhausted: a guest that uses up what it has is ended by that name,
// is not started again into the same end, and has lost nothing.
// invariant 14
func TestEnd_Exhausted(t *testing.T) {
	for _, c := range []struct {
		cause  model.Cause
		script string
	}{
		{model.CauseOutOfMemory, "tail /dev/zero"},
		{model.CauseTooManyProcesses, "bomb() { bomb | bomb & }; bomb; sleep 1000"},
	} {
		t.Run(string(c.cause), func(t *testing.T) {
			t.Parallel()
			w := deploy(t, options{server: func(cfg *config.Config) { cfg.Tiers[0].Shape.Processes = 64 }})
			began := w.create("one")
			w.write("one", "a")
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				_, _ = w.run(ctx, "one", c.script, nil, nil) // it ends with the guest
			}()
			ws := w.untilFailed("one", c.cause)
			cancel()
			<-ended
			if ws.Desired != model.DesiredStopped || ws.Epoch != began.Epoch || ws.Detail == "" {
				t.Errorf("after its end: %+v, want it stopped under epoch %d, with a detail", ws, began.Epoch)
			}
			if left := sandboxes(w.scope.Dir); len(left) > 0 {
				t.Errorf("sandboxes %v run", left)
			}
			w.startAgain("one")
			w.holds("one")
			w.close()
		})
	}
}

// TestEnd_VolumeLostAgain: a volume process that dies under a guest costs a
// cold start; when that goes on something kills them all, and the instance
// ends, saved.
// invariants 12, 14
func TestEnd_VolumeLostAgain(t *testing.T) {
	t.Parallel()
	w := deploy(t, options{})
	w.create("one")
	const most = 4
	for i := range most {
		w.write("one", fmt.Sprintf("file%d", i))
		w.killPID(volumeProcess(t, w.instanceDir(w.node, "one")))
		if i == most-1 {
			break
		}
		await(t, "the guest is started again", func() error {
			ws, err := w.client.Workspace(t.Context(), "one")
			lost := 0
			for _, p := range ws.Phases {
				if p.Name == "volume_lost" {
					lost++
				}
			}
			if err == nil && (ws.State != api.WorkspaceRunning || lost != i+1) {
				err = fmt.Errorf("it is %s, its volume was lost %d times", ws.State, lost)
			}
			return err
		})
	}
	w.untilFailed("one", model.CauseVolumeLost)
	w.startAgain("one")
	w.holds("one")
	w.close()
}

// TestEnd_HostRebooted: after a reboot of the host nothing is started from the
// last answer. What ran is saved, reported and left to its owner.
// invariants 12, 14
func TestEnd_HostRebooted(t *testing.T) {
	t.Parallel()
	w := deploy(t, options{})
	w.create("one")
	w.write("one", "a")
	dir := w.instanceDir(w.node, "one")
	volume := volumeProcess(t, dir)
	w.node.kill()
	w.killGuest(filepath.Base(dir))
	w.killPID(volume)
	w.anotherBoot()
	w.node.start()
	w.untilFailed("one", model.CauseHostRebooted)
	if left := sandboxes(w.scope.Dir); len(left) > 0 {
		t.Errorf("sandboxes %v run", left)
	}
	w.startAgain("one")
	w.holds("one")
	w.close()
}

// killGuest ends every process of a guest.
func (w *world) killGuest(instance string) {
	w.t.Helper()
	groups, _ := filepath.Glob("/sys/fs/cgroup/billet/" + instance + "/cgroup.procs")
	v1, _ := filepath.Glob("/sys/fs/cgroup/memory/billet/" + instance + "/cgroup.procs")
	await(w.t, "the guest is gone", func() error {
		for _, file := range append(groups, v1...) {
			text, _ := os.ReadFile(file)
			for _, word := range strings.Fields(string(text)) {
				var pid int
				if _, err := fmt.Sscan(word, &pid); err == nil && alive(pid) {
					kill9(pid)
					return errNotYet
				}
			}
		}
		return nil
	})
}

// anotherBoot makes every record of the node's look as if it had been written
// before the host was started.
func (w *world) anotherBoot() {
	w.t.Helper()
	now, err := protocol.BootID()
	if err != nil {
		w.t.Fatal(err)
	}
	earlier := "00000000" + now[8:]
	changed := []string{}
	err = filepath.WalkDir(w.node.cfg.NodeDir(), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".json" {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil || !bytes.Contains(text, []byte(now)) {
			return err
		}
		changed = append(changed, filepath.Base(path))
		return os.WriteFile(path, bytes.ReplaceAll(text, []byte(now), []byte(earlier)), 0o600)
	})
	if err != nil {
		w.t.Fatal(err)
	}
	for _, want := range []string{"desired.json", "instance.json", "sandbox.json", "process.json"} {
		if !slices.Contains(changed, want) {
			w.t.Errorf("no %s tells the boot; those that do: %v", want, changed)
		}
	}
}

// attachTimeout is how long a node waits for the agent's first call.
const attachTimeout = time.Minute

// TestEnd_NeverDials: a guest whose agent does not call is no guest; it is
// given up, with the reason.
func TestEnd_NeverDials(t *testing.T) {
	if testing.Short() {
		t.Skip("it waits for a minute")
	}
	t.Parallel()
	w := deploy(t, options{})
	// What guests are given as PID 1 from now on.
	if err := os.Remove(filepath.Join(w.node.cfg.NodeDir(), "bin", "billet-guest")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(w.node.cfg.NodeDir(), "bin", "billet-guest"), []byte("#!/bin/sh\nexec sleep 1000\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := w.client.CreateWorkspace(t.Context(), "", api.CreateWorkspaceRequest{Name: "one"}); err != nil {
		t.Fatal(err)
	}
	awaitFor(t, attachTimeout+patience, "it is given up", func() error {
		ws, err := w.client.Workspace(t.Context(), "one")
		if err == nil && ws.State != api.WorkspaceFailed {
			err = fmt.Errorf("it is %s", ws.State)
		}
		return err
	})
	if ws := w.untilFailed("one", model.CauseStartFailed); !strings.Contains(ws.Detail, "agent") {
		t.Errorf("detail %q does not name the agent", ws.Detail)
	}
	w.close()
}
