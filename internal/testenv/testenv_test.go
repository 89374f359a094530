package testenv

import (
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	"golang.org/x/sys/unix"
)

// fakeTB records what a helper does to a test.
type fakeTB struct {
	testing.TB
	dir      string
	skipped  string
	errors   []string
	cleanups []func()
}

func (f *fakeTB) Helper()                   {}
func (f *fakeTB) Setenv(k, v string)        { f.TB.Setenv(k, v) }
func (f *fakeTB) TempDir() string           { return f.dir }
func (f *fakeTB) Cleanup(fn func())         { f.cleanups = append(f.cleanups, fn) }
func (f *fakeTB) Errorf(s string, a ...any) { f.errors = append(f.errors, fmt.Sprintf(s, a...)) }

func (f *fakeTB) Fatalf(s string, a ...any) {
	f.Errorf(s, a...)
	panic(f)
}

func (f *fakeTB) Skipf(s string, a ...any) {
	f.skipped = fmt.Sprintf(s, a...)
	panic(f) // what runtime.Goexit does to a real test
}

func (f *fakeTB) finish() {
	for i := len(f.cleanups) - 1; i >= 0; i-- {
		f.cleanups[i]()
	}
}

func TestNeedBinary_SkipsInTheFixedForm(t *testing.T) {
	f := &fakeTB{TB: t}
	func() {
		defer func() { _ = recover() }()
		NeedBinary(f, "billet-no-such-program")
	}()
	if want := "testenv: need billet-no-such-program: not on PATH; `make test-deps` installs it"; f.skipped != want {
		t.Errorf("skip message\n got %q\nwant %q", f.skipped, want)
	}
	if path := NeedBinary(t, "sh"); !filepath.IsAbs(path) {
		t.Errorf("path of sh is %q, want an absolute one", path)
	}
}

func TestAwait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		looks := 0
		Await(t, time.Minute, func() error {
			if looks++; looks < 5 {
				return errors.New("not yet")
			}
			return nil
		})
		if looks != 5 {
			t.Errorf("looked %d times, want 5", looks)
		}
		f := &fakeTB{TB: t}
		start := time.Now()
		func() {
			defer func() { _ = recover() }()
			Await(f, time.Minute, func() error { return errors.New("the door is shut") })
		}()
		if took := time.Since(start); len(f.errors) != 1 || !strings.HasSuffix(f.errors[0], "the door is shut") || took > time.Minute+awaitPause {
			t.Errorf("errors %q after %s, want the last one after a minute", f.errors, took)
		}
	})
}

func TestTmpfsDir_Fills(t *testing.T) {
	dir := TmpfsDir(t, "1m")
	err := os.WriteFile(filepath.Join(dir, "f"), make([]byte, 2<<20), 0o600)
	if pathErr, ok := err.(*os.PathError); !ok || pathErr.Err != syscall.ENOSPC {
		t.Errorf("write 2 MiB into 1 MiB: %v, want ENOSPC", err)
	}
}

func TestNeedPostgres_GivesFreshDatabases(t *testing.T) {
	LeakCheck(t)
	for range 2 {
		db, err := sql.Open("pgx", NeedPostgres(t))
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		if _, err := db.Exec(`CREATE TABLE t (x int)`); err != nil {
			t.Errorf("create in a fresh database: %v", err)
		}
	}
}

// leaky runs a leak check around body and returns what it complains of.
func leaky(t *testing.T, grace time.Duration, body func(dir string)) []string {
	t.Helper()
	f := &fakeTB{TB: t, dir: t.TempDir()}
	leakCheck(f, grace)
	body(f.dir)
	f.finish()
	return f.errors
}

func TestLeakCheck_SeesProcess(t *testing.T) {
	NeedRoot(t)
	got := leaky(t, 0, func(string) {
		cmd := exec.Command("sleep", "60")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	})
	if len(got) != 1 || !strings.Contains(got[0], "sleep 60") {
		t.Errorf("errors %q, want one about the process", got)
	}
}

func TestLeakCheck_SeesMount(t *testing.T) {
	NeedRoot(t)
	got := leaky(t, 0, func(dir string) {
		if err := unix.Mount("billet-test", dir, "tmpfs", 0, ""); err != nil {
			t.Skip(err)
		}
		t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	})
	if len(got) != 1 || !strings.Contains(got[0], "left behind: mount ") {
		t.Errorf("errors %q, want one about the mount", got)
	}
}

func TestLeakCheck_WaitsForWhatIsEnding(t *testing.T) {
	NeedRoot(t)
	start := time.Now()
	got := leaky(t, leakGrace, func(string) {
		cmd := exec.Command("sleep", "0.2")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		go func() { _ = cmd.Wait() }()
	})
	if len(got) != 0 || time.Since(start) >= leakGrace {
		t.Errorf("errors %q after %s, want none at once", got, time.Since(start))
	}
}
