package cgroup

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/testenv"
)

var small = Limits{CPUs: 1, Memory: 48 << 20, Processes: 40}

// newTree opens a tree with a parent of this test's own.
func newTree(t *testing.T) *Tree {
	t.Helper()
	testenv.NeedRoot(t)
	tree, err := Open("billet-test-" + strconv.Itoa(os.Getpid()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := tree.Close(); err != nil {
			t.Errorf("groups are left: %v", err)
		}
	})
	return tree
}

func newGroup(t *testing.T, tree *Tree, name string, l Limits) Group {
	t.Helper()
	g, err := tree.Group(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := errors.Join(g.Kill(ctx), g.Remove(ctx)); err != nil {
			t.Error(err)
		}
	})
	if err := g.Create(l); err != nil {
		t.Fatal(err)
	}
	return g
}

func counters(t *testing.T, g Group) Counters {
	t.Helper()
	c, err := g.Counters()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestGroup_MemoryLimit(t *testing.T) {
	g := newGroup(t, newTree(t), "memory", small)
	p := startIn(t, g, "allocate")
	err := p.Wait()
	if status, ok := p.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGKILL {
		t.Fatalf("a process that allocates without end ended with %v", err)
	}
	if c := counters(t, g); c.OOMKills < 1 || c.ForksRefused != 0 {
		t.Errorf("got %+v, want a kill and no refused fork", c)
	}
}

func TestGroup_ProcessLimit(t *testing.T) {
	g := newGroup(t, newTree(t), "processes", Limits{CPUs: 1, Memory: 512 << 20, Processes: 40})
	startIn(t, g, "fork").says(t, "refused")
	if c := counters(t, g); c.ForksRefused < 1 || c.OOMKills != 0 {
		t.Errorf("got %+v, want refused forks and no kill", c)
	}
	pids, err := g.PIDs()
	if err != nil || len(pids) < 2 || len(pids) > 40 || !slices.IsSorted(pids) {
		t.Errorf("got processes %v, %v, want at most the limit, in order", pids, err)
	}
	// It goes on forking while it is ended.
	if err := g.Kill(t.Context()); err != nil {
		t.Fatalf("kill: %v", err)
	}
	if pids, err := g.PIDs(); err != nil || len(pids) != 0 {
		t.Errorf("after kill: %v, %v", pids, err)
	}
}

func TestGroup_CPU(t *testing.T) {
	g := newGroup(t, newTree(t), "cpu", small)
	p := startIn(t, g, "spin")
	if err := p.Wait(); err != nil {
		t.Fatal(err)
	}
	if c := counters(t, g); c.CPU < cpuPeriod || c.CPU > time.Minute {
		t.Errorf("a process spun for %v, counted are %v", 3*cpuPeriod, c.CPU)
	}
}

// TestGroup_Doors: what went through them is in the group in every hierarchy.
func TestGroup_Doors(t *testing.T) {
	tree := newTree(t)
	g := newGroup(t, tree, "doors", small)
	doors := g.Doors()
	if tree.Version() == 2 {
		if len(doors) != 0 {
			t.Errorf("version 2 has doors: %v", doors)
		}
		return
	}
	script := `for d; do echo 0 >"$d" || exit; done; exec cat /proc/self/cgroup`
	out, err := exec.Command("sh", append([]string{"-c", script, "sh"}, doors...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	in := 0
	for line := range strings.Lines(string(out)) {
		if strings.HasSuffix(strings.TrimSpace(line), ":"+g.Path()) {
			in++
		}
	}
	if len(doors) < len(v1Required) || in != len(doors) {
		t.Errorf("through %d doors into the group in %d hierarchies:\n%s", len(doors), in, out)
	}
}

func TestGroup_CreateStartsAtZero(t *testing.T) {
	g := newGroup(t, newTree(t), "again", small)
	p := startIn(t, g, "allocate")
	_ = p.Wait()
	if c := counters(t, g); c.OOMKills == 0 {
		t.Fatalf("got %+v, want a kill", c)
	}
	if err := g.Create(small); err != nil {
		t.Fatalf("create of what a crash left: %v", err)
	}
	if c := counters(t, g); c.OOMKills != 0 || c.ForksRefused != 0 {
		t.Errorf("after create: got %+v, want zeros", c)
	}
}

func TestGroup_CreateSparesTheLiving(t *testing.T) {
	g := newGroup(t, newTree(t), "living", small)
	p := startIn(t, g, "sleep")
	p.says(t, "asleep")
	if err := g.Create(small); !errs.Is(err, errs.Conflict) {
		t.Errorf("create: got %v, want conflict", err)
	}
	if pids, err := g.PIDs(); err != nil || !slices.Equal(pids, []int{p.Process.Pid}) {
		t.Errorf("processes: got %v, %v, want %d", pids, err, p.Process.Pid)
	}
	if c := counters(t, g); c.Memory <= 0 || c.Memory > small.Memory {
		t.Errorf("memory in use: got %d", c.Memory)
	}
}

func TestGroup_KillSparesOthers(t *testing.T) {
	tree := newTree(t)
	victim, other := newGroup(t, tree, "victim", small), newGroup(t, tree, "other", small)
	startIn(t, victim, "sleep").says(t, "asleep")
	bystander := startIn(t, other, "sleep")
	bystander.says(t, "asleep")
	for range 2 {
		if err := victim.Kill(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if pids, err := other.PIDs(); err != nil || !slices.Equal(pids, []int{bystander.Process.Pid}) {
		t.Errorf("the other group has %v, %v, want %d", pids, err, bystander.Process.Pid)
	}
}

func TestGroup_Absent(t *testing.T) {
	tree := newTree(t)
	g, err := tree.Group("absent")
	if err != nil {
		t.Fatal(err)
	}
	if pids, err := g.PIDs(); err != nil || len(pids) != 0 {
		t.Errorf("processes: %v, %v", pids, err)
	}
	if _, err := g.Counters(); !errs.Is(err, errs.NotFound) {
		t.Errorf("counters: got %v, want not_found", err)
	}
	if err := errors.Join(g.Kill(t.Context()), g.Remove(t.Context()), g.Remove(t.Context())); err != nil {
		t.Error(err)
	}
}

// TestGroup_RemoveFindsAll: runsc makes groups of the same name in hierarchies
// that we do not use, and may die before it has removed them.
func TestGroup_RemoveFindsAll(t *testing.T) {
	g := newGroup(t, newTree(t), "all", small)
	dirs, err := g.h.dirs(g.path)
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range dirs {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := g.Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, dir := range dirs {
		if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is left: %v", dir, err)
		}
	}
}

// TestGroup_RemoveGivesUp: a group with a process cannot be removed, and the
// caller's deadline counts.
func TestGroup_RemoveGivesUp(t *testing.T) {
	g := newGroup(t, newTree(t), "busy", small)
	startIn(t, g, "sleep").says(t, "asleep")
	ctx, cancel := context.WithTimeout(t.Context(), 10*killPoll)
	defer cancel()
	if err := g.Remove(ctx); !errs.Is(err, errs.Unavailable) {
		t.Errorf("remove: got %v, want unavailable", err)
	}
}

func TestNames_AreRefused(t *testing.T) {
	tree := newTree(t)
	for _, name := range []string{"", ".", "..", "a/b", "../a", "-a", "a b", "a\n"} {
		if _, err := tree.Group(name); !errs.Is(err, errs.Invalid) {
			t.Errorf("group %q: got %v, want invalid", name, err)
		}
		if _, err := Open(name); !errs.Is(err, errs.Invalid) {
			t.Errorf("parent %q: got %v, want invalid", name, err)
		}
	}
	g := newGroup(t, tree, "limits", small)
	for _, l := range []Limits{{}, {CPUs: -1, Memory: 1, Processes: 1}, {CPUs: 1, Processes: 1}, {CPUs: 1, Memory: 1}} {
		if err := g.Create(l); !errs.Is(err, errs.Invalid) {
			t.Errorf("limits %+v: got %v, want invalid", l, err)
		}
	}
}

// TestWrite_MakesNoFile: a control file that this kernel lacks is an error,
// unless it is optional, and never an ordinary file with our number in it.
func TestWrite_MakesNoFile(t *testing.T) {
	dir := t.TempDir()
	if err := write(dir, []setting{{file: "pids.max", value: "1"}}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v, want that it is not there", err)
	}
	if err := write(dir, []setting{{file: "pids.max", value: "1", optional: true}}); err != nil {
		t.Errorf("optional: %v", err)
	}
	if made, _ := filepath.Glob(dir + "/*"); len(made) > 0 {
		t.Errorf("made %v", made)
	}
}

func FuzzParseField(f *testing.F) {
	f.Add([]byte("oom_kill_disable 0\nunder_oom 0\noom_kill 3\n"), "oom_kill")
	f.Add([]byte("max 9223372036854775808\n"), "max")
	f.Add([]byte("low\nmax \n"), "max")
	f.Fuzz(func(t *testing.T, text []byte, key string) {
		if n, err := parseField(text, key); err != nil && n != 0 {
			t.Errorf("parseField(%q, %q): got %d beside an error", text, key, n)
		}
	})
}

func TestParseField(t *testing.T) {
	const text = "oom_kill_disable 0\nunder_oom 1\noom_kill 3\n"
	for key, want := range map[string]int64{"oom_kill_disable": 0, "under_oom": 1, "oom_kill": 3} {
		if got, err := parseField([]byte(text), key); got != want || err != nil {
			t.Errorf("%s: got %d, %v, want %d", key, got, err, want)
		}
	}
	if _, err := parseField([]byte(text), "oom"); err == nil {
		t.Error("the beginning of a key was taken for it")
	}
}
