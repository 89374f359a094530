//go:build failpoint

package faults

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/testenv/leaks"
	"github.com/billethq/billet/internal/volume/protocol"
)

// alive reports whether a process runs; a zombie does not.
func alive(pid int) bool {
	_, err := protocol.ProcessStart(pid)
	return !errs.Is(err, errs.NotFound)
}

// watch looks at a deployment's sandboxes from the host's side, all the time.
type watch struct {
	w    *world
	stop chan struct{}
	done chan struct{}

	mu    sync.Mutex
	seen  map[string]bool // instances
	twice error           // set at the first moment with more sandboxes than allowed
	most  int             // sandboxes that may run at once
}

func newWatch(w *world) *watch {
	v := &watch{w: w, stop: make(chan struct{}), done: make(chan struct{}), seen: map[string]bool{}, most: 1}
	go v.run()
	return v
}

// allow changes how many sandboxes may run at once: one for each workspace.
func (v *watch) allow(n int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.most = n
}

func (v *watch) end() {
	close(v.stop)
	<-v.done
	if v.twice != nil {
		v.w.t.Error(v.twice)
	}
}

func (v *watch) run() {
	defer close(v.done)
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		select {
		case <-v.stop:
			return
		case <-tick.C:
			v.look()
		}
	}
}

// look counts the sandboxes. Each of those that are counted was alive after
// all of them had been found, so that they were alive at one time.
// invariant 4
func (v *watch) look() {
	found := sandboxes(v.w.scope.Dir)
	v.mu.Lock()
	defer v.mu.Unlock()
	pids := []string{}
	for _, s := range found {
		v.seen[s.instance] = true
		if alive(s.pid) {
			pids = append(pids, fmt.Sprintf("process %d of instance %s", s.pid, s.instance))
		}
	}
	dirs, _ := filepath.Glob(v.w.scope.Dir + "/*/node/instances/*")
	more, _ := filepath.Glob(v.w.scope.Dir + "/*/*/node/instances/*")
	for _, d := range append(dirs, more...) {
		v.seen[filepath.Base(d)] = true
	}
	if len(pids) > v.most && v.twice == nil {
		v.twice = fmt.Errorf("%d sandboxes ran at once, %d may: %s", len(pids), v.most, strings.Join(pids, ", "))
	}
}

type sandbox struct {
	instance string
	pid      int
}

// sandboxes finds the sandbox processes below a directory by their cgroups.
func sandboxes(dir string) []sandbox {
	var out []sandbox
	groups, _ := filepath.Glob("/sys/fs/cgroup/billet/*/cgroup.procs")
	v1, _ := filepath.Glob("/sys/fs/cgroup/memory/billet/*/cgroup.procs")
	for _, file := range append(groups, v1...) {
		text, _ := os.ReadFile(file)
		for _, word := range strings.Fields(string(text)) {
			pid, err := strconv.Atoi(word)
			if err == nil && isSandbox(pid, dir) && !isSandbox(parent(pid), dir) {
				out = append(out, sandbox{filepath.Base(filepath.Dir(file)), pid})
			}
		}
	}
	return out
}

// isSandbox reports whether a process carries the command line of a sandbox
// below dir. Its children, in which the guest's processes run, do so for a
// moment.
func isSandbox(pid int, dir string) bool {
	args, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return bytes.HasPrefix(args, []byte("runsc-sandbox\x00")) && bytes.Contains(args, []byte(dir+"/"))
}

// parent returns the id of a process's parent, 0 when it is gone.
func parent(pid int) int {
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 2 {
		return 0
	}
	ppid, _ := strconv.Atoi(fields[1])
	return ppid
}

// leaks lists what is on the host of this deployment. Cgroups are told from
// other deployments' by the instances that were seen.
func (w *world) leaks() []leaks.Leak {
	return slices.DeleteFunc(leaks.Find(w.scope), func(l leaks.Leak) bool {
		others := l.Kind == "network namespace" || l.Kind == "cgroup" && (w.watch == nil || !w.watch.seen[filepath.Base(l.Name)])
		return others || slices.Contains(w.known, l.String())
	})
}

// leftNothing fails the test when something is there that does not go away.
func (w *world) leftNothing() {
	w.t.Helper()
	defer w.removeLeft()
	await(w.t, "left behind", func() error {
		var found error
		for _, l := range w.leaks() {
			found = errors.Join(found, errors.New(l.String()))
		}
		return found
	})
}

// removeLeft ends by force what a test that failed has left.
func (w *world) removeLeft() {
	const rounds = 50
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for range rounds {
		left := w.leaks()
		if len(left) == 0 {
			return
		}
		for _, l := range left {
			_ = l.Remove() // what stays is seen in the next round
		}
		<-tick.C
	}
}
