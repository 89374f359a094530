package gvisor

import (
	"context"
	"errors"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/billethq/billet/internal/driver"
	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/model"
)

// adopt reports whether the guest runs already.
func (g guest) adopt(ctx context.Context) (bool, error) {
	s, err := g.status(ctx)
	if err != nil {
		return false, err
	}
	switch s.State {
	case driver.Exited:
		return false, errs.New(errs.Conflict, "it has ended (%s)", s.Exit.Cause).WithHint("delete it before it is started again")
	case driver.Absent:
		return false, nil
	case driver.Running:
	}
	if _, ok, err := g.dir.sandbox(); ok || err != nil {
		return ok, err
	}
	// The node died in Start. runsc may have come to its end before; if not,
	// boot ends what it has left.
	p, err := g.askSandbox(ctx)
	if err != nil {
		return false, context.Cause(ctx)
	}
	return true, g.dir.saveSandbox(p)
}

// askSandbox asks runsc for the process of a guest whose PID 1 has started.
func (g guest) askSandbox(ctx context.Context) (process, error) {
	state, err := g.askState(ctx)
	if err != nil {
		return process{}, err
	}
	if state.Status != runscRunning {
		return process{}, errs.New(errs.Conflict, "the sandbox is %s", state.Status)
	}
	return identify(state.PID)
}

// findSandbox returns the process that runsc has started. One that has ended
// already is os.ErrNotExist.
func (g guest) findSandbox() (process, error) {
	text, err := os.ReadFile(g.dir.path(pidFile))
	if err != nil {
		return process{}, err
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return process{}, err
	}
	return identify(pid)
}

// runSandbox runs runsc in the guest's mount namespace; nil is the caller's own.
// args are its flags, a command that takes a bundle, and the command's flags.
func (g guest) runSandbox(ctx context.Context, spec driver.Spec, ns, console *os.File, args ...string) error {
	args = append(append(sandboxFlags(), args...), "--bundle="+g.dir.path(bundleDir), containerID)
	_, err := command{
		path: g.runsc, dir: g.ref.Dir, mountNS: ns, console: console, doors: g.group.Doors(),
		needs: []string{spec.RootFS, spec.SideDir, spec.GuestBinary},
		args:  args,
	}.run(ctx)
	return err
}

// prepare makes the cgroup and the directory, afresh.
func (g guest) prepare(ctx context.Context, spec driver.Spec) error {
	if err := g.freshGroup(ctx, spec); err != nil {
		return err
	}
	for _, stale := range []string{bundleDir, stateDir, stoppingFile, panicFile, metricsFile, pidFile, gateFile} {
		if err := os.RemoveAll(g.dir.path(stale)); err != nil {
			return err
		}
	}
	if err := writeBundle(g.dir.path(bundleDir), bundle(spec, g.group.Path())); err != nil {
		return err
	}
	return makeGate(g.dir.path(gateFile))
}

// freshGroup makes the guest's cgroup. A node that was killed has taken its
// runsc with it, but that may still be on its way out, and into the old group.
func (g guest) freshGroup(ctx context.Context, spec driver.Spec) error {
	ctx, cancel := context.WithTimeout(ctx, killTimeout)
	defer cancel()
	for {
		if err := g.kill(ctx); err != nil {
			return err
		}
		if err := g.group.Remove(ctx); err != nil {
			return err
		}
		if err := g.group.Create(limits(spec)); !errs.Is(err, errs.Conflict) {
			return err
		}
	}
}

func openNamespace(path string) (*os.File, error) {
	if path == "" {
		return nil, nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, errs.Wrap(errs.Unavailable, err, "open the mount namespace")
	}
	return f, nil
}

