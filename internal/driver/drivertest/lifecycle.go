package drivertest

import (
	"context"
	"errors"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/billethq/billet/internal/driver"
	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/model"
	"github.com/billethq/billet/internal/testenv"
)

var lifecycle = map[string]func(*testing.T, Harness){
	"NothingThere":        nothingThere,
	"StartTwice":          startTwice,
	"AdoptByANewDriver":   adoptByANewDriver,
	"StopAsks":            stopAsks,
	"StopForces":          stopForces,
	"StopWithoutGrace":    stopWithoutGrace,
	"StopFrozen":          stopFrozen,
	"ManyAtOnce":          manyAtOnce,
	"StartAfterTheEnd":    startAfterTheEnd,
	"DeleteWhileRunning":  deleteWhileRunning,
	"WaitEndsWithContext": waitEndsWithContext,
	"Probe":               probe,
	"Usage":               usage,
}

func nothingThere(t *testing.T, h Harness) {
	f := newFixture(t, h)
	f.wantState(driver.Absent)
	if _, err := f.d.Wait(f.ctx(), f.spec.Ref); !errs.Is(err, errs.NotFound) {
		t.Errorf("wait: got %v, want not_found", err)
	}
	for range 2 {
		if err := f.d.Stop(f.ctx(), f.spec.Ref, time.Second); err != nil {
			t.Errorf("stop: %v", err)
		}
		if err := f.d.Delete(f.ctx(), f.spec.Ref); err != nil {
			t.Errorf("delete: %v", err)
		}
	}
	f.wantNoRemains()
}

func startTwice(t *testing.T, h Harness) {
	f := newFixture(t, h)
	f.start()
	before := f.wantState(driver.Running)
	if err := f.d.Start(f.ctx(), f.spec); err != nil {
		t.Fatalf("second start: %v", err)
	}
	if after := f.wantState(driver.Running); after != before {
		t.Errorf("second start: got %+v, was %+v", after, before)
	}
	if got := f.ask(request{Op: "ping"}); got != "pong" {
		t.Errorf("ping: got %q", got)
	}
}

func adoptByANewDriver(t *testing.T, h Harness) {
	f := newFixture(t, h)
	f.start()
	before := f.wantState(driver.Running)
	f.renew()
	if got := f.wantState(driver.Running); got != before {
		t.Errorf("adopted: got %+v, was %+v", got, before)
	}
	if err := f.d.Start(f.ctx(), f.spec); err != nil {
		t.Fatalf("start of what runs: %v", err)
	}
	if got := f.ask(request{Op: "ping"}); got != "pong" {
		t.Errorf("ping: got %q", got)
	}
	exits := f.watch()
	f.send(request{Op: "exit", N: 3})
	if exit := <-exits; exit.Code != 3 {
		t.Errorf("wait: got %+v, want code 3", exit)
	}
	f.wantExit(model.CauseExited, 3)
}

func stopAsks(t *testing.T, h Harness) {
	f := newFixture(t, h)
	f.start()
	pid := f.wantState(driver.Running).PID
	begin := time.Now()
	if err := f.d.Stop(f.ctx(), f.spec.Ref, deadline); err != nil {
		t.Fatalf("stop: %v", err)
	}
	if took := time.Since(begin); took > deadline/2 {
		t.Errorf("stop took %v: PID 1 has not heard the request", took)
	}
	wantDead(t, pid)
	f.wantExit(model.CauseStopped, 0)
	if err := f.d.Stop(f.ctx(), f.spec.Ref, deadline); err != nil {
		t.Errorf("second stop: %v", err)
	}
}

func stopForces(t *testing.T, h Harness) {
	f := newFixture(t, h)
	f.start()
	pid := f.wantState(driver.Running).PID
	f.ask(request{Op: "stubborn"})
	const grace = 300 * time.Millisecond
	begin := time.Now()
	if err := f.d.Stop(f.ctx(), f.spec.Ref, grace); err != nil {
		t.Fatalf("stop: %v", err)
	}
	if took := time.Since(begin); took < grace {
		t.Errorf("stop took %v, less than the grace of %v", took, grace)
	}
	wantDead(t, pid)
	f.wantExit(model.CauseStopped, 0)
}

func stopWithoutGrace(t *testing.T, h Harness) {
	f := newFixture(t, h)
	f.start()
	pid := f.wantState(driver.Running).PID
	waited := f.watch()
	if err := f.d.Stop(f.ctx(), f.spec.Ref, 0); err != nil {
		t.Fatalf("stop: %v", err)
	}
	wantDead(t, pid)
	if exit := <-waited; exit.Cause != model.CauseStopped {
		t.Errorf("a Wait that was under way: got %+v, want stopped", exit)
	}
	f.wantExit(model.CauseStopped, 0)
}

