package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/billethq/billet/internal/errs"
)

// v1 drives one hierarchy per controller.
type v1 struct {
	root string
	// mounts are the directories of all hierarchies, ours and those in which
	// runsc makes a group of the same name.
	mounts []string
}

// v1Required are the controllers that hold our limits.
var v1Required = []string{"cpu", "memory", "pids"}

func openV1(root string) (v1, error) {
	h := v1{root: root}
	entries, err := os.ReadDir(root)
	if err != nil {
		return v1{}, fmt.Errorf("list cgroup hierarchies: %w", err)
	}
	for _, e := range entries {
		dir := filepath.Join(root, e.Name())
		var fs unix.Statfs_t
		// Symbolic links are second names of joint hierarchies ("cpu" for
		// "cpu,cpuacct"); on a hybrid host "unified" is version 2.
		if e.IsDir() && unix.Statfs(dir, &fs) == nil && fs.Type == unix.CGROUP_SUPER_MAGIC {
			h.mounts = append(h.mounts, dir)
		}
	}
	for _, c := range v1Required {
		if _, err := os.Stat(filepath.Join(root, c, "cgroup.procs")); err != nil {
			return v1{}, errs.New(errs.Unsupported, "this host has no cgroup controller %q", c).
				WithHint("mount the cgroup controllers cpu, memory and pids below %s", root)
		}
	}
	return h, nil
}

func (v1) version() int { return 1 }

func (h v1) dir(controller, group string) string { return filepath.Join(h.root, controller, group) }

func (h v1) dirs(group string) ([]string, error) {
	dirs := make([]string, len(h.mounts))
	for i, m := range h.mounts {
		dirs[i] = filepath.Join(m, group)
	}
	return dirs, nil
}

func (h v1) create(group string, l Limits) error {
	memory := strconv.FormatInt(l.Memory, 10)
	settings := map[string][]setting{
		"cpu": {
			{file: "cpu.cfs_period_us", value: microseconds(cpuPeriod.Microseconds())},
			{file: "cpu.cfs_quota_us", value: microseconds(quota(l))},
			{file: "cpu.cfs_burst_us", value: microseconds(quota(l)), optional: true},
		},
		"memory": {
			{file: "memory.limit_in_bytes", value: memory},
			// Memory and swap together; missing without swap accounting.
			{file: "memory.memsw.limit_in_bytes", value: memory, optional: true},
		},
		"pids": {{file: "pids.max", value: strconv.Itoa(l.Processes)}},
	}
	// In every hierarchy, as runsc would: what is started in the group then
	// never has to be moved there.
	for _, m := range h.mounts {
		if err := os.MkdirAll(filepath.Join(m, group), 0o755); err != nil {
			return err
		}
	}
	if err := h.inheritProcessors(group); err != nil {
		return err
	}
	for _, c := range v1Required {
		if err := write(h.dir(c, group), settings[c]); err != nil {
			return err
		}
	}
	return nil
}

// inheritProcessors gives a group and those above it the processors and memory
// nodes of their parents: a new group of the cpuset controller has none, and
// takes no process.
func (h v1) inheritProcessors(group string) error {
	at := filepath.Join(h.root, "cpuset")
	if _, err := os.Stat(filepath.Join(at, "cpuset.cpus")); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	for name := range strings.SplitSeq(group, "/") {
		below := filepath.Join(at, name)
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
			value, err := os.ReadFile(filepath.Join(at, file))
			if err != nil {
				return err
			}
			if err := write(below, []setting{{file: file, value: strings.TrimSpace(string(value))}}); err != nil {
				return err
			}
		}
		at = below
	}
	return nil
}

func (h v1) doors(group string) []string {
	files := make([]string, len(h.mounts))
	for i, m := range h.mounts {
		files[i] = filepath.Join(m, group, "tasks")
	}
	return files
}

func (h v1) counters(group string) (c Counters, err error) {
	// oom_kill is there since Linux 4.13, older than any kernel gVisor runs on.
	if c.OOMKills, err = readField(h.dir("memory", group), "memory.oom_control", "oom_kill"); err != nil {
		return Counters{}, err
	}
	if c.Memory, err = readNumber(h.dir("memory", group), "memory.usage_in_bytes"); err != nil {
		return Counters{}, err
	}
	if c.ForksRefused, err = readField(h.dir("pids", group), "pids.events", "max"); err != nil {
		return Counters{}, err
	}
	cpu, err := readNumber(h.dir("cpuacct", group), "cpuacct.usage")
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return Counters{}, err
	}
	c.CPU = time.Duration(cpu)
	return c, nil
}

// kill signals each process through a descriptor that was opened before the
// group was read again: an id that another process took over meanwhile is no
// longer in the group, and is left alone.
func (h v1) kill(group string, pids []int) error {
	handles := make(map[int]int, len(pids))
	defer func() {
		for _, fd := range handles {
			_ = unix.Close(fd)
		}
	}()
	for _, pid := range pids {
		fd, err := unix.PidfdOpen(pid, 0)
		if errors.Is(err, unix.ESRCH) {
			continue
		}
		if err != nil {
			return fmt.Errorf("open process %d: %w", pid, err)
		}
		handles[pid] = fd
	}
	dirs, err := h.dirs(group)
	if err != nil {
		return err
	}
	for _, dir := range dirs {
		still, err := readPIDs(filepath.Join(dir, "cgroup.procs"))
		if err != nil {
			return err
		}
		for _, pid := range still {
			if fd, ok := handles[pid]; ok {
				if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
					return fmt.Errorf("kill process %d: %w", pid, err)
				}
			}
		}
	}
	return nil
}
