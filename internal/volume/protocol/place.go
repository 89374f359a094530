package protocol

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/billethq/billet/internal/atomicfile"
	"github.com/billethq/billet/internal/errs"
)

// The names in a volume's directory.
const (
	socketFile  = "control.sock"
	processFile = "process.json"
	lockFile    = "lock"
	overlayDir  = "overlay"
	deviceDir   = "dev"
	rootfsDir   = "rootfs"
	logFile     = "volume.log"
)

// Place is a volume's directory.
type Place string

// OverlayDir holds what the guest wrote: all that must be kept of the
// directory when an instance is set aside.
func (p Place) OverlayDir() string { return filepath.Join(string(p), overlayDir) }

// DeviceDir is where the device's file is mounted.
func (p Place) DeviceDir() string { return filepath.Join(string(p), deviceDir) }

// RootFS is where the file system is mounted.
func (p Place) RootFS() string { return filepath.Join(string(p), rootfsDir) }

// LogFile is where the process complains.
func (p Place) LogFile() string { return filepath.Join(string(p), logFile) }

// Make makes the directories.
func (p Place) Make() error {
	for _, dir := range []string{p.OverlayDir(), p.DeviceDir(), p.RootFS()} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("make volume directory: %w", err)
		}
	}
	return nil
}

// Lock is held by the process that serves the volume, for as long as it lives.
// A second one is refused as errs.Conflict: both would write the overlay.
func (p Place) Lock() (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(string(p), lockFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock volume: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, errs.New(errs.Conflict, "volume %s is served by another process", string(p))
		}
		return nil, fmt.Errorf("lock volume: %w", err)
	}
	return f, nil
}

// Record keeps p's process for those who come later.
func (p Place) Record(proc Process) error {
	raw, err := json.Marshal(proc)
	if err != nil {
		return err
	}
	if err := atomicfile.Write(filepath.Join(string(p), processFile), append(raw, '\n'), 0o600); err != nil {
		return fmt.Errorf("record volume process: %w", err)
	}
	return nil
}

// Recorded returns the process that was recorded last; errs.NotFound when none
// was.
func (p Place) Recorded() (Process, error) {
	var proc Process
	raw, err := os.ReadFile(filepath.Join(string(p), processFile))
	if errors.Is(err, os.ErrNotExist) {
		return proc, errs.New(errs.NotFound, "no volume process in %s", string(p))
	}
	if err != nil {
		return proc, fmt.Errorf("read volume process: %w", err)
	}
	if err := json.Unmarshal(raw, &proc); err != nil {
		return proc, errs.Wrap(errs.Internal, err, "record of volume process in %s is damaged", string(p))
	}
	return proc, nil
}

// Listen opens the control socket. The lock says that nobody else listens, so
// an old socket is removed.
func (p Place) Listen() (net.Listener, error) {
	if err := os.Remove(filepath.Join(string(p), socketFile)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("remove old control socket: %w", err)
	}
	return viaDir(p, func(path string) (net.Listener, error) {
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
		if err != nil {
			return nil, fmt.Errorf("open control socket: %w", err)
		}
		l.SetUnlinkOnClose(false) // the path names this very descriptor
		return l, nil
	})
}

// Dial connects to the control socket.
func (p Place) Dial(ctx context.Context) (net.Conn, error) {
	return viaDir(p, func(path string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", path)
	})
}

// viaDir names the socket through a descriptor of its directory: a socket's
// path has at most 107 bytes, and a state directory may lie deeper.
func viaDir[T any](p Place, fn func(path string) (T, error)) (T, error) {
	dir, err := os.Open(string(p))
	if err != nil {
		var none T
		return none, err
	}
	defer dir.Close()
	return fn(fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), socketFile))
}

// ProcessStart returns when process pid started, in clock ticks after boot;
// errs.NotFound when there is none, or only its remains.
func ProcessStart(pid int) (uint64, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		return 0, errs.New(errs.NotFound, "no process %d", pid)
	}
	if err != nil {
		return 0, err
	}
	// The name in parentheses may hold anything, so count from its end.
	fields := strings.Fields(string(raw[strings.LastIndexByte(string(raw), ')')+1:]))
	const state, threads, start = 0, 17, 19
	if len(fields) <= start {
		return 0, errs.New(errs.Internal, "stat of process %d is short", pid)
	}
	// The first thread of a process that was killed may be gone while others
	// still hold its files.
	if (fields[state] == "Z" || fields[state] == "X") && (fields[threads] == "1" || fields[threads] == "0") {
		return 0, errs.New(errs.NotFound, "process %d has ended", pid)
	}
	return strconv.ParseUint(fields[start], 10, 64)
}

// BootID identifies this boot of the kernel.
func BootID() (string, error) {
	raw, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(raw)), err
}

// Alive reports whether the process is the one that was recorded and runs.
func (p Process) Alive() (bool, error) {
	boot, err := BootID()
	if err != nil || boot != p.BootID {
		return false, err
	}
	start, err := ProcessStart(p.PID)
	if errs.Is(err, errs.NotFound) {
		return false, nil
	}
	return err == nil && start == p.Start, err
}
