package mount

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/billethq/billet/internal/errs"
)

// sectorSize of the loop device is the page of ext4 and of the overlay: the
// kernel then never writes a part of a page, which would have to be completed
// from below.
const sectorSize = 4096

// attachTries bounds the race for a free device number with every other
// process of the host.
const attachTries = 64

// attach makes a loop device over the file. It vanishes by itself when its
// last user is gone: the caller keeps the returned file open until there is a
// mount. tag is written into the device, so that whoever comes later can tell
// whose it is.
func attach(path, tag string) (*os.File, error) {
	backing, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("attach loop device: %w", err)
	}
	defer backing.Close()
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return nil, errs.Wrap(errs.Unsupported, err, "attach loop device")
	}
	defer control.Close()

	cfg := &unix.LoopConfig{Fd: uint32(backing.Fd()), Size: sectorSize}
	cfg.Info.Flags = unix.LO_FLAGS_DIRECT_IO | unix.LO_FLAGS_AUTOCLEAR
	if copy(cfg.Info.File_name[:len(cfg.Info.File_name)-1], tag) < len(tag) {
		return nil, errs.New(errs.Invalid, "loop device tag %q is too long", tag)
	}
	for range attachTries {
		n, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return nil, errs.Wrap(errs.Exhausted, err, "find a free loop device")
		}
		loop, err := os.OpenFile(fmt.Sprintf("/dev/loop%d", n), os.O_RDWR, 0)
		if err != nil {
			return nil, fmt.Errorf("open loop device: %w", err)
		}
		err = unix.IoctlLoopConfigure(int(loop.Fd()), cfg)
		if err == nil {
			return loop, nil
		}
		_ = loop.Close()
		if !errors.Is(err, unix.EBUSY) {
			return nil, fmt.Errorf("configure %s: %w", loop.Name(), err)
		}
	}
	return nil, errs.New(errs.Exhausted, "no loop device was free in %d tries", attachTries)
}

// Loops returns the paths of the loop devices of this host with that tag. The
// tag is the kernel's own evidence: it needs no record of ours.
func Loops(tag string) ([]string, error) {
	attached, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		return nil, err
	}
	var out []string
	for _, file := range attached {
		path := filepath.Join("/dev", filepath.Base(filepath.Dir(filepath.Dir(file))))
		have, err := loopTag(path)
		if err != nil {
			return nil, fmt.Errorf("read tag of %s: %w", path, err)
		}
		if have == tag {
			out = append(out, path)
		}
	}
	return out, nil
}

// loopTag returns "" for a device that is not attached (any more).
func loopTag(path string) (string, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENXIO) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	defer f.Close()
	info, err := unix.IoctlLoopGetStatus64(int(f.Fd()))
	if errors.Is(err, unix.ENXIO) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	name, _, _ := bytes.Cut(info.File_name[:], []byte{0})
	return string(name), nil
}
