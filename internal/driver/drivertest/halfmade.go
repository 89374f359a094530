package drivertest

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/billethq/billet/internal/driver"
	"github.com/billethq/billet/internal/model"
)

// halfMade checks what is left by a Start that came to nothing.
var halfMade = map[string]func(*testing.T, Harness){
	"StartFails":       startFails,
	"StartInterrupted": startInterrupted,
	"EndsAtOnce":       endsAtOnce,
}

func startFails(t *testing.T, h Harness) {
	for name, spoil := range map[string]func(*driver.Spec){
		"NoRoot":      func(s *driver.Spec) { s.RootFS += "-missing" },
		"NoBinary":    func(s *driver.Spec) { s.GuestBinary += "-missing" },
		"NoSideDir":   func(s *driver.Spec) { s.SideDir += "-missing" },
		"NoNamespace": func(s *driver.Spec) { s.MountNS = "/proc/0/ns/mnt" },
		"BadBinary":   func(s *driver.Spec) { s.GuestBinary = "/etc/hostname" },
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, h)
			good := f.spec
			spoil(&f.spec)
			if err := f.d.Start(f.ctx(), f.spec); err == nil {
				t.Fatal("started")
			}
			if s := f.inspect(); s.State == driver.Running {
				t.Errorf("after a start that failed: got %+v", s)
			}
			if err := f.d.Delete(f.ctx(), f.spec.Ref); err != nil {
				t.Fatalf("delete: %v", err)
			}
			f.wantNoRemains()
			f.spec = good
			f.start()
		})
	}
}

// startInterrupted gives up a start at moments spread over its whole length,
// and takes the guest on from there in every way there is.
func startInterrupted(t *testing.T, h Harness) {
	f := newFixture(t, h)
	begin := time.Now()
	f.start()
	whole := time.Since(begin)
	if err := f.d.Delete(f.ctx(), f.spec.Ref); err != nil {
		t.Fatalf("delete: %v", err)
	}
	f.hangUp()

	next := []func(){
		func() { f.start() },
		func() { _ = f.d.Stop(f.ctx(), f.spec.Ref, 0) },
		func() { f.inspect() },
		func() {},
	}
	const moments = 12
	interrupted := 0
	for i := range moments {
		ctx, cancel := context.WithTimeout(context.Background(), whole*time.Duration(i)/moments)
		err := f.d.Start(ctx, f.spec)
		cancel()
		if err != nil {
			interrupted++
			if s := f.inspect(); s.State == driver.Running {
				t.Fatalf("interrupted at moment %d: still %+v", i, s)
			}
			f.renew()
			next[i%len(next)]()
		}
		if err := f.d.Delete(f.ctx(), f.spec.Ref); err != nil {
			t.Fatalf("delete after moment %d: %v", i, err)
		}
		f.wantNoRemains()
		f.hangUp()
	}
	if interrupted == 0 {
		t.Fatalf("none of %d starts within %v was interrupted", moments, whole)
	}
}

// endsAtOnce: a PID 1 that ends may do so before Start returns or after. In
// either case somebody is told, and nothing is taken for running.
func endsAtOnce(t *testing.T, h Harness) {
	f := newFixture(t, h)
	if err := os.WriteFile(filepath.Join(f.spec.RootFS, "end_at_once"), []byte("no way"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := f.d.Start(f.ctx(), f.spec); err != nil {
		if !strings.Contains(err.Error(), "no way") {
			t.Errorf("start: %v does not have PID 1's words", err)
		}
		f.wantState(driver.Absent)
		return
	}
	if exit, err := f.d.Wait(f.ctx(), f.spec.Ref); err != nil || exit.Cause != model.CauseExited {
		t.Errorf("wait: got %+v, %v, want exited", exit, err)
	}
	f.wantState(driver.Exited)
}

// waitForEnd blocks until a process that is not a child has ended.
func waitForEnd(t *testing.T, pid int) {
	t.Helper()
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(deadline.Milliseconds()))
	if err != nil || n == 0 {
		t.Fatalf("process %s has not ended: %v", filepath.Join("/proc", itoa(pid)), errors.Join(err, os.ErrDeadlineExceeded))
	}
}
