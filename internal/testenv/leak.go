package testenv

import (
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/billethq/billet/internal/model"
	"github.com/billethq/billet/internal/testenv/leaks"
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
// the test's state under t.TempDir(). Package leaks says what counts as the
// test's own.
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
	scope := leaks.Scope{Env: leakMark + "=" + mark, Dir: filepath.Dir(t.TempDir())}
	before := find(scope)
	t.Cleanup(func() {
		// An empty cgroup may be another test's, for a moment: only what was
		// seen in every look counts.
		left := slices.DeleteFunc(find(scope), func(s string) bool { return slices.Contains(before, s) })
		for end := time.Now().Add(grace); len(left) > 0 && time.Now().Before(end); {
			time.Sleep(20 * time.Millisecond)
			now := find(scope)
			left = slices.DeleteFunc(left, func(s string) bool { return !slices.Contains(now, s) })
		}
		for _, s := range left {
			t.Errorf("testenv: left behind: %s", s)
		}
	})
}

func find(scope leaks.Scope) []string {
	var out []string
	for _, l := range leaks.Find(scope) {
		out = append(out, l.String())
	}
	return out
}