// status implements Inspect. A guest whose start never ended is Running while
// it has processes, because they are compute, and Absent when it has none.
func (g guest) status(ctx context.Context) (driver.Status, error) {
	exit, ok, err := g.dir.exit()
	if err != nil {
		return driver.Status{}, err
	}
	if ok {
		return driver.Status{State: driver.Exited, Exit: exit}, nil
	}
	p, started, err := g.dir.sandbox()
	if err != nil {
		return driver.Status{}, err
	}
	if !started {
		pids, err := g.group.PIDs()
		if err != nil || len(pids) == 0 {
			return driver.Status{State: driver.Absent}, err
		}
		return driver.Status{State: driver.Running, PID: pids[0]}, nil
	}
	alive, err := p.alive()
	if err != nil {
		return driver.Status{}, err
	}
	if alive {
		return driver.Status{State: driver.Running, PID: p.PID}, nil
	}
	exit, err = g.settle(ctx, p, nothingHeard)
	return driver.Status{State: driver.Exited, Exit: exit}, err
}

func (g guest) wait(ctx context.Context) (driver.Exit, error) {
	exit, ok, err := g.dir.exit()
	if ok || err != nil {
		return exit, err
	}
	p, started, err := g.dir.sandbox()
	if err != nil {
		return driver.Exit{}, err
	}
	if !started {
		return driver.Exit{}, errs.New(errs.NotFound, "there is none")
	}
	console := openConsole(p)
	if console != nil {
		defer console.Close()
	}
	code, err := g.exitStatus(ctx)
	if err != nil && ctx.Err() == nil {
		g.log.Debug("no exit code from the sandbox", "instance_id", g.ref.ID, "error", err)
	}
	if err := p.wait(ctx); err != nil {
		return driver.Exit{}, err
	}
	return g.settle(ctx, p, heard{code: code, console: console})
}

func (g guest) stop(ctx context.Context, grace time.Duration) error {
	s, err := g.status(ctx)
	if err != nil {
		return err
	}
	if s.State != driver.Running {
		return nil
	}
	g.markStopping()
	p, started, err := g.dir.sandbox()
	if err != nil {
		return err
	}
	if !started {
		return g.kill(ctx)
	}
	if grace > 0 {
		if err := g.ask(ctx, p, grace); err != nil {
			return err
		}
	}
	_, err = g.settle(ctx, p, nothingHeard)
	return err
}

// ask sends SIGTERM to PID 1 and waits, for grace at most. That the guest does
// not answer is no error; that the caller gave up is.
func (g guest) ask(ctx context.Context, p process, grace time.Duration) error {
	wait, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	short, cancelShort := context.WithTimeout(wait, controlTimeout)
	defer cancelShort()
	if _, err := g.command("kill", containerID, "TERM").run(short); err != nil {
		g.log.Warn("guest does not take a signal", "instance_id", g.ref.ID, "error", err)
		return ctx.Err()
	}
	if err := p.wait(wait); err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

// heard is what only somebody who was there when the guest ended can know.
type heard struct {
	code    int
	console *os.File // nil, or what PID 1 said
}

var nothingHeard = heard{code: unknownCode}

// settle ends what is left of a guest, and records how it ended.
func (g guest) settle(ctx context.Context, p process, h heard) (driver.Exit, error) {
	if exit, ok, err := g.dir.exit(); ok || err != nil {
		return exit, err
	}
	// Evidence first: what the kill below does must not look like its cause.
	exit, err := g.examine(p, h)
	if err != nil {
		return driver.Exit{}, err
	}
	if err := g.kill(ctx); err != nil {
		return driver.Exit{}, err
	}
	if exit, err = g.dir.saveExit(exit); err != nil {
		// A full disk must not hide an end. The next one to ask examines what
		// is left, and may know less.
		g.log.Warn("how a guest ended is not recorded", "instance_id", g.ref.ID, "error", err)
	}
	if exit.Cause != model.CauseStopped {
		g.log.Info("guest ended", "instance_id", g.ref.ID, "cause", exit.Cause, "code", exit.Code, "detail", exit.Detail)
	}
	return exit, nil
}

// markStopping records that the guest's end is asked for. On a full disk the
// guest ends all the same, and only the name of the cause suffers.
func (g guest) markStopping() {
	if err := g.dir.markStopping(); err != nil {
		g.log.Warn("a guest's stop is not recorded", "instance_id", g.ref.ID, "error", err)
	}
}

// kill ends every process of the guest, by force.
func (g guest) kill(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, killTimeout, errors.New("the kernel did not end them in time"))
	defer cancel()
	return g.group.Kill(ctx)
}
