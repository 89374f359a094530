// Package leaks finds what a test left on the host, and removes it.
//
// Other tests run on the same host at the same time. What counts as a test's
// own is what lies below its temporary directory, a process that carries its
// mark in the environment or that directory on its command line, a cgroup of
// billet's that is empty or holds such a process, and a loop device without a
// file that no process uses.
package leaks

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Scope says whose leaks are looked for.
type Scope struct {
	Env string // an assignment, such as "MARK=x"; "" is none
	Dir string // an absolute directory
}

// Leak is one thing that is still there.
type Leak struct {
	Kind   string // process, mount, loop device, network namespace or cgroup
	Name   string
	remove func() error
}

func (l Leak) String() string { return l.Kind + " " + l.Name }

// Remove ends it by force. What hides behind it may appear only then: the
// mount below a mount, the cgroup of a process.
func (l Leak) Remove() error { return l.remove() }

// Find lists what is there now, in an order in which it can be removed.
func Find(s Scope) []Leak {
	return slices.Concat(s.processes(), s.mounts(), s.loops(), namespaces(), s.cgroups())
}

func (s Scope) processes() []Leak {
	var out []Leak
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil || pid == os.Getpid() || !s.owns(dir) {
			continue
		}
		args, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
		text := string(bytes.ReplaceAll(bytes.TrimRight(args, "\x00"), []byte{0}, []byte{' '}))
		out = append(out, Leak{"process", fmt.Sprintf("%d: %s", pid, text), func() error { return unix.Kill(pid, unix.SIGKILL) }})
	}
	return out
}

// owns reports whether the process in dir is in the scope. Its command line
// speaks where a sandbox has cleared its environment. A zombie has neither: it
// holds nothing but a row of the process table.
func (s Scope) owns(dir string) bool {
	env, _ := os.ReadFile(filepath.Join(dir, "environ"))
	if s.Env != "" && slices.Contains(strings.Split(string(env), "\x00"), s.Env) {
		return true
	}
	args, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
	return bytes.Contains(args, []byte(s.Dir+"/"))
}

// mounts are listed the newest first: it may lie on an older one.
func (s Scope) mounts() []Leak {
	var out []Leak
	table, _ := os.ReadFile("/proc/self/mountinfo")
	for line := range bytes.Lines(table) {
		if f := strings.Fields(string(line)); len(f) > 4 && strings.HasPrefix(f[4], s.Dir+"/") {
			out = append(out, Leak{"mount", f[4], func() error { return unix.Unmount(f[4], unix.MNT_DETACH) }})
		}
	}
	slices.Reverse(out)
	return out
}

// loops are those on a file of the scope, and orphans. The file of a device in
// a private mount namespace has a path that says nothing here ("/disk"), but
// as long as its guest lives some process has it mounted or open.
func (s Scope) loops() []Leak {
	var out []Leak
	files, _ := filepath.Glob("/sys/block/loop*/loop/backing_file")
	for _, file := range files {
		text, _ := os.ReadFile(file)
		backing := strings.TrimSpace(string(text))
		device := "/dev/" + strings.Split(file, "/")[3]
		if strings.HasPrefix(backing, s.Dir+"/") || !exists(backing) && !inUse(device) {
			out = append(out, Leak{"loop device", device + " on " + backing, func() error { return detach(device) }})
		}
	}
	return out
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// inUse reports whether any process has the device mounted or open.
func inUse(device string) bool {
	tables, _ := filepath.Glob("/proc/[0-9]*/mountinfo")
	for _, table := range tables {
		text, _ := os.ReadFile(table)
		if bytes.Contains(text, []byte(" "+device+" ")) {
			return true
		}
	}
	fds, _ := filepath.Glob("/proc/[0-9]*/fd/*")
	return slices.ContainsFunc(fds, func(fd string) bool {
		target, _ := os.Readlink(fd)
		return target == device
	})
}

func detach(device string) error {
	f, err := os.OpenFile(device, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	return unix.IoctlSetInt(int(f.Fd()), unix.LOOP_CLR_FD, 0)
}

// namespaces are the named network namespaces of billet.
func namespaces() []Leak {
	var out []Leak
	names, _ := filepath.Glob("/run/netns/billet*")
	for _, name := range names {
		out = append(out, Leak{"network namespace", name, func() error {
			if err := unix.Unmount(name, unix.MNT_DETACH); err != nil {
				return err
			}
			return os.Remove(name)
		}})
	}
	return out
}

// cgroups are billet's, in each hierarchy, innermost first.
func (s Scope) cgroups() []Leak {
	var out []Leak
	for _, pattern := range []string{"/sys/fs/cgroup/billet", "/sys/fs/cgroup/*/billet"} {
		tops, _ := filepath.Glob(pattern)
		for _, top := range tops {
			_ = filepath.WalkDir(top, func(path string, d os.DirEntry, err error) error {
				if err == nil && d.IsDir() && path != top && s.ours(path) {
					out = append(out, Leak{"cgroup", path, func() error { return unix.Rmdir(path) }})
				}
				return nil
			})
		}
	}
	slices.Reverse(out)
	return out
}

// ours reports whether a group is empty or holds a process of the scope.
// Another test's group has that test's processes.
func (s Scope) ours(group string) bool {
	f, err := os.Open(filepath.Join(group, "cgroup.procs"))
	if err != nil {
		return false // gone meanwhile
	}
	defer f.Close()
	empty := true
	for lines := bufio.NewScanner(f); lines.Scan(); empty = false {
		if s.owns(filepath.Join("/proc", lines.Text())) {
			return true
		}
	}
	return empty && !hasChildren(group)
}

// hasChildren keeps an empty parent of somebody's full group out.
func hasChildren(group string) bool {
	entries, _ := os.ReadDir(group)
	return slices.ContainsFunc(entries, func(e os.DirEntry) bool { return e.IsDir() })
}
