package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/billethq/billet/internal/errs"
)

// v2 drives the one unified hierarchy.
type v2 struct{ root string }

// v2Controllers are enabled down to every group: those that hold our limits,
// and cpuset, from which runsc reads how many processors there are.
var v2Controllers = []string{"cpu", "cpuset", "memory", "pids"}

func openV2(root string) (v2, error) {
	text, err := readText(root, "cgroup.controllers")
	if err != nil {
		return v2{}, errs.Wrap(errs.Unsupported, err, "read cgroup controllers")
	}
	have := strings.Fields(text)
	for _, c := range v2Controllers {
		if !slices.Contains(have, c) {
			return v2{}, errs.New(errs.Unsupported, "this host has no cgroup controller %q", c).
				WithHint("in a container, give it all cgroup controllers; on a host, look for cgroup_disable= on the kernel command line")
		}
	}
	return v2{root: root}, nil
}

func (v2) version() int { return 2 }

func (h v2) dirs(group string) ([]string, error) {
	return []string{filepath.Join(h.root, group)}, nil
}

func (h v2) doors(string) []string { return nil }

func (h v2) create(group string, l Limits) error {
	dir := filepath.Join(h.root, group)
	parent := filepath.Dir(dir)
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return err
	}
	enable := []setting{{file: "cgroup.subtree_control", value: "+" + strings.Join(v2Controllers, " +")}}
	for _, d := range []string{h.root, parent} {
		err := write(d, enable)
		if errors.Is(err, unix.EBUSY) {
			// Only the true root may hold processes and controllers at once.
			return &errs.Error{
				Kind: errs.Unsupported, Message: "enable cgroup controllers", Cause: err,
				Hint: "billet runs in a container whose cgroup root holds processes: start it in the host's cgroup namespace",
			}
		}
		if err != nil {
			return fmt.Errorf("enable cgroup controllers: %w", err)
		}
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	return write(dir, []setting{
		{file: "cpu.max", value: fmt.Sprintf("%d %d", quota(l), cpuPeriod.Microseconds())},
		{file: "cpu.max.burst", value: strconv.FormatInt(quota(l), 10), optional: true},
		{file: "memory.max", value: strconv.FormatInt(l.Memory, 10)},
		{file: "memory.swap.max", value: "0", optional: true},
		// A guest that lost one of its processes would be a broken one.
		{file: "memory.oom.group", value: "1", optional: true},
		{file: "pids.max", value: strconv.Itoa(l.Processes)},
	})
}

func (h v2) counters(group string) (c Counters, err error) {
	dir := filepath.Join(h.root, group)
	if c.OOMKills, err = readField(dir, "memory.events", "oom_kill"); err != nil {
		return Counters{}, err
	}
	if c.Memory, err = readNumber(dir, "memory.current"); err != nil {
		return Counters{}, err
	}
	if c.ForksRefused, err = readField(dir, "pids.events", "max"); err != nil {
		return Counters{}, err
	}
	us, err := readField(dir, "cpu.stat", "usage_usec")
	if err != nil {
		return Counters{}, err
	}
	c.CPU = time.Duration(us) * time.Microsecond
	return c, nil
}

func (h v2) kill(group string, pids []int) error {
	dir := filepath.Join(h.root, group)
	err := write(dir, []setting{{file: "cgroup.kill", value: "1"}})
	if errors.Is(err, os.ErrNotExist) { // before Linux 5.14
		return v1{root: h.root, mounts: []string{h.root}}.kill(group, pids)
	}
	return err
}
