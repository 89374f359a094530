// Package gvisor makes guests with gVisor's runsc: a user-space kernel per
// guest, on any Linux host, without hardware virtualisation.
//
// A guest is one sandbox process and its gofer, in a cgroup of their own and
// detached from the node. The driver runs nothing beside them and keeps nothing
// in memory; what it has to know again is in Spec.Dir (record.go) or in the
// kernel. To end a guest it needs no answer from runsc: it kills the cgroup.
package gvisor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/billethq/billet/internal/cgroup"
	"github.com/billethq/billet/internal/driver"
	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/model"
)

// DefaultCgroupParent is the group below which every guest has its own.
const DefaultCgroupParent = "billet"

// Config is what a Driver needs.
type Config struct {
	Runsc        string // absolute path of the runsc binary
	GuestBinary  string // absolute host path of billet-guest; only Probe needs it
	CgroupParent string // one path element; "" is DefaultCgroupParent
	Logger       *slog.Logger
}

// Driver implements driver.Driver.
type Driver struct {
	runsc string
	guest string
	tree  *cgroup.Tree
	log   *slog.Logger
}

var (
	_ driver.Meter    = (*Driver)(nil)
	_ driver.Preparer = (*Driver)(nil)
)

// New finds out how the host mounts cgroups; it starts nothing. A host without
// the controllers is errs.Unsupported.
func New(c Config) (*Driver, error) {
	if c.Logger == nil {
		return nil, errs.New(errs.Invalid, "gvisor driver: no logger")
	}
	if !filepath.IsAbs(c.Runsc) {
		return nil, errs.New(errs.Invalid, "gvisor driver: runsc path %q is not absolute", c.Runsc)
	}
	if c.CgroupParent == "" {
		c.CgroupParent = DefaultCgroupParent
	}
	tree, err := cgroup.Open(c.CgroupParent)
	if err != nil {
		return nil, fmt.Errorf("gvisor driver: %w", err)
	}
	return &Driver{runsc: c.Runsc, guest: c.GuestBinary, tree: tree, log: c.Logger}, nil
}

// Name returns model.DriverGVisor.
func (d *Driver) Name() model.DriverName { return model.DriverGVisor }

const (
	// killTimeout bounds the wait for processes that have been killed. A
	// sandbox with tens of GiB takes seconds to give its memory back.
	killTimeout = time.Minute
	// removeTimeout bounds the wait for the kernel to let go of a dead group.
	removeTimeout = 10 * time.Second
)

// Start implements driver.Driver.
func (d *Driver) Start(ctx context.Context, spec driver.Spec) error {
	return wrap(d.start(ctx, spec, "run"), "start guest %s", spec.ID)
}

// Prepare implements driver.Preparer.
func (d *Driver) Prepare(ctx context.Context, spec driver.Spec) (driver.Prepared, error) {
	h, err := d.hold(ctx, spec, "run")
	if err == nil && h == nil {
		err = errs.New(errs.Conflict, "it runs already")
	}
	if err != nil {
		return nil, fmt.Errorf("prepare guest %s: %w", spec.ID, err)
	}
	return h, nil
}

// start brings a guest up by a command of runsc, unless it runs.
func (d *Driver) start(ctx context.Context, spec driver.Spec, verb ...string) error {
	h, err := d.hold(ctx, spec, verb...)
	if err != nil || h == nil {
		return err
	}
	return h.start(ctx)
}

// hold begins a start by a command of runsc; nil: the guest runs already.
func (d *Driver) hold(ctx context.Context, spec driver.Spec, verb ...string) (*held, error) {
	if err := checkSpec(spec); err != nil {
		return nil, err
	}
	g, err := d.open(spec.Ref)
	if err != nil {
		return nil, err
	}
	running, err := g.adopt(ctx)
	if err != nil || running {
		return nil, err
	}
	h, err := g.hold(ctx, spec, verb...)
	if err != nil {
		return nil, errors.Join(err, g.kill(context.WithoutCancel(ctx)))
	}
	return h, nil
}

// Inspect implements driver.Driver. It finishes what is left of a guest that
// has ended: a gofer that lingers is ended, and the cause is recorded.
func (d *Driver) Inspect(ctx context.Context, ref driver.Ref) (driver.Status, error) {
	g, err := d.open(ref)
	if err != nil {
		return driver.Status{}, fmt.Errorf("inspect guest %s: %w", ref.ID, err)
	}
	s, err := g.status(ctx)
	return s, wrap(err, "inspect guest %s", ref.ID)
}

// Wait implements driver.Driver. For a guest that never was it returns
// errs.NotFound.
func (d *Driver) Wait(ctx context.Context, ref driver.Ref) (driver.Exit, error) {
	g, err := d.open(ref)
	if err != nil {
		return driver.Exit{}, fmt.Errorf("wait for guest %s: %w", ref.ID, err)
	}
	exit, err := g.wait(ctx)
	return exit, wrap(err, "wait for guest %s", ref.ID)
}

// Stop implements driver.Driver.
func (d *Driver) Stop(ctx context.Context, ref driver.Ref, grace time.Duration) error {
	g, err := d.open(ref)
	if err != nil {
		return fmt.Errorf("stop guest %s: %w", ref.ID, err)
	}
	return wrap(g.stop(ctx, grace), "stop guest %s", ref.ID)
}

// Delete implements driver.Driver. It removes ref.Dir.
func (d *Driver) Delete(ctx context.Context, ref driver.Ref) error {
	g, err := d.open(ref)
	if err != nil {
		return fmt.Errorf("delete guest %s: %w", ref.ID, err)
	}
	// A Wait that is under way must not take this for a murder.
	g.markStopping()
	if err := g.kill(ctx); err != nil {
		return fmt.Errorf("delete guest %s: %w", ref.ID, err)
	}
	ctx, cancel := context.WithTimeout(ctx, removeTimeout)
	defer cancel()
	if err := g.group.Remove(ctx); err != nil {
		return fmt.Errorf("delete guest %s: %w", ref.ID, err)
	}
	return wrap(os.RemoveAll(ref.Dir), "delete guest %s", ref.ID)
}

// Usage implements driver.Meter, from the guest's cgroup.
func (d *Driver) Usage(_ context.Context, ref driver.Ref) (driver.Usage, error) {
	g, err := d.open(ref)
	if err != nil {
		return driver.Usage{}, fmt.Errorf("measure guest %s: %w", ref.ID, err)
	}
	c, err := g.group.Counters()
	return driver.Usage{CPU: c.CPU}, wrap(err, "measure guest %s", ref.ID)
}

// guest is one instance as seen by this driver.
type guest struct {
	*Driver
	ref   driver.Ref
	group cgroup.Group
	dir   records
}

func (d *Driver) open(ref driver.Ref) (guest, error) {
	if !filepath.IsAbs(ref.Dir) {
		return guest{}, errs.New(errs.Invalid, "directory %q is not absolute", ref.Dir)
	}
	group, err := d.tree.Group(string(ref.ID))
	if err != nil {
		return guest{}, err
	}
	return guest{Driver: d, ref: ref, group: group, dir: records(ref.Dir)}, nil
}

// wrap says what was being done, when something went wrong.
func wrap(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf(format+": %w", append(args, err)...)
}
