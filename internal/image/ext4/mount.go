package ext4

import (
	"errors"
	"fmt"
	"runtime"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/billethq/billet/internal/errs"
)

// onPrivateThread runs fn on a thread with a mount namespace of its own, which
// is gone, with every mount made in it, when fn returns or the process dies. A
// child started by fn gets the namespace too.
func onPrivateThread(fn func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // for good: the thread ends with the goroutine
		if unix.Gettid() == unix.Getpid() {
			// The main thread never ends, and stands for the process in /proc:
			// hold it while another thread is used.
			defer runtime.UnlockOSThread()
			done <- onPrivateThread(fn)
			return
		}
		done <- private(fn)
	}()
	return <-done
}

func private(fn func() error) error {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return needRoot(err, "make a mount namespace")
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return needRoot(err, "make mounts private")
	}
	return fn()
}

func needRoot(err error, doing string) error {
	if errors.Is(err, unix.EPERM) {
		return errs.Wrap(errs.Unsupported, err, "%s", doing).(*errs.Error).WithHint("run the node as root")
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// maxRead is one read request; files are read from front to back.
const maxRead = 1 << 20

// mounted runs fn while the tree is mounted at dir, on a private thread.
//
// The descriptor is opened and mounted here, and handed to go-fuse by its
// /dev/fd form: its own direct mount leaves the descriptor open across exec,
// so that mke2fs would keep alive the very connection it waits for after the
// process died.
func (s *served) mounted(dir string, fn func() error) error {
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return errs.Wrap(errs.Unsupported, err, "open /dev/fuse").(*errs.Error).WithHint("load the kernel module: modprobe fuse")
	}
	options := fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0,max_read=%d", fd, maxRead)
	if err := unix.Mount("billet", dir, "fuse.billet-tree", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_RDONLY, options); err != nil {
		_ = unix.Close(fd)
		return needRoot(err, "mount the tree")
	}
	server, err := fuse.NewServer(s, fmt.Sprintf("/dev/fd/%d", fd), &fuse.MountOptions{
		MaxWrite:             maxRead,
		MaxReadAhead:         maxRead,
		DisableSplice:        true,
		DisableXAttrs:        !s.xattrs,
		EnableSymlinkCaching: true,
	})
	if err != nil {
		_ = unix.Unmount(dir, unix.MNT_DETACH)
		return fmt.Errorf("serve the tree: %w", err)
	}
	go server.Serve()
	err = fn()
	if uerr := unix.Unmount(dir, unix.MNT_DETACH); err == nil && uerr != nil {
		err = fmt.Errorf("unmount the tree: %w", uerr)
	}
	server.Wait()
	return err
}
