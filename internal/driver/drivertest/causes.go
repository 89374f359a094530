package drivertest

import (
	"strings"
	"syscall"
	"testing"

	"github.com/billethq/billet/internal/driver"
	"github.com/billethq/billet/internal/model"
)

var causes = map[string]func(*testing.T, Harness){
	"ExitCode":         exitCode,
	"OutOfMemory":      outOfMemory,
	"TooManyProcesses": tooManyProcesses,
	"Crashed":          crashed,
	"Killed":           killed,
	"NobodyWatching":   nobodyWatching,
}

// exitCode: a Wait that is under way hears the code and PID 1's last words.
func exitCode(t *testing.T, h Harness) {
	f := newFixture(t, h)
	f.start()
	f.renew()
	exits := f.watch()
	f.send(request{Op: "exit", N: 42, Text: "out of ideas"})
	exit := <-exits
	if exit.Cause != model.CauseExited || exit.Code != 42 || !strings.Contains(exit.Detail, "out of ideas") {
		t.Errorf("wait: got %+v, want exited, 42, with PID 1's words", exit)
	}
	f.wantExit(model.CauseExited, 42)
}

func outOfMemory(t *testing.T, h Harness) {
	f := newFixture(t, h)
	f.start()
	f.send(request{Op: "memory", N: int(f.spec.Shape.Memory>>20) * 2})
	f.wantExit(model.CauseOutOfMemory, 0)
}

// tooManyProcesses: up to its limit a guest is served, far beyond it ends.
func tooManyProcesses(t *testing.T, h Harness) {
	f := newFixture(t, h)
	f.spec.Shape.Memory = 4 << 30 // processes are to run out, and not what they need
	f.start()
	f.ask(request{Op: "processes", N: f.spec.Shape.Processes - 1})
	f.wantState(driver.Running)
	f.send(request{Op: "bomb"})
	f.wantExit(model.CauseTooManyProcesses, 0)
}

func crashed(t *testing.T, h Harness) {
	f := newFixture(t, h)
	f.start()
	f.send(request{Op: h.CrashOp})
	exit := f.wantExit(model.CauseCrashed, 0)
	if strings.TrimSpace(exit.Detail) == "" {
		t.Error("the detail does not say how it crashed")
	}
}

func killed(t *testing.T, h Harness) {
	f := newFixture(t, h)
	f.start()
	if err := syscall.Kill(f.wantState(driver.Running).PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	f.wantExit(model.CauseKilled, 0)
}

// nobodyWatching: the cause is found although no Wait was under way. The code
// may be unknown then; the detail says so.
func nobodyWatching(t *testing.T, h Harness) {
	f := newFixture(t, h)
	f.start()
	pid := f.wantState(driver.Running).PID
	f.send(request{Op: "exit", N: 9})
	waitForEnd(t, pid)
	f.renew()
	exit := f.wantState(driver.Exited).Exit
	if exit.Cause != model.CauseExited || exit.Code != 9 && !strings.Contains(exit.Detail, "unknown") {
		t.Errorf("inspect: got %+v, want exited with the code, or a detail that says it is unknown", exit)
	}
}
