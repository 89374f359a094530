// Package fusedev shows a device as one file, by FUSE.
//
// The kernel's loop driver reads and writes that file with direct I/O, so that
// a page is cached once, in the file system above. The process that serves
// must never itself make a call that waits for this file (mount, freeze, sync,
// even open): killed in the middle of one, it would wait for an answer that
// only it could give, and stay for ever. Package mount makes those calls in a
// process of their own.
package fusedev

import (
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// FileName is the name of the one file.
const FileName = "disk"

const (
	maxTransfer = 1 << 20 // the kernel's own limit for one request
	// maxInflight bounds the memory of requests being served; the kernel keeps
	// the others.
	maxInflight = 16 << 20
	// maxBackground is how many asynchronous requests the kernel sends at
	// once; a loop device has up to 128 in its queue.
	maxBackground = 64
	// attrValid lets the kernel keep names and attributes: they never change.
	attrValid = time.Hour

	diskInode = 2
	rootInode = fuse.FUSE_ROOT_ID
)

// Device is what is shown. Offsets lie within Size.
type Device interface {
	ReadAt(p []byte, off int64) error
	WriteAt(p []byte, off int64) error
	Zero(off, n int64) error
	Flush() error
	Size() int64
}

// Server is a mounted file.
type Server struct {
	dir    string
	server *fuse.Server
	done   chan struct{}
}

// Serve mounts dev at dir, in the mount namespace of this process, and answers
// until Close. An error of dev is ENOSPC if that is what it is, else EIO.
func Serve(dir string, dev Device, log *slog.Logger) (*Server, error) {
	// Not by go-fuse's own direct mount: that leaves the connection open in
	// every child process, and a connection which somebody holds does not end
	// with its server.
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open /dev/fuse: %w", err)
	}
	data := fmt.Sprintf("fd=%d,rootmode=%o,user_id=0,group_id=0,max_read=%d", fd, unix.S_IFDIR, maxTransfer)
	if err := unix.Mount("billet", dir, "fuse.billet", unix.MS_NODEV|unix.MS_NOSUID|unix.MS_NOEXEC, data); err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("mount %s: %w", dir, err)
	}
	server, err := fuse.NewServer(newFileSystem(dev), fmt.Sprintf("/dev/fd/%d", fd), &fuse.MountOptions{
		DisableSplice:           true, // slower with it (storage.md, finding 8)
		DisableXAttrs:           true,
		MaxWrite:                maxTransfer,
		MaxBackground:           maxBackground,
		MaxInflightRequestBytes: maxInflight,
		ExtraCapabilities:       fuse.CAP_ASYNC_DIO,
		Logger:                  slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	})
	if err != nil {
		_ = unix.Unmount(dir, unix.MNT_DETACH)
		return nil, fmt.Errorf("serve %s: %w", dir, err)
	}
	s := &Server{dir: dir, server: server, done: make(chan struct{})}
	go func() {
		defer close(s.done)
		server.Serve()
	}()
	return s, nil
}

// Path is where the file is.
func (s *Server) Path() string { return filepath.Join(s.dir, FileName) }

// Close unmounts and waits for the requests that are being served. It is
// EBUSY while the file is open.
func (s *Server) Close() error {
	if err := unix.Unmount(s.dir, 0); err != nil {
		return fmt.Errorf("unmount %s: %w", s.dir, err)
	}
	<-s.done
	return nil
}

// fileSystem is a directory with one file. What it does not answer is ENOSYS.
type fileSystem struct {
	fuse.RawFileSystem
	dev Device
}

func newFileSystem(dev Device) *fileSystem {
	return &fileSystem{RawFileSystem: fuse.NewDefaultRawFileSystem(), dev: dev}
}

func (f *fileSystem) String() string { return "billet" }

func (f *fileSystem) attr(inode uint64, out *fuse.Attr) fuse.Status {
	out.Ino = inode
	out.Nlink = 1
	out.Blksize = 4096
	switch inode {
	case rootInode:
		out.Mode = unix.S_IFDIR | 0o700
	case diskInode:
		out.Mode = unix.S_IFREG | 0o600
		out.Size = uint64(f.dev.Size())
		out.Blocks = out.Size / 512
	default:
		return fuse.ENOENT
	}
	return fuse.OK
}

func (f *fileSystem) Lookup(_ <-chan struct{}, in *fuse.InHeader, name string, out *fuse.EntryOut) fuse.Status {
	if in.NodeId != rootInode || name != FileName {
		return fuse.ENOENT
	}
	out.NodeId = diskInode
	out.Generation = 1
	out.SetEntryTimeout(attrValid)
	out.SetAttrTimeout(attrValid)
	return f.attr(diskInode, &out.Attr)
}

func (f *fileSystem) GetAttr(_ <-chan struct{}, in *fuse.GetAttrIn, out *fuse.AttrOut) fuse.Status {
	out.SetTimeout(attrValid)
	return f.attr(in.NodeId, &out.Attr)
}

func (f *fileSystem) Open(_ <-chan struct{}, in *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	if in.NodeId != diskInode {
		return fuse.ENOENT
	}
	out.OpenFlags = fuse.FOPEN_DIRECT_IO | fuse.FOPEN_PARALLEL_DIRECT_WRITES
	return fuse.OK
}

func (f *fileSystem) StatFs(_ <-chan struct{}, _ *fuse.InHeader, out *fuse.StatfsOut) fuse.Status {
	out.Bsize = 4096
	out.NameLen = 255
	return fuse.OK
}

// within cuts a range at the end of the device.
func (f *fileSystem) within(off, n uint64) (int64, int64) {
	size := uint64(f.dev.Size())
	off = min(off, size)
	return int64(off), int64(min(n, size-off))
}

func (f *fileSystem) Read(_ <-chan struct{}, in *fuse.ReadIn, buf []byte) (fuse.ReadResult, fuse.Status) {
	off, n := f.within(in.Offset, uint64(min(int(in.Size), len(buf))))
	if err := f.dev.ReadAt(buf[:n], off); err != nil {
		return nil, status(err)
	}
	return fuse.ReadResultData(buf[:n]), fuse.OK
}

func (f *fileSystem) Write(_ <-chan struct{}, in *fuse.WriteIn, data []byte) (uint32, fuse.Status) {
	off, n := f.within(in.Offset, uint64(len(data)))
	if n < int64(len(data)) {
		return 0, fuse.Status(syscall.EFBIG) // never half a request
	}
	if err := f.dev.WriteAt(data, off); err != nil {
		return 0, status(err)
	}
	return uint32(n), fuse.OK
}

// Flush comes with each close of a descriptor and promises nothing.
func (f *fileSystem) Flush(<-chan struct{}, *fuse.FlushIn) fuse.Status { return fuse.OK }

func (f *fileSystem) Release(<-chan struct{}, *fuse.ReleaseIn) {}

func (f *fileSystem) Fsync(<-chan struct{}, *fuse.FsyncIn) fuse.Status {
	if err := f.dev.Flush(); err != nil {
		return status(err)
	}
	return fuse.OK
}

// Fallocate is how the loop driver discards and writes zeros.
func (f *fileSystem) Fallocate(_ <-chan struct{}, in *fuse.FallocateIn) fuse.Status {
	if in.Mode&(unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_ZERO_RANGE) == 0 {
		return fuse.Status(syscall.EOPNOTSUPP)
	}
	off, n := f.within(in.Offset, in.Length)
	if err := f.dev.Zero(off, n); err != nil {
		return status(err)
	}
	return fuse.OK
}

func status(err error) fuse.Status {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return fuse.Status(syscall.ENOSPC)
	}
	return fuse.EIO
}
