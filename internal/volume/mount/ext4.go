package mount

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/billethq/billet/internal/errs"
)

// The options of every mount. An idle file system must write nothing, because
// each changed page is a block in the next snapshot: no access times, times of
// changed files only with the file, and no thread that clears inode tables in
// the background (they read as zeros already).
const (
	ext4Flags   = unix.MS_NODEV | unix.MS_NOSUID | unix.MS_NOATIME | unix.MS_LAZYTIME
	ext4Options = "commit=30,errors=remount-ro,noinit_itable"
)

// Requests that golang.org/x/sys/unix has no name for.
const (
	ext4IOCResizeFS = 0x40086610 // _IOW('f', 16, __u64)
	fiFreeze        = 0xc0045877 // _IOWR('X', 119, int)
	fiThaw          = 0xc0045878 // _IOWR('X', 120, int)
)

// superblock is the little that has to be known before mounting.
type superblock struct{ blocks uint64 }

const ext4BlockSize = 4096

func readSuperblock(dev *os.File) (superblock, error) {
	const at, need = 1024, 0x154
	raw := make([]byte, ext4BlockSize)
	if _, err := dev.ReadAt(raw, 0); err != nil {
		return superblock{}, fmt.Errorf("read superblock: %w", err)
	}
	raw = raw[at : at+need]
	if binary.LittleEndian.Uint16(raw[0x38:]) != 0xef53 {
		return superblock{}, errs.New(errs.Invalid, "the disk holds no ext4 file system")
	}
	if shift := binary.LittleEndian.Uint32(raw[0x18:]); shift != 2 {
		return superblock{}, errs.New(errs.Unsupported, "the ext4 file system has blocks of %d bytes, want %d", 1024<<min(shift, 16), ext4BlockSize)
	}
	blocks := uint64(binary.LittleEndian.Uint32(raw[4:]))
	if binary.LittleEndian.Uint32(raw[0x60:])&0x80 != 0 { // 64bit
		blocks |= uint64(binary.LittleEndian.Uint32(raw[0x150:])) << 32
	}
	return superblock{blocks: blocks}, nil
}

// grow makes the mounted file system as large as the device, online. Each step
// is a transaction of the kernel's: interrupted, the next mount goes on.
func grow(dir *os.File, sb superblock, size int64) (bool, error) {
	want := uint64(size / ext4BlockSize)
	if sb.blocks >= want {
		return false, nil
	}
	if err := ioctlPtr(dir, ext4IOCResizeFS, unsafe.Pointer(&want)); err != nil {
		return false, fmt.Errorf("grow file system from %d to %d blocks: %w", sb.blocks, want, err)
	}
	return true, nil
}

// sampleFiles are looked for so that one can be opened; see sample.
var sampleFiles = [...]string{"etc/passwd", "etc/hostname", "etc/os-release", "usr/lib/os-release", "usr/bin/env", "bin/busybox"}

// sample opens one file. The first open of a file after a mount makes ext4
// write where it was mounted into the superblock, through the journal; it is
// had here, before the guest's first write, so that it is told from one. A
// file system with none of the files only loses that.
func sample(dir *os.File) {
	how := &unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_NONBLOCK | unix.O_CLOEXEC | unix.O_NOCTTY,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_XDEV,
	}
	for _, name := range sampleFiles {
		if fd, err := unix.Openat2(int(dir.Fd()), name, how); err == nil {
			_ = unix.Close(fd)
			return
		}
	}
}

func freeze(dir *os.File) error {
	// Without the lock first: what is left to write while everybody waits is
	// little.
	if err := syncDisk(dir); err != nil {
		return err
	}
	err := ioctlInt(dir, fiFreeze)
	if errors.Is(err, unix.EBUSY) {
		// Left by a process that was killed while it held the freeze.
		if err := thaw(dir); err != nil {
			return err
		}
		err = ioctlInt(dir, fiFreeze)
	}
	if err != nil {
		return fmt.Errorf("freeze: %w", err)
	}
	return nil
}

// thaw ends a freeze; a file system that is not frozen is no error.
func thaw(dir *os.File) error {
	if err := ioctlInt(dir, fiThaw); err != nil && !errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("thaw: %w", err)
	}
	return nil
}

func syncDisk(dir *os.File) error {
	if err := unix.Syncfs(int(dir.Fd())); err != nil {
		return fmt.Errorf("sync: %w", err)
	}
	return nil
}

func ioctlInt(f *os.File, req uint) error { return unix.IoctlSetInt(int(f.Fd()), req, 0) }

func ioctlPtr(f *os.File, req uint, arg unsafe.Pointer) error {
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), uintptr(req), uintptr(arg)); errno != 0 {
		return errno
	}
	return nil
}
