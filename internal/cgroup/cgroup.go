// Package cgroup limits one instance's share of its host and counts what hit a
// limit.
//
// All groups lie below one parent that belongs to billet; nothing else is ever
// touched. Groups survive the process that made them: a Group is only a name,
// and every method reads the kernel's state.
//
// The files are read and written here rather than through containerd/cgroups,
// because that reads no pids.events, gives no descriptor for
// CLONE_INTO_CGROUP, and on version 1 removes only the controllers it was told
// of, while runsc adds its own; what would be left for it to do is a dozen
// writes.
package cgroup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/billethq/billet/internal/clock"
	"github.com/billethq/billet/internal/errs"
)

// mountPoint is where every distribution mounts cgroups, and the only place
// where runsc looks for them.
const mountPoint = "/sys/fs/cgroup"

// cpuPeriod is the kernel's default accounting period: short enough that a
// guest which used up its share waits less than a person notices.
const cpuPeriod = 100 * time.Millisecond

// quota is the time of a period, in microseconds. What a group leaves of it,
// up to as much again, it may use in the next (Linux 5.14): a start, and a
// command after a silence, are not cut short for taking two processors at once.
// On average nobody gets more.
func quota(l Limits) int64 { return int64(l.CPUs) * cpuPeriod.Microseconds() }

// Limits bound a group. Every field must be positive.
type Limits struct {
	CPUs      int   // whole processors' worth of time
	Memory    int64 // bytes, page cache included; the group never swaps
	Processes int   // processes and threads on the host
}

// Counters tell what a group has used, and how often it met a limit, since
// Create.
type Counters struct {
	OOMKills     int64 // processes killed because Memory was used up
	ForksRefused int64 // forks refused because Processes were reached
	Memory       int64 // bytes in use
	CPU          time.Duration
}

// hierarchy is one version's way to lay out and drive groups. A group is named
// by its path below the mount point, such as billet/ID.
type hierarchy interface {
	version() int
	// create makes the group and sets its limits; it exists nowhere.
	create(group string, l Limits) error
	counters(group string) (Counters, error)
	// dirs lists the directories that make up the group, existing or not. Each
	// has a cgroup.procs.
	dirs(group string) ([]string, error)
	// doors are the files of Doors.
	doors(group string) []string
	// kill sends SIGKILL to every process of the group, pids among them.
	kill(group string, pids []int) error
}

// Tree is the part of the host's cgroups that belongs to billet.
type Tree struct {
	parent string
	h      hierarchy
}

