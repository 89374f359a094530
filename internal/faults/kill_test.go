//go:build failpoint

package faults

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/failpoint"
	"github.com/billethq/billet/internal/model"
	"github.com/billethq/billet/internal/volume/protocol"
)

func TestTable_HasARowForEachStep(t *testing.T) {
	rows := table()
	for _, s := range failpoint.Steps() {
		if !slices.ContainsFunc(rows, func(r row) bool { return r.step == s }) {
			t.Errorf("step %s has no row", s)
		}
	}
	for _, r := range rows {
		for _, p := range processes() {
			if f := r.of(p); f.exists() == (f.why != "") {
				t.Errorf("step %s, process %s: got outcome %d and reason %q, want one of them", r.step, p, f.want, f.why)
			}
		}
	}
}

// TestKill kills each process at each step, as the table says.
// invariants 4, 12, 13, 15, 16, 18
func TestKill(t *testing.T) {
	results := &results{took: map[string]string{}}
	t.Run("at", func(t *testing.T) {
		for _, r := range table() {
			for _, p := range processes() {
				if !r.of(p).exists() {
					continue
				}
				name := string(r.step) + "/" + string(p)
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					began := time.Now()
					defer func() { results.note(t, name, time.Since(began)) }()
					newKill(t, r.step, p, r.of(p)).run()
				})
			}
		}
	})
	t.Log(results)
}

// kill is one case.
type kill struct {
	*world
	step failpoint.Step
	dies process
	fate fate

	fired bool
}

func newKill(t *testing.T, step failpoint.Step, dies process, f fate) *kill {
	return &kill{world: deploy(t, options{}), step: step, dies: dies, fate: f}
}

// run is a workspace's life; one of its parts is disturbed.
func (k *kill) run() {
	ctx := k.t.Context()
	create := func() error {
		_, err := k.client.CreateWorkspace(ctx, "create", api.CreateWorkspaceRequest{Name: "one"})
		return err
	}
	k.part("create", api.WorkspaceRunning, create)
	// The creation that was cut off is repeated by its key, and is the same.
	if err := create(); err != nil {
		k.t.Errorf("the same creation again: %v", err)
	}
	k.write("one", "a")
	if k.sleeps() {
		k.runAsleep()
	} else {
		k.runAwake()
	}
	if !k.fired {
		k.t.Fatalf("no part of a workspace's life reaches %s", k.step)
	}
	k.holds("one")
	k.close()
}

// sleeps reports whether the step is in a hibernation or a resume.
func (k *kill) sleeps() bool {
	return strings.HasPrefix(string(k.step), "hibernate.") || strings.HasPrefix(string(k.step), "resume.")
}

// runAsleep hibernates the workspace and resumes it, with memory unless the
// fault has cost it that.
func (k *kill) runAsleep() {
	ctx := k.t.Context()
	k.sh("one", "echo thought > /dev/shm/kept")
	k.part("hibernate", api.WorkspaceStopped, func() error {
		_, err := k.client.StopWorkspace(ctx, "one", api.StopWorkspaceRequest{})
		return err
	})
	asleep, err := k.client.Workspace(ctx, "one")
	if err != nil || asleep.UnsavedBytes != 0 {
		k.t.Fatalf("after the stop: %+v, %v; want nothing unsaved", asleep, err)
	}
	remembers := asleep.NextResume != nil && asleep.NextResume.How == api.ResumeMemory
	// A disk whose process died is replayed by its next mount, which makes it
	// another disk than the memory's.
	if want := k.fate.want == goesOn && k.dies != killVolume; want && !remembers {
		k.t.Errorf("next resume: %+v, want it with memory", asleep.NextResume)
	}
	resume := func() error {
		_, err := k.client.StartWorkspace(ctx, "one", api.StartWorkspaceRequest{})
		return err
	}
	if asleep.State == api.WorkspaceFailed {
		k.startAgain("one")
	} else {
		k.part("resume", api.WorkspaceRunning, resume)
	}
	if !strings.HasPrefix(string(k.step), "resume.") || k.fate.want == goesOn {
		kept := k.sh("one", "cat /dev/shm/kept 2>/dev/null || true")
		if (kept == "thought\n") != remembers {
			k.t.Errorf("memory holds %q after a resume that was to be %+v", kept, asleep.NextResume)
		}
	}
}

// runAwake flushes the workspace, stops it cold and starts it again.
func (k *kill) runAwake() {
	ctx := k.t.Context()
	k.part("flush", api.WorkspaceRunning, func() error {
		_, err := k.client.ForkWorkspace(ctx, "fork", "one", api.ForkWorkspaceRequest{Name: "copy", Stopped: true})
		return err
	})
	k.write("one", "b")
	k.part("stop", api.WorkspaceStopped, func() error {
		_, err := k.client.StopWorkspace(ctx, "one", api.StopWorkspaceRequest{Cold: true})
		return err
	})
	stopped, err := k.client.Workspace(ctx, "one")
	if err != nil || stopped.UnsavedBytes != 0 || stopped.Epoch == 0 {
		k.t.Fatalf("after the stop: %+v, %v; want nothing unsaved", stopped, err)
	}
	if ws := k.startAgain("one"); ws.Epoch != stopped.Epoch+1 {
		k.t.Errorf("epoch after the next start: got %d, want %d", ws.Epoch, stopped.Epoch+1)
	}
}

