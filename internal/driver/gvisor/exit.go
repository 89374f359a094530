package gvisor

import (
	"fmt"
	"strings"

	"github.com/billethq/billet/internal/cgroup"
	"github.com/billethq/billet/internal/driver"
	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/model"
)

// unknownCode stands for an exit code that nobody was there to hear.
const unknownCode = -1

// killedCode is what a shell calls SIGKILL. Nothing in a guest can send that
// to its PID 1; the host's memory limit can.
const killedCode = 128 + 9

// evidence is all that a host knows of an ended guest.
type evidence struct {
	rebooted bool // the host has been started again since
	stopping bool // its end had been asked for
	code     int  // PID 1's exit code, or unknownCode
	orderly  bool // the sandbox ended because its PID 1 had
	counters cgroup.Counters
	panicLog string
	console  string // the end of what PID 1 said, "" when that was nothing or nobody heard it
}

// maxPanic is how much of a panic log is read: the message and the first
// goroutine of a log that can have thousands.
const maxPanic = 64 << 10

// examine gathers the evidence and judges it.
func (g guest) examine(p process, h heard) (driver.Exit, error) {
	boot, err := bootID()
	if err != nil {
		return driver.Exit{}, err
	}
	e := evidence{
		rebooted: boot != p.BootID,
		// Without a directory somebody is deleting it.
		stopping: g.dir.stopping() || !exists(string(g.dir)),
		code:     h.code,
		orderly:  h.code != unknownCode || g.dir.head(metricsFile, 1) != "",
		panicLog: g.dir.head(panicFile, maxPanic),
	}
	if h.console != nil {
		e.console = lastLines(readConsole(h.console))
	}
	e.counters, err = g.group.Counters()
	// After a reboot there is no group, and no counter to read.
	if err != nil && !errs.Is(err, errs.NotFound) {
		return driver.Exit{}, err
	}
	return judge(e), nil
}

// judge names the cause. The order is that of how certain each sign is.
func judge(e evidence) driver.Exit {
	switch {
	case e.rebooted:
		return driver.Exit{Cause: model.CauseHostRebooted, Detail: "the host was started again while the guest ran"}
	case e.stopping:
		return driver.Exit{Cause: model.CauseStopped}
	// A guest can live on after a refused fork or the end of one process, so
	// a counter that moved needs a second sign.
	case e.counters.ForksRefused > 0 && noNewThread(e.panicLog):
		return driver.Exit{Cause: model.CauseTooManyProcesses, Detail: fmt.Sprintf(
			"the host refused %d forks at the guest's process limit", e.counters.ForksRefused)}
	case e.counters.OOMKills > 0 && (!e.orderly || e.code == killedCode):
		return driver.Exit{Cause: model.CauseOutOfMemory, Detail: fmt.Sprintf(
			"the host killed %d of the guest's processes at its memory limit", e.counters.OOMKills)}
	case e.panicLog != "":
		return driver.Exit{Cause: model.CauseCrashed, Detail: panicDetail(e.panicLog)}
	case e.orderly && e.code == unknownCode:
		return driver.Exit{Cause: model.CauseExited, Detail: "PID 1 ended; its exit code is unknown, because nobody was watching"}
	case e.orderly:
		detail := fmt.Sprintf("PID 1 ended with code %d", e.code)
		if e.console != "" {
			detail += ": " + e.console
		}
		return driver.Exit{Cause: model.CauseExited, Code: e.code, Detail: detail}
	}
	return driver.Exit{Cause: model.CauseKilled, Detail: "the sandbox is gone; no counter moved, and it logged nothing"}
}

// noNewThread reports whether a sandbox gave up because the host refused it a
// thread or a process.
func noNewThread(panicLog string) bool {
	for _, words := range []string{
		"failed to create new OS thread",   // the Go runtime
		"resource temporarily unavailable", // a fork that returned its error
		"failed to get clone",              // systrap, when a thread of the guest forks
	} {
		if strings.Contains(panicLog, words) {
			return true
		}
	}
	return false
}

// panicDetail returns the first lines of a panic log: what happened, without
// the stacks.
func panicDetail(log string) string {
	const mostLines, mostBytes = 6, 1 << 10
	lines := strings.Split(strings.TrimSpace(log), "\n")
	for i, line := range lines {
		if i == mostLines || i > 0 && strings.HasPrefix(line, "goroutine ") {
			lines = lines[:i]
			break
		}
	}
	text := strings.TrimSpace(strings.Join(lines, "\n"))
	return text[:min(len(text), mostBytes)]
}
