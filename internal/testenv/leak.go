package testenv

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/billethq/billet/internal/model"
)

// leakGrace bounds how long the kernel and the processes that a test has ended
// may take to let go.
const leakGrace = 10 * time.Second

// leakMark is the environment variable by which processes that a test started
// are told from everybody else's.
const leakMark = "BILLET_TEST_MARK"

// LeakCheck fails the test when, at its end, something that it made is still
// on the host: a mount, a loop device, a network namespace, a cgroup or a
// process. Call it first, so that it looks after every other clean-up, and keep
// the test's state under t.TempDir(). Other tests may run meanwhile: what
// counts is what lies below this test's temporary directory, carries its mark
// in the environment or on the command line, or is new and nobody's.
//
// It sets an environment variable, so the test cannot be parallel.
func LeakCheck(t testing.TB) {
	t.Helper()
	leakCheck(t, leakGrace)
}

func leakCheck(t testing.TB, grace time.Duration) {
	t.Helper()
	NeedRoot(t)
	mark := model.NewID()
	t.Setenv(leakMark, mark)
	// All temporary directories of one test lie in one directory of its own.
	l := leaks{mark: mark, dir: filepath.Dir(t.TempDir())}
	l.before = append(l.namespaces(), l.cgroups()...)
	t.Cleanup(func() {
		// What is new and empty may be another test's, for a moment: only
		// what was seen in every look counts.
		left := l.find()
		for end := time.Now().Add(grace); len(left) > 0 && time.Now().Before(end); {
			time.Sleep(20 * time.Millisecond)
			now := l.find()
			left = slices.DeleteFunc(left, func(s string) bool { return !slices.Contains(now, s) })
		}
		for _, s := range left {
			t.Errorf("testenv: left behind: %s", s)
		}
	})
}

type leaks struct {
	mark   string
	dir    string
	before []string // namespaces and cgroups that were there already
}

// find lists what is left now, one line each.
func (l leaks) find() []string {
	out := append(l.processes(), l.mounts()...)
	out = append(out, l.loops()...)
	for _, s := range append(l.namespaces(), l.cgroups()...) {
		if !slices.Contains(l.before, s) {
			out = append(out, s)
		}
	}
	return out
}

func (l leaks) processes() []string {
	var out []string
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		if pid := filepath.Base(dir); pid != fmt.Sprint(os.Getpid()) && l.owns(dir) {
			args, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
			out = append(out, fmt.Sprintf("process %s: %s", pid, bytes.ReplaceAll(args, []byte{0}, []byte{' '})))
		}
	}
	return out
}

// owns reports whether the process in dir belongs to this test. Its command
// line speaks where a sandbox has cleared its environment. Zombies have
// neither: they hold nothing but a row of the process table.
func (l leaks) owns(dir string) bool {
	env, _ := os.ReadFile(filepath.Join(dir, "environ"))
	if slices.Contains(strings.Split(string(env), "\x00"), leakMark+"="+l.mark) {
		return true
	}
	args, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
	return bytes.Contains(args, []byte(l.dir+"/"))
}

func (l leaks) mounts() []string {
	var out []string
	table, _ := os.ReadFile("/proc/self/mountinfo")
	for line := range bytes.Lines(table) {
		if f := strings.Fields(string(line)); len(f) > 4 && strings.HasPrefix(f[4], l.dir+"/") {
			out = append(out, "mount "+f[4])
		}
	}
	return out
}

func (l leaks) loops() []string {
	var out []string
	files, _ := filepath.Glob("/sys/block/loop*/loop/backing_file")
	for _, file := range files {
		backing, _ := os.ReadFile(file)
		if strings.HasPrefix(string(backing), l.dir+"/") {
			out = append(out, fmt.Sprintf("loop device %s on %s", strings.Split(file, "/")[3], bytes.TrimSpace(backing)))
		}
	}
	return out
}

// namespaces lists the named network namespaces of billet.
func (l leaks) namespaces() []string {
	var out []string
	names, _ := filepath.Glob("/run/netns/billet*")
	for _, name := range names {
		out = append(out, "network namespace "+name)
	}
	return out
}

// cgroups lists the groups below billet's, in each hierarchy, that are empty
// or hold a process of this test. Another test's group has its own processes.
func (l leaks) cgroups() []string {
	var out []string
	for _, pattern := range []string{"/sys/fs/cgroup/billet", "/sys/fs/cgroup/*/billet"} {
		tops, _ := filepath.Glob(pattern)
		for _, top := range tops {
			_ = filepath.WalkDir(top, func(path string, d os.DirEntry, err error) error {
				if err == nil && d.IsDir() && path != top && l.ours(path) {
					out = append(out, "cgroup "+path)
				}
				return nil
			})
		}
	}
	return out
}

func (l leaks) ours(group string) bool {
	f, err := os.Open(filepath.Join(group, "cgroup.procs"))
	if err != nil {
		return false // gone meanwhile
	}
	defer f.Close()
	empty := true
	for s := bufio.NewScanner(f); s.Scan(); empty = false {
		if l.owns(filepath.Join("/proc", s.Text())) {
			return true
		}
	}
	return empty
}