// part does one thing to the workspace; it is disturbed when the step is in it.
func (k *kill) part(name string, then api.WorkspaceState, do func() error) {
	k.t.Helper()
	if !strings.HasPrefix(string(k.step), name+".") {
		if err := do(); err != nil {
			k.t.Fatalf("%s: %v", name, err)
		}
		k.until("one", then)
		return
	}
	k.fired = true
	k.arm(k.step)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = do() // the answer may die with the server
	}()
	pid := k.hit(k.step)
	if name == "flush" && k.step != failpoint.FlushFrozen {
		k.write("one", "meanwhile") // into the overlay above the sealed one
	}
	k.strike(pid)
	k.disarm(k.step)
	switch k.dies {
	case killServer:
		k.server.start()
	case killNode:
		k.node.start()
	case killUp:
		k.server.start()
		k.gateway.start()
		k.node.start()
	case killVolume, killRunsc:
	}
	<-done
	k.settle(then)
}

// strike kills the process and waits until it is gone. pid is the one that
// waits at the step.
func (k *kill) strike(pid int) {
	k.t.Helper()
	switch k.dies {
	case killServer:
		k.server.kill()
	case killNode:
		k.node.kill()
	case killVolume:
		k.killPID(k.volumePID(pid))
	case killRunsc:
		k.killPID(k.sandboxPID())
	case killUp:
		k.server.kill()
		k.gateway.kill()
		k.node.kill()
	}
}

// volumePID finds the volume process: at its own steps it has said itself who
// it is, and may have left no record yet.
func (k *kill) volumePID(hit int) int {
	k.t.Helper()
	if hit != k.server.cmd.Process.Pid && hit != k.node.cmd.Process.Pid {
		return hit
	}
	return volumeProcess(k.t, k.instanceDir(k.node, "one"))
}

func volumeProcess(t *testing.T, instance string) int {
	t.Helper()
	p, err := protocol.Place(filepath.Join(instance, "volume")).Recorded()
	if err != nil {
		t.Fatal(err)
	}
	return p.PID
}

func (w *world) sandboxPID() int {
	w.t.Helper()
	found := sandboxes(w.scope.Dir)
	if len(found) != 1 {
		w.t.Fatalf("got sandboxes %v, want one", found)
	}
	return found[0].pid
}

// settle waits for what must become of the workspace, and has it started again
// when it has failed and something is yet to be done with it.
func (k *kill) settle(then api.WorkspaceState) {
	k.t.Helper()
	switch k.fate.want {
	case goesOn:
		k.until("one", then)
	case restarts:
		await(k.t, "the guest is started again", func() error {
			ws, err := k.client.Workspace(k.t.Context(), "one")
			if err == nil && (ws.State != then || !slices.ContainsFunc(ws.Phases, func(p model.Phase) bool { return p.Name == "volume_lost" })) {
				err = fmt.Errorf("it is %s, phases %v", ws.State, ws.Phases)
			}
			return err
		})
	case fails:
		k.untilFailed("one", model.CauseKilled)
		if then == api.WorkspaceRunning {
			k.startAgain("one")
		}
	case endsAsOne:
		await(k.t, "the workspace is stopped or has failed", func() error {
			ws, err := k.client.Workspace(k.t.Context(), "one")
			if err == nil && ws.State != api.WorkspaceStopped && (ws.State != api.WorkspaceFailed || ws.Failure != model.CauseKilled) {
				err = fmt.Errorf("it is %s, failure %q", ws.State, ws.Failure)
			}
			return err
		})
	case nothing:
		k.t.Fatal("a case without an outcome")
	}
}

func (w *world) arm(s failpoint.Step) {
	w.t.Helper()
	if err := os.WriteFile(filepath.Join(w.fail, string(s)), nil, 0o600); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) disarm(s failpoint.Step) {
	w.t.Helper()
	if err := os.Remove(filepath.Join(w.fail, string(s))); err != nil {
		w.t.Fatal(err)
	}
}

// hit waits until a process stands at the step, and returns its id. A fault
// that does not fire fails the test.
func (w *world) hit(s failpoint.Step) (pid int) {
	w.t.Helper()
	await(w.t, "a process reaches "+string(s), func() error {
		text, err := os.ReadFile(filepath.Join(w.fail, string(s)+".hit"))
		if errors.Is(err, fs.ErrNotExist) {
			return errNotYet
		}
		if err == nil {
			pid, err = strconv.Atoi(string(text))
		}
		return err
	})
	return pid
}

// results is what the table came to.
type results struct {
	mu   sync.Mutex
	took map[string]string
}

func (r *results) note(t *testing.T, name string, took time.Duration) {
	text := fmt.Sprintf("%.1fs", took.Seconds())
	if t.Failed() {
		text = "FAILED"
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.took[name] = text
}

// String is the table, with the time that each case took.
func (r *results) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var b strings.Builder
	fmt.Fprintf(&b, "killed at          ")
	for _, p := range processes() {
		fmt.Fprintf(&b, " %7s", p)
	}
	for _, row := range table() {
		fmt.Fprintf(&b, "\n%-19s", row.step)
		for _, p := range processes() {
			text := r.took[string(row.step)+"/"+string(p)]
			if !row.of(p).exists() {
				text = "-"
			}
			fmt.Fprintf(&b, " %7s", text)
		}
	}
	return b.String()
}
