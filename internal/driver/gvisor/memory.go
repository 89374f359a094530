package gvisor

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/billethq/billet/internal/driver"
	"github.com/billethq/billet/internal/errs"
)

var _ driver.Hibernator = (*Driver)(nil)

// checkpointTimeout bounds the writing of a guest's memory to local files: the
// largest guest at the pace of a slow disk.
const checkpointTimeout = 10 * time.Minute

// The states of a container in runsc's words that matter here.
const (
	runscPaused  = "paused"
	runscRunning = "running"
)

// Pause implements driver.Hibernator.
func (d *Driver) Pause(ctx context.Context, ref driver.Ref) error {
	g, state, err := d.openRunning(ctx, ref)
	if err == nil && state == runscRunning {
		err = g.control(ctx, "pause", containerID)
	}
	return wrap(err, "pause guest %s", ref.ID)
}

// Checkpoint implements driver.Hibernator. What runsc writes is its own, in
// three files: its kernel's state, the pages, and where they belong.
func (d *Driver) Checkpoint(ctx context.Context, ref driver.Ref, dir string) error {
	g, state, err := d.openRunning(ctx, ref)
	if err == nil && state != runscPaused {
		err = errs.New(errs.Conflict, "the guest is %s, not paused", state)
	}
	if err == nil {
		err = g.checkpoint(ctx, dir)
	}
	return wrap(err, "take the memory of guest %s", ref.ID)
}

func (g guest) checkpoint(ctx context.Context, dir string) error {
	ctx, cancel := context.WithTimeout(ctx, checkpointTimeout)
	defer cancel()
	// A checkpoint that ends the sandbox, as it does without --leave-running,
	// leaves a dead one when it fails.
	_, err := g.command("checkpoint", "--image-path="+dir, "--leave-running", "--compression=none",
		"--exclude-committed-zero-pages", containerID).run(ctx)
	return err
}

// Continue implements driver.Hibernator.
func (d *Driver) Continue(ctx context.Context, ref driver.Ref) error {
	g, state, err := d.openRunning(ctx, ref)
	if err == nil && state == runscPaused {
		err = g.control(ctx, "resume", containerID)
	}
	if err == nil {
		err = g.control(ctx, "kill", containerID, "USR1")
	}
	return wrap(err, "continue guest %s", ref.ID)
}

// Restore implements driver.Hibernator.
func (d *Driver) Restore(ctx context.Context, spec driver.Spec, dir string) error {
	err := d.start(ctx, spec, "restore", "--image-path="+dir, "--background", "--direct")
	return wrap(err, "restore guest %s", spec.ID)
}

// openRunning finds a guest that runs, and its state in runsc's words.
func (d *Driver) openRunning(ctx context.Context, ref driver.Ref) (guest, string, error) {
	g, err := d.open(ref)
	if err != nil {
		return guest{}, "", err
	}
	s, err := g.status(ctx)
	if err != nil {
		return guest{}, "", err
	}
	if s.State != driver.Running {
		return guest{}, "", errs.New(errs.NotFound, "it is %s", s.State)
	}
	state, err := g.askState(ctx)
	return g, state.Status, err
}

// control gives runsc a command that is answered at once.
func (g guest) control(ctx context.Context, args ...string) error {
	ctx, cancel := context.WithTimeout(ctx, controlTimeout)
	defer cancel()
	_, err := g.command(args...).run(ctx)
	return err
}

// runscState is what runsc says of a container.
type runscState struct {
	Status string `json:"status"`
	PID    int    `json:"pid"`
}

func (g guest) askState(ctx context.Context) (runscState, error) {
	ctx, cancel := context.WithTimeout(ctx, controlTimeout)
	defer cancel()
	out, err := g.command("state", containerID).run(ctx)
	if err != nil {
		return runscState{}, err
	}
	var state runscState
	if err := json.Unmarshal([]byte(out), &state); err != nil {
		return runscState{}, fmt.Errorf("runsc state: %w", err)
	}
	return state, nil
}
