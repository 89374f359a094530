package gvisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/billethq/billet/internal/driver"
	"github.com/billethq/billet/internal/errs"
)

// gateFile is where runsc waits before it does anything: a named pipe that it
// is told to be the file for its errors, and opens first of all. The kernel
// keeps it there until somebody reads. What comes before, executing a large
// program, takes as long as mounting a disk, and can so go on beside that. It
// says its errors on standard error as well.
const gateFile = "gate"

func makeGate(path string) error {
	if err := unix.Mkfifo(path, 0o600); err != nil {
		return fmt.Errorf("make the gate: %w", err)
	}
	return nil
}

// held is a guest's start whose runsc waits at the gate.
type held struct {
	guest   guest
	console *os.File
	giveUp  context.CancelCauseFunc
	done    chan error // of runsc; capacity 1
}

// hold starts runsc, by a command that takes a bundle: run, from nothing, or
// restore. On an error some of it may run.
func (g guest) hold(ctx context.Context, spec driver.Spec, verb ...string) (*held, error) {
	if err := g.prepare(ctx, spec); err != nil {
		return nil, err
	}
	ns, err := openNamespace(spec.MountNS)
	if err != nil {
		return nil, err
	}
	console, err := newConsole()
	if err != nil {
		_ = ns.Close()
		return nil, err
	}
	args := append([]string{"--log=" + gateFile}, verb...)
	args = append(args, "--detach", "--pid-file="+pidFile)
	ctx, giveUp := context.WithCancelCause(ctx)
	h := &held{guest: g, console: console, giveUp: giveUp, done: make(chan error, 1)}
	go func() {
		err := g.runSandbox(ctx, spec, ns, console, args...)
		_ = ns.Close()
		h.done <- err
	}()
	return h, nil
}

// Start implements driver.Prepared.
func (h *held) Start(ctx context.Context) error {
	return wrap(h.start(ctx), "start guest %s", h.guest.ref.ID)
}

// start opens the gate and waits until PID 1 has been started.
func (h *held) start(ctx context.Context) error {
	defer h.console.Close()
	defer h.giveUp(nil)
	defer context.AfterFunc(ctx, func() { h.giveUp(context.Cause(ctx)) })()
	late := time.AfterFunc(startTimeout, func() { h.giveUp(errs.New(errs.Unavailable, "it has not started within %v", startTimeout)) })
	defer late.Stop()
	err := h.pass()
	if err == nil {
		err = h.guest.up(h.console)
	}
	if err != nil {
		// Nothing of it may run on. The caller's context may have ended.
		return errors.Join(err, h.guest.kill(context.WithoutCancel(ctx)))
	}
	return nil
}

// pass lets runsc through and waits for its end.
func (h *held) pass() error {
	path := h.guest.dir.path(gateFile)
	// Opened whether runsc is there already or not, and until it has ended.
	gate, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		h.giveUp(err)
		return errors.Join(err, <-h.done)
	}
	defer gate.Close()
	err = <-h.done
	_ = os.Remove(path) // it has served
	return err
}

// Drop implements driver.Prepared.
func (h *held) Drop() {
	h.giveUp(errors.New("the start was given up"))
	<-h.done
	_ = h.console.Close()
	// What is left, if anything, the next start ends, or Delete.
	if err := h.guest.kill(context.Background()); err != nil {
		h.guest.log.Warn("a start that was given up is not gone", "instance_id", h.guest.ref.ID, "error", err)
	}
}

// up records the sandbox that runsc has started.
func (g guest) up(console *os.File) error {
	p, err := g.findSandbox()
	if errors.Is(err, os.ErrNotExist) {
		return errs.New(errs.Unavailable, "its PID 1 ended at once: %s", lastLines(readConsole(console)))
	}
	if err != nil {
		return fmt.Errorf("find the sandbox's process: %w", err)
	}
	return g.dir.saveSandbox(p)
}
