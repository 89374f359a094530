package gvisor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// process names one process of this host for good: ids are used again, and a
// reboot starts from the beginning.
type process struct {
	PID    int    `json:"pid"`
	Start  uint64 `json:"start"` // clock ticks since boot, from /proc/PID/stat
	BootID string `json:"boot_id"`
}

func identify(pid int) (process, error) {
	boot, err := bootID()
	if err != nil {
		return process{}, err
	}
	start, _, err := readStat(pid)
	if err != nil {
		return process{}, err
	}
	return process{PID: pid, Start: start, BootID: boot}, nil
}

// alive reports whether the process still runs. A zombie does not.
func (p process) alive() (bool, error) {
	boot, err := bootID()
	if err != nil || boot != p.BootID {
		return false, err
	}
	start, state, err := readStat(p.PID)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		return false, nil
	}
	return err == nil && start == p.Start && state != 'Z' && state != 'X', err
}

// wait blocks until the process has ended, whoever its parent is.
func (p process) wait(ctx context.Context) error {
	fd, err := unix.PidfdOpen(p.PID, unix.PIDFD_NONBLOCK)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open process %d: %w", p.PID, err)
	}
	// Through the runtime's poller, so that a waiting guest costs no thread.
	f := os.NewFile(uintptr(fd), "pidfd")
	defer f.Close()
	// The id may have been taken over before it was opened.
	if alive, err := p.alive(); err != nil || !alive {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = f.Close() })
	defer stop()
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = conn.Read(func(fd uintptr) bool {
		// A descriptor of a process is readable once the process has ended.
		ready, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		if err != nil && !errors.Is(err, unix.EINTR) {
			failed = err
			return true
		}
		return ready > 0
	})
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return errors.Join(err, failed)
}

func bootID() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("read boot id: %w", err)
	}
	return strings.TrimSpace(string(b)), nil
}

// readStat returns a process's start time and state.
func readStat(pid int) (start uint64, state byte, err error) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, 0, err
	}
	return parseStat(b)
}

// parseStat reads fields 3 and 22. The name before them is in parentheses and
// may hold anything, parentheses and spaces included.
func parseStat(b []byte) (start uint64, state byte, err error) {
	fields := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	if len(fields) < 20 {
		return 0, 0, fmt.Errorf("process status has %d fields after the name", len(fields))
	}
	start, err = strconv.ParseUint(string(fields[19]), 10, 64)
	if err != nil {
		return 0, 0, fmt.Errorf("start time: %w", err)
	}
	return start, fields[0][0], nil
}
