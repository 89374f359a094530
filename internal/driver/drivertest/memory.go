package drivertest

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/billethq/billet/internal/driver"
	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/model"
	"github.com/billethq/billet/internal/testenv"
)

// memory holds for drivers that can take a guest's memory.
var memory = map[string]func(*testing.T, Harness){
	"RestoreElsewhere":     restoreElsewhere,
	"RestoreTwice":         restoreTwice,
	"ContinueTwentyTimes":  continueTwentyTimes,
	"CheckpointOnFullDisk": checkpointOnFullDisk,
	"CheckpointUnpaused":   checkpointUnpaused,
	"StopPaused":           stopPaused,
	"AdoptPaused":          adoptPaused,
	"NothingToPause":       nothingToPause,
	"RestoreDamaged":       restoreDamaged,
}

// hibernator is the driver, or the end of the test.
func (f *fixture) hibernator() driver.Hibernator {
	f.Helper()
	d, ok := f.d.(driver.Hibernator)
	if !ok {
		f.Skipf("driver %s takes no memory images", f.d.Name())
	}
	return d
}

// hibernate takes the guest's memory into a directory and ends the guest.
func (f *fixture) hibernate() string {
	f.Helper()
	dir := f.checkpoint()
	if err := f.d.Stop(f.ctx(), f.spec.Ref, 0); err != nil {
		f.Fatalf("stop: %v", err)
	}
	if err := f.d.Delete(f.ctx(), f.spec.Ref); err != nil {
		f.Fatalf("delete: %v", err)
	}
	return dir
}

// checkpoint pauses the guest and takes its memory.
func (f *fixture) checkpoint() string {
	f.Helper()
	dir := f.TempDir()
	if err := f.hibernator().Pause(f.ctx(), f.spec.Ref); err != nil {
		f.Fatalf("pause: %v", err)
	}
	if err := f.hibernator().Checkpoint(f.ctx(), f.spec.Ref, dir); err != nil {
		f.Fatalf("checkpoint: %v", err)
	}
	return dir
}

func (f *fixture) continues() {
	f.Helper()
	if err := f.hibernator().Continue(f.ctx(), f.spec.Ref); err != nil {
		f.Fatalf("continue: %v", err)
	}
	f.accept()
}

func (f *fixture) wantCount(want int) {
	f.Helper()
	if got := f.ask(request{Op: "count"}); got != strconv.Itoa(want) {
		f.Errorf("the guest counts %s, want %d", got, want)
	}
}

// restoredFrom describes another guest on a disk moved from f's, restored from
// f's memory.
func (f *fixture) restoredFrom(t *testing.T, from *fixture, dir string) {
	t.Helper()
	if err := os.CopyFS(f.spec.RootFS, os.DirFS(from.spec.RootFS)); err != nil {
		t.Fatal(err)
	}
	f.spec.Labels = map[string]string{"workspace": "other"}
	if err := f.hibernator().Restore(f.ctx(), f.spec, dir); err != nil {
		t.Fatalf("restore: %v", err)
	}
	f.accept()
}

// restoreElsewhere: memory and files come back under another name, at another
// path; the clock is right, and the guest ends as any other.
func restoreElsewhere(t *testing.T, h Harness) {
	testenv.LeakCheck(t)
	a, b := newGuest(t, h), newGuest(t, h)
	a.start()
	a.wantCount(1)
	a.ask(request{Op: "write", Arg: "/kept", Text: "on disk"})
	a.ask(request{Op: "write_and_hold", Arg: "/open", Text: "held open"})
	a.ask(request{Op: "unlink", Arg: "/open"})
	dir := a.hibernate()

	b.restoredFrom(t, a, dir)
	b.wantCount(2)
	if got := b.ask(request{Op: "read", Arg: "/kept"}); got != "on disk" {
		t.Errorf("a file holds %q", got)
	}
	if got := b.ask(request{Op: "read_held"}); got != "held open" {
		t.Errorf("an open file without a name holds %q", got)
	}
	wantClock(b)
	exits := b.watch()
	b.send(request{Op: "exit", N: 3})
	if exit := <-exits; exit.Code != 3 || exit.Cause != model.CauseExited {
		t.Errorf("wait: got %+v, want code 3", exit)
	}
}

// maxSkew is how wrong a guest's clock may be after a restore.
const maxSkew = 50 * time.Millisecond

// wantClock asks until an answer came fast enough to tell.
func wantClock(f *fixture) {
	f.Helper()
	for end := time.Now().Add(deadline); ; {
		before := time.Now()
		text := f.ask(request{Op: "clock"})
		took := time.Since(before)
		ns, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			f.Fatal(err)
		}
		skew := time.Unix(0, ns).Sub(before.Add(took / 2)).Abs()
		if skew <= maxSkew {
			return
		}
		if took < maxSkew/2 || time.Now().After(end) {
			f.Errorf("the guest's clock is wrong by %v (asked in %v)", skew, took)
			return
		}
	}
}

