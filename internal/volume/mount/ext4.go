package mount

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"

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
	fiFreeze = 0xc0045877 // _IOWR('X', 119, int)
	fiThaw   = 0xc0045878 // _IOWR('X', 120, int)
)

// superblock is the little that has to be known before mounting.
type superblock struct {
	blocks uint64
	dirty  bool // the journal has to be replayed
}

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
	return superblock{blocks: blocks, dirty: binary.LittleEndian.Uint32(raw[0x60:])&0x4 != 0}, nil
}

// grow makes a file system as large as its device, before it is mounted. It is
// not done online, which takes a capability (CAP_SYS_RESOURCE) that root does
// not have everywhere. Interrupted, it leaves nothing that can be used.
func grow(ctx context.Context, loop *os.File, dir string, sb superblock) error {
	if sb.dirty {
		// As after a power cut: the journal is replayed by mounting.
		if err := unix.Mount(loop.Name(), dir, "ext4", ext4Flags, ext4Options); err != nil {
			return fmt.Errorf("mount %s to replay its journal: %w", loop.Name(), err)
		}
		if err := unix.Unmount(dir, 0); err != nil {
			return fmt.Errorf("unmount %s: %w", dir, err)
		}
	}
	// -f: it would have the disk checked first, as it does not know that
	// every block was verified.
	text, err := exec.CommandContext(ctx, "resize2fs", "-f", loop.Name()).CombinedOutput()
	if errors.Is(err, exec.ErrNotFound) {
		return errs.Wrap(errs.Unsupported, err, "grow file system").(*errs.Error).WithHint("install e2fsprogs on this host")
	}
	if err != nil {
		return fmt.Errorf("grow file system: %w: %s", err, bytes.TrimSpace(text))
	}
	return nil
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