var namePattern = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_-]*$`)

// Open finds out which version this host uses for its CPU, memory and process
// controllers; a hybrid host, which has them on version 1, counts as that.
// parent is the one directory below the root in which groups are made; Open
// itself makes nothing. A host without those controllers is errs.Unsupported.
func Open(parent string) (*Tree, error) {
	if !namePattern.MatchString(parent) {
		return nil, errs.New(errs.Invalid, "cgroup parent %q is not a plain name", parent)
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(mountPoint, &fs); err != nil {
		return nil, errs.Wrap(errs.Unsupported, err, "look for cgroups at %s", mountPoint)
	}
	h, err := hierarchy(nil), error(nil)
	if fs.Type == unix.CGROUP2_SUPER_MAGIC {
		h, err = openV2(mountPoint)
	} else {
		h, err = openV1(mountPoint)
	}
	if err != nil {
		return nil, err
	}
	return &Tree{parent: parent, h: h}, nil
}

// Version returns 1 or 2.
func (t *Tree) Version() int { return t.h.version() }

// Group names a group without looking whether it exists. name is one path
// element; an instance's id is.
func (t *Tree) Group(name string) (Group, error) {
	if !namePattern.MatchString(name) {
		return Group{}, errs.New(errs.Invalid, "cgroup name %q is not a plain name", name)
	}
	return Group{h: t.h, path: filepath.Join(t.parent, name)}, nil
}

// Close removes the parent if no group is left below it. It is for tests and
// for uninstalling: a node leaves the parent where it is.
func (t *Tree) Close() error { return removeDirs(t.h, t.parent) }

// Group is one instance's group. The zero value is unusable.
type Group struct {
	h    hierarchy
	path string
}

// Path returns the group's path from the root of every hierarchy, beginning
// with a slash: what an OCI specification calls cgroupsPath.
func (g Group) Path() string { return "/" + g.path }

// Doors are the files into which a process with a single thread writes 0 to
// enter the group, before it executes what is to run there. On version 1 that
// is the way that costs nothing: moving a process with several threads, or
// another one, waits for a grace period of the kernel, some 15 ms. On version 2
// there are none: a process can be created in its group.
func (g Group) Doors() []string { return g.h.doors(g.path) }

// Create makes the group with its counters at zero. A group of that name that
// a crash left behind is removed first; one that still has processes is
// errs.Conflict.
func (g Group) Create(l Limits) error {
	if l.CPUs <= 0 || l.Memory <= 0 || l.Processes <= 0 {
		return errs.New(errs.Invalid, "cgroup limits %+v are not positive", l)
	}
	pids, err := g.PIDs()
	if err != nil {
		return err
	}
	if len(pids) > 0 {
		return errs.New(errs.Conflict, "cgroup %s has %d processes", g.path, len(pids))
	}
	if err := removeDirs(g.h, g.path); err != nil {
		return fmt.Errorf("remove an old cgroup %s: %w", g.path, err)
	}
	if err := g.h.create(g.path, l); err != nil {
		return fmt.Errorf("create cgroup %s: %w", g.path, err)
	}
	return nil
}

// Counters reads the group's counters. A group that does not exist is
// errs.NotFound.
func (g Group) Counters() (Counters, error) {
	c, err := g.h.counters(g.path)
	if errors.Is(err, os.ErrNotExist) {
		return Counters{}, errs.Wrap(errs.NotFound, err, "read counters of cgroup %s", g.path)
	}
	if err != nil {
		return Counters{}, fmt.Errorf("read counters of cgroup %s: %w", g.path, err)
	}
	return c, nil
}

// PIDs lists the group's processes in ascending order, each once; none when
// the group does not exist. Zombies do not count.
func (g Group) PIDs() ([]int, error) {
	dirs, err := g.h.dirs(g.path)
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, dir := range dirs {
		found, err := readPIDs(filepath.Join(dir, "cgroup.procs"))
		if err != nil {
			return nil, fmt.Errorf("list processes of cgroup %s: %w", g.path, err)
		}
		pids = append(pids, found...)
	}
	slices.Sort(pids)
	return slices.Compact(pids), nil
}

// killPoll is how often Kill and Remove look again: ending a guest takes the
// kernel a few milliseconds, and version 1 tells nobody when a group is empty.
const killPoll = 2 * time.Millisecond

// Kill ends every process of the group and returns when none is left. Those
// that a process forks meanwhile are ended too. It gives up with
// errs.Unavailable when ctx ends first.
func (g Group) Kill(ctx context.Context) error {
	for {
		pids, err := g.PIDs()
		if err != nil {
			return err
		}
		if len(pids) == 0 {
			return nil
		}
		if err := g.h.kill(g.path, pids); err != nil {
			return fmt.Errorf("kill cgroup %s: %w", g.path, err)
		}
		if err := clock.Sleep(ctx, killPoll); err != nil {
			return errs.Wrap(errs.Unavailable, err, "wait for processes %v of cgroup %s to end", pids, g.path)
		}
	}
}

// Remove removes the group from every hierarchy; one that is not there is no
// error. The kernel keeps a group busy for a moment after its last process, so
// Remove tries until ctx ends.
func (g Group) Remove(ctx context.Context) error {
	for {
		err := removeDirs(g.h, g.path)
		if !errors.Is(err, unix.EBUSY) {
			return err
		}
		if clock.Sleep(ctx, killPoll) != nil {
			return errs.Wrap(errs.Unavailable, err, "remove cgroup %s", g.path)
		}
	}
}

func removeDirs(h hierarchy, group string) error {
	dirs, err := h.dirs(group)
	if err != nil {
		return err
	}
	for _, dir := range dirs {
		// Not os.Remove, which hides EBUSY behind what unlink says.
		if err := unix.Rmdir(dir); err != nil && !errors.Is(err, unix.ENOENT) {
			return &os.PathError{Op: "rmdir", Path: dir, Err: err}
		}
	}
	return nil
}
