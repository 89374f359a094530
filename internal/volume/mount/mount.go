// Package mount puts a device's file system into a mount namespace and takes
// it out again: loop device, ext4, growing, freezing, leftovers.
//
// The process that serves the device must never wait in the kernel for its own
// answer: killed then, it would stay for ever, its connection open, and every
// sync of the host would wait with it. So it makes none of the calls that wait
// for the device (mount, sync, freeze, unmount): a child process does, the
// helper, which is started for one order. And the mount lives in a mount
// namespace of its own (see Namespace), in which the serving process never is:
// a process that is killed leaves its namespace, and with it unmounts what
// only lives there, before its descriptors are closed.
//
// The helper also holds each freeze. It thaws when its standard input ends, so
// a server that is killed leaves no frozen file system behind. If both are
// killed, the frozen file system keeps its loop device attached after every
// mount is gone; Recover finds it by the device's tag, mounts the same file
// system once more and thaws it.
package mount

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/billethq/billet/internal/clock"
	"github.com/billethq/billet/internal/errs"
)

// detachWait bounds how long the kernel is given to drop a loop device after
// its last unmount.
const detachWait = 5 * time.Second

// pollEvery is the pause between two looks at state of the kernel's that has
// no notification.
const pollEvery = 5 * time.Millisecond

// MountRequest asks for a file system.
type MountRequest struct {
	Disk string `json:"disk"` // the file to put a loop device over
	Dir  string `json:"dir"`  // where to mount
	Tag  string `json:"tag"`  // of the loop device; at most 63 bytes
	Size int64  `json:"size"` // of the device
	// Grow a file system that is smaller than the device. Only for a disk that
	// can be made again when the process ends half way.
	Grow bool `json:"grow"`
}

// Mounted says what was made.
type Mounted struct {
	Loop  string `json:"loop"`  // path of the loop device
	Grown bool   `json:"grown"` // the file system was made larger
	// How long the steps took.
	Attach time.Duration `json:"attach"`
	Grow   time.Duration `json:"grow"`
	Mount  time.Duration `json:"mount"`
}

// mountDisk attaches, grows and mounts. When it fails nothing is left.
func mountDisk(ctx context.Context, req MountRequest) (Mounted, error) {
	var out Mounted
	watch := clock.Start()
	loop, err := attach(req.Disk, req.Tag)
	if err != nil {
		return out, err
	}
	defer loop.Close() // the mount keeps the device; without one it detaches
	out.Loop = loop.Name()
	sb, err := readSuperblock(loop)
	if err != nil {
		return out, err
	}
	out.Attach = watch.Lap()
	if req.Grow && sb.blocks < uint64(req.Size/ext4BlockSize) {
		if err := grow(ctx, loop, req.Dir, sb); err != nil {
			return out, err
		}
		out.Grown = true
	}
	out.Grow = watch.Lap()
	if err := unix.Mount(out.Loop, req.Dir, "ext4", ext4Flags, ext4Options); err != nil {
		return out, fmt.Errorf("mount %s at %s: %w", out.Loop, req.Dir, err)
	}
	err = within(req.Dir, func(dir *os.File) error {
		sample(dir)
		return syncDisk(dir)
	})
	out.Mount = watch.Lap()
	if err != nil {
		return out, errors.Join(err, unix.Unmount(req.Dir, 0))
	}
	return out, nil
}

// UnmountRequest asks to take a file system out again.
type UnmountRequest struct {
	Dir string `json:"dir"`
	Tag string `json:"tag"`
}

// unmountDisk unmounts and returns when the loop device is detached, which is
// when nothing can write to the disk any more. It may be repeated. Past the
// deadline it is errs.Conflict and names who holds the device.
func unmountDisk(ctx context.Context, req UnmountRequest) error {
	ctx, cancel := context.WithTimeout(ctx, detachWait)
	defer cancel()
	for {
		err := unix.Unmount(req.Dir, 0)
		if err == nil || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) {
			break // EINVAL: not mounted
		}
		if !errors.Is(err, unix.EBUSY) {
			return fmt.Errorf("unmount %s: %w", req.Dir, err)
		}
		if clock.Sleep(ctx, pollEvery) != nil {
			return held(req.Tag)
		}
	}
	return waitDetached(ctx, req.Tag)
}

// waitDetached returns nil when no loop device has the tag. When ctx ends
// first it is errs.Conflict.
func waitDetached(ctx context.Context, tag string) error {
	for {
		loops, err := Loops(tag)
		if err != nil || len(loops) == 0 {
			return err
		}
		if clock.Sleep(ctx, pollEvery) != nil {
			return held(tag)
		}
	}
}

// held explains why a loop device of the tag is still there.
func held(tag string) error {
	loops, err := Loops(tag)
	if err != nil {
		return err
	}
	for _, loop := range loops {
		if who := Holders(loop); len(who) > 0 {
			return errs.New(errs.Conflict, "%s is still in use: %s", loop, strings.Join(who, ", ")).
				WithHint("end these processes")
		}
	}
	return errs.New(errs.Conflict, "still attached, and no process holds it: %s", strings.Join(loops, ", "))
}

// recoverDisk detaches the loop devices of a tag whose server is dead. It may
// only be called in a mount namespace of its own.
func recoverDisk(ctx context.Context, tag string) error {
	loops, err := Loops(tag)
	if err != nil || len(loops) == 0 {
		return err
	}
	dir, err := os.MkdirTemp("", "billet-recover-")
	if err != nil {
		return err
	}
	defer os.Remove(dir)
	for _, loop := range loops {
		if err := thawLeftover(loop, dir); err != nil {
			return fmt.Errorf("recover %s: %w", loop, err)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, detachWait)
	defer cancel()
	return waitDetached(ctx, tag)
}

// thawLeftover mounts a file system that still lives in the kernel, which
// gives the same one, and thaws it. One that lives no more cannot be mounted,
// because its disk answers nothing; then there is nothing to thaw.
func thawLeftover(loop, dir string) error {
	err := unix.Mount(loop, dir, "ext4", ext4Flags, "")
	if errors.Is(err, unix.EBUSY) { // it was made read-only meanwhile
		err = unix.Mount(loop, dir, "ext4", ext4Flags|unix.MS_RDONLY, "")
	}
	if err != nil {
		return nil //nolint:nilerr // the wait for the detach tells
	}
	f, err := os.Open(dir)
	if err == nil {
		err = thaw(f)
		_ = f.Close()
	}
	return errors.Join(err, unix.Unmount(dir, 0))
}