// stopFrozen: a sandbox that answers nothing is ended none the less.
func stopFrozen(t *testing.T, h Harness) {
	f := newFixture(t, h)
	f.start()
	pid := f.wantState(driver.Running).PID
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if err := f.d.Stop(f.ctx(), f.spec.Ref, 200*time.Millisecond); err != nil {
		t.Fatalf("stop: %v", err)
	}
	wantDead(t, pid)
	f.wantExit(model.CauseStopped, 0)
}

// manyAtOnce: calls for different guests do not get in each other's way.
func manyAtOnce(t *testing.T, h Harness) {
	testenv.LeakCheck(t)
	guests := make([]*fixture, 4)
	for i := range guests {
		guests[i] = newGuest(t, h)
	}
	var all sync.WaitGroup
	for _, f := range guests {
		all.Go(func() {
			if err := f.d.Start(f.ctx(), f.spec); err != nil {
				t.Errorf("start: %v", err)
			}
		})
	}
	all.Wait()
	pids := map[int]bool{}
	for _, f := range guests {
		f.accept()
		pids[f.wantState(driver.Running).PID] = true
	}
	if len(pids) != len(guests) {
		t.Errorf("%d guests have %d processes", len(guests), len(pids))
	}
	if err := guests[0].d.Stop(guests[0].ctx(), guests[0].spec.Ref, 0); err != nil {
		t.Errorf("stop: %v", err)
	}
	for _, f := range guests[1:] {
		if got := f.ask(request{Op: "ping"}); got != "pong" {
			t.Errorf("ping after another guest's end: got %q", got)
		}
	}
}

func startAfterTheEnd(t *testing.T, h Harness) {
	f := newFixture(t, h)
	f.start()
	f.send(request{Op: "exit"})
	f.wantExit(model.CauseExited, 0)
	if err := f.d.Start(f.ctx(), f.spec); !errs.Is(err, errs.Conflict) {
		t.Fatalf("start of what has ended: got %v, want conflict", err)
	}
	if err := f.d.Delete(f.ctx(), f.spec.Ref); err != nil {
		t.Fatalf("delete: %v", err)
	}
	f.wantState(driver.Absent)
	f.start()
	f.wantState(driver.Running)
}

func deleteWhileRunning(t *testing.T, h Harness) {
	f := newFixture(t, h)
	f.start()
	pid := f.wantState(driver.Running).PID
	f.renew()
	for range 2 {
		if err := f.d.Delete(f.ctx(), f.spec.Ref); err != nil {
			t.Fatalf("delete: %v", err)
		}
	}
	wantDead(t, pid)
	f.wantNoRemains()
	f.wantState(driver.Absent)
}

func waitEndsWithContext(t *testing.T, h Harness) {
	f := newFixture(t, h)
	f.start()
	pid := f.wantState(driver.Running).PID
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		_, err := f.d.Wait(ctx, f.spec.Ref)
		ended <- err
	}()
	f.awaitWatched(pid)
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("wait: got %v, want context canceled", err)
	}
	f.wantState(driver.Running)
}

func probe(t *testing.T, h Harness) {
	f := newFixture(t, h)
	b, err := f.d.Probe(f.ctx())
	if err != nil {
		t.Fatalf("probe: %v", err)
	}
	if b.Driver != f.d.Name() || b.BootTime <= 0 || b.Version == "" || len(b.Machine.Binary) != 64 || b.Machine.Driver != f.d.Name() || b.Machine.CPUFeatures == "" {
		t.Errorf("probe: got %+v", b)
	}
}

// wantDead checks that no process of that id is left. A zombie is dead; it
// waits for a parent that is not the driver.
func wantDead(t *testing.T, pid int) {
	t.Helper()
	if pid <= 0 {
		t.Fatalf("process id %d", pid)
	}
	if err := syscall.Kill(pid, 0); errors.Is(err, syscall.ESRCH) {
		return
	}
	args, err := os.ReadFile("/proc/" + itoa(pid) + "/cmdline")
	if err == nil && len(args) > 0 {
		t.Errorf("process %d is alive: %q", pid, args)
	}
}

// usage wants the counters of a driver that has some to see what a guest does,
// and whoever asks to be told when there is no guest.
func usage(t *testing.T, h Harness) {
	f := newFixture(t, h)
	meter, ok := f.d.(driver.Meter)
	if !ok {
		t.Skipf("driver %s measures nothing", f.d.Name())
	}
	if u, err := meter.Usage(f.ctx(), f.spec.Ref); !errs.Is(err, errs.NotFound) {
		t.Errorf("without a guest: got %+v, %v, want not_found", u, err)
	}
	f.start()
	before, err := meter.Usage(f.ctx(), f.spec.Ref)
	if err != nil {
		t.Fatal(err)
	}
	f.ask(request{Op: "memory", N: 16})
	after, err := meter.Usage(f.ctx(), f.spec.Ref)
	if err != nil || after.CPU <= before.CPU {
		t.Errorf("after some work: got %+v, %v, was %+v", after, err, before)
	}
}
