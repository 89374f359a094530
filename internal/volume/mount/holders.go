package mount

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// maxHolders bounds a list that people read.
const maxHolders = 8

// Holders names processes that keep a loop device in use: one for each mount
// namespace in which it is mounted, and those that have it or one of its files
// open. It is for people; a list may be out of date when it is read.
func Holders(loop string) []string {
	var st unix.Stat_t
	if err := unix.Stat(loop, &st); err != nil {
		return nil
	}
	device := fmt.Sprintf("%d:%d", unix.Major(st.Rdev), unix.Minor(st.Rdev))
	seen := map[string]bool{}
	var out []string
	procs, _ := filepath.Glob("/proc/[0-9]*")
	for _, proc := range procs {
		if len(out) == maxHolders {
			break
		}
		how := ""
		if ns, err := os.Readlink(proc + "/ns/mnt"); err == nil && !seen[ns] {
			seen[ns] = true
			if mounted(proc, device) {
				how = "has it mounted"
			}
		}
		if how == "" && opened(proc, loop, st.Rdev) {
			how = "has it open"
		}
		if how != "" {
			comm, _ := os.ReadFile(proc + "/comm")
			out = append(out, fmt.Sprintf("%s (process %s) %s", bytes.TrimSpace(comm), filepath.Base(proc), how))
		}
	}
	return out
}

func mounted(proc, device string) bool {
	table, _ := os.ReadFile(proc + "/mountinfo")
	for line := range bytes.Lines(table) {
		if f := strings.Fields(string(line)); len(f) > 2 && f[2] == device {
			return true
		}
	}
	return false
}

func opened(proc, loop string, dev uint64) bool {
	links, _ := filepath.Glob(proc + "/fd/*")
	links = append(links, proc+"/cwd", proc+"/root")
	for _, link := range links {
		target, err := os.Readlink(link)
		if err != nil {
			continue
		}
		if target == loop {
			return true
		}
		// Files of the mount itself: ask only for those with a path, a pipe's
		// or socket's stat is a waste.
		var st unix.Stat_t
		if strings.HasPrefix(target, "/") && unix.Stat(link, &st) == nil && st.Dev == dev {
			return true
		}
	}
	return false
}
