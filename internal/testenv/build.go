package testenv

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// Root returns the repository's directory.
func Root(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for ; ; dir = filepath.Dir(dir) {
		// runsc/ and tools/ are modules below the repository's own.
		mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && strings.HasPrefix(string(mod), "module github.com/billethq/billet\n") {
			return dir
		}
		if dir == filepath.Dir(dir) {
			t.Fatal("testenv: the test does not run inside the repository")
		}
	}
}

// NeedRunsc returns the path of gVisor's runsc: $BILLET_RUNSC, build/runsc, or
// one on PATH.
func NeedRunsc(t testing.TB) string {
	t.Helper()
	NeedRoot(t)
	if path := os.Getenv("BILLET_RUNSC"); path != "" {
		return path
	}
	if path := filepath.Join(Root(t), "build", "runsc"); executable(path) {
		return path
	}
	path, err := exec.LookPath("runsc")
	if err != nil {
		need(t, "runsc", "neither build/runsc nor one on PATH; `make runsc` builds it")
	}
	return path
}

// NeedGuest returns the path of a billet-guest built from this tree, static
// and stripped as it is shipped.
func NeedGuest(t testing.TB) string {
	t.Helper()
	return build(t, "billet-guest", "./cmd/billet-guest", nil)
}

// NeedBillet returns the path of a billet built from this tree with the given
// build tags (such as "failpoint").
func NeedBillet(t testing.TB, tags ...string) string {
	t.Helper()
	return build(t, "billet", "./cmd/billet", tags)
}

// NeedProgram returns the path of a static program built from a package of
// this tree, such as one below a testdata directory.
func NeedProgram(t testing.TB, pkg string) string {
	t.Helper()
	return build(t, strings.ReplaceAll(pkg, "/", "-"), "./"+pkg, nil)
}

// built remembers what this test process has built, by path.
var built sync.Map // of func() error

// build builds a package into build/test, once per test process. Test
// processes share the file: go build leaves one that is up to date alone.
func build(t testing.TB, name, pkg string, tags []string) string {
	t.Helper()
	root := Root(t)
	out := filepath.Join(root, "build", "test", strings.Join(append([]string{name}, tags...), "-"))
	once, _ := built.LoadOrStore(out, sync.OnceValue(func() error { return goBuild(root, pkg, tags, out) }))
	if err := once.(func() error)(); err != nil {
		t.Fatalf("testenv: %v", err)
	}
	return out
}

// goBuild links under a lock, so that two test processes that start together
// never run a half-written file.
func goBuild(root, pkg string, tags []string, out string) error {
	if err := os.MkdirAll(filepath.Dir(out), 0o755); err != nil {
		return err
	}
	lock, err := os.OpenFile(out+".lock", os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return fmt.Errorf("lock %s: %w", lock.Name(), err)
	}
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-tags="+strings.Join(tags, ","), "-o", out, pkg)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", pkg, err, text)
	}
	return nil
}

func executable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}
