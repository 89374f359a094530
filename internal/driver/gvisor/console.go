package gvisor

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// consoleSize bounds what PID 1 may say on its standard error. It is the
// beginning that is kept: an agent that works says next to nothing there, and
// one that does not says why at once.
const consoleSize = 64 << 10

const consoleName = "billet-console"

// newConsole makes the file behind a sandbox's standard error. It outlives the
// node as long as the sandbox has it open, is charged to the guest's memory,
// and cannot grow: a guest that wrote to an ordinary file for ever would fill
// the host's disk, and one that wrote to a pipe nobody reads would stall.
func newConsole() (*os.File, error) {
	fd, err := unix.MemfdCreate(consoleName, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("make the console: %w", err)
	}
	f := os.NewFile(uintptr(fd), "console")
	if err := f.Truncate(consoleSize); err != nil {
		f.Close()
		return nil, fmt.Errorf("make the console: %w", err)
	}
	if _, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_GROW|unix.F_SEAL_SHRINK|unix.F_SEAL_SEAL); err != nil {
		f.Close()
		return nil, fmt.Errorf("seal the console: %w", err)
	}
	return f, nil
}

// readConsole returns what has been written: all up to the first zero byte.
func readConsole(f *os.File) string {
	b, _ := io.ReadAll(io.NewSectionReader(f, 0, consoleSize))
	text, _, _ := bytes.Cut(b, []byte{0})
	return strings.TrimSpace(string(text))
}

// openConsole finds the console of a running sandbox, whoever made it, and
// keeps it from vanishing with the sandbox. It returns nil when there is none.
func openConsole(p process) *os.File {
	dir := fmt.Sprintf("/proc/%d/fd", p.PID)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		target, err := os.Readlink(path)
		if err != nil || !strings.HasPrefix(target, "/memfd:"+consoleName) {
			continue
		}
		if f, err := os.Open(path); err == nil {
			return f
		}
	}
	return nil
}