// restoreTwice: two guests from one memory go their own ways, and do not draw
// the same random numbers.
func restoreTwice(t *testing.T, h Harness) {
	testenv.LeakCheck(t)
	a, b, c := newGuest(t, h), newGuest(t, h), newGuest(t, h)
	a.start()
	dir := a.hibernate()
	b.restoredFrom(t, a, dir)
	c.restoredFrom(t, a, dir)
	b.wantCount(1)
	b.wantCount(2)
	c.wantCount(1)
	if x, y := b.ask(request{Op: "random"}), c.ask(request{Op: "random"}); x == y {
		t.Errorf("both draw %s", x)
	}
}

// continueTwentyTimes: pausing, taking memory and going on leaves no trace, and
// neither does failing to.
func continueTwentyTimes(t *testing.T, h Harness) {
	f := newFixture(t, h)
	f.start()
	before := f.wantState(driver.Running)
	for i := range 20 {
		if i%4 == 3 {
			f.failCheckpoint()
		} else {
			f.checkpoint()
		}
		f.continues()
		f.wantCount(i + 1)
		wantClock(f)
	}
	if after := f.wantState(driver.Running); after != before {
		t.Errorf("got %+v, was %+v", after, before)
	}
}

// failCheckpoint pauses the guest and has no room for its memory.
func (f *fixture) failCheckpoint() {
	f.Helper()
	dir := f.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"); err != nil {
		f.Fatal(err)
	}
	defer func() { _ = unix.Unmount(dir, unix.MNT_DETACH) }()
	if err := f.hibernator().Pause(f.ctx(), f.spec.Ref); err != nil {
		f.Fatalf("pause: %v", err)
	}
	if err := f.hibernator().Checkpoint(f.ctx(), f.spec.Ref, dir); err == nil {
		f.Fatal("memory was taken to a full disk")
	}
}

// checkpointOnFullDisk: the guest is paused still, and another try succeeds.
func checkpointOnFullDisk(t *testing.T, h Harness) {
	testenv.LeakCheck(t)
	a, b := newGuest(t, h), newGuest(t, h)
	a.start()
	a.wantCount(1)
	a.failCheckpoint()
	dir := a.hibernate()
	b.restoredFrom(t, a, dir)
	b.wantCount(2)
}

func checkpointUnpaused(t *testing.T, h Harness) {
	f := newFixture(t, h)
	f.start()
	if err := f.hibernator().Checkpoint(f.ctx(), f.spec.Ref, t.TempDir()); !errs.Is(err, errs.Conflict) {
		t.Errorf("checkpoint of a guest that runs: got %v, want conflict", err)
	}
	f.wantCount(1)
	// Told to go on, it dials again and is otherwise left alone.
	f.continues()
	f.wantCount(2)
}

func stopPaused(t *testing.T, h Harness) {
	f := newFixture(t, h)
	f.start()
	pid := f.wantState(driver.Running).PID
	for range 2 {
		if err := f.hibernator().Pause(f.ctx(), f.spec.Ref); err != nil {
			t.Fatalf("pause: %v", err)
		}
	}
	if err := f.d.Stop(f.ctx(), f.spec.Ref, 200*time.Millisecond); err != nil {
		t.Fatalf("stop: %v", err)
	}
	wantDead(t, pid)
	f.wantExit(model.CauseStopped, 0)
}

// adoptPaused: whoever paused it may have died.
func adoptPaused(t *testing.T, h Harness) {
	f := newFixture(t, h)
	f.start()
	f.checkpoint()
	f.renew()
	f.wantState(driver.Running)
	f.continues()
	f.wantCount(1)
}

func nothingToPause(t *testing.T, h Harness) {
	f := newFixture(t, h)
	d := f.hibernator()
	for name, err := range map[string]error{
		"pause":      d.Pause(f.ctx(), f.spec.Ref),
		"checkpoint": d.Checkpoint(f.ctx(), f.spec.Ref, t.TempDir()),
		"continue":   d.Continue(f.ctx(), f.spec.Ref),
	} {
		if !errs.Is(err, errs.NotFound) {
			t.Errorf("%s of a guest that never was: got %v, want not_found", name, err)
		}
	}
}

// restoreDamaged: an image that is none starts nothing, and a cold start goes
// on from there.
func restoreDamaged(t *testing.T, h Harness) {
	testenv.LeakCheck(t)
	a, b := newGuest(t, h), newGuest(t, h)
	a.start()
	dir := a.hibernate()
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) == 0 {
		t.Fatalf("the memory is %v, %v", entries, err)
	}
	for _, e := range entries {
		if err := os.Truncate(filepath.Join(dir, e.Name()), 100); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.hibernator().Restore(b.ctx(), b.spec, dir); err == nil {
		t.Fatal("restored from what was cut short")
	}
	if s := b.inspect(); s.State == driver.Running {
		t.Errorf("after a failed restore: %+v", s)
	}
	if err := b.d.Delete(b.ctx(), b.spec.Ref); err != nil {
		t.Fatalf("delete: %v", err)
	}
	b.start()
	b.wantCount(1)
}
