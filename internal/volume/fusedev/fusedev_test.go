package fusedev

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"syscall"
	"testing"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/billethq/billet/internal/testenv"
)

// memory is a device of a few pages.
type memory struct {
	mu      sync.Mutex
	data    []byte
	flushed int
	err     error
}

func (m *memory) Size() int64 { return int64(len(m.data)) }

func (m *memory) do(fn func()) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	fn()
	return m.err
}

func (m *memory) Flush() error { return m.do(func() { m.flushed++ }) }

func (m *memory) ReadAt(p []byte, off int64) error { return m.do(func() { copy(p, m.data[off:]) }) }

func (m *memory) WriteAt(p []byte, off int64) error { return m.do(func() { copy(m.data[off:], p) }) }

func (m *memory) Zero(off, n int64) error { return m.do(func() { clear(m.data[off : off+n]) }) }

// at returns a byte, and how often the device was flushed.
func (m *memory) at(off int) (value byte, flushed int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.data[off], m.flushed
}

func TestFileSystem_ErrorsAreWhatTheKernelKnows(t *testing.T) {
	for _, test := range []struct {
		err  error
		want syscall.Errno
	}{
		{fmt.Errorf("write: %w", &os.PathError{Op: "write", Err: syscall.ENOSPC}), syscall.ENOSPC},
		{fmt.Errorf("write: %w", syscall.EDQUOT), syscall.ENOSPC},
		{errors.New("block 7: altered"), syscall.EIO},
	} {
		f := newFileSystem(&memory{data: make([]byte, 8192), err: test.err})
		_, read := f.Read(nil, &fuse.ReadIn{Size: 4096}, make([]byte, 4096))
		_, write := f.Write(nil, &fuse.WriteIn{}, make([]byte, 4096))
		sync := f.Fsync(nil, &fuse.FsyncIn{})
		punch := f.Fallocate(nil, &fuse.FallocateIn{Mode: unix.FALLOC_FL_PUNCH_HOLE, Length: 4096})
		for op, got := range map[string]fuse.Status{"read": read, "write": write, "sync": sync, "punch": punch} {
			if got != fuse.Status(test.want) {
				t.Errorf("%s after %v: %v, want %v", op, test.err, got, test.want)
			}
		}
	}
}

func TestFileSystem_StaysWithinTheDevice(t *testing.T) {
	m := &memory{data: bytes.Repeat([]byte{1}, 8192)}
	f := newFileSystem(m)
	for _, test := range []struct {
		off  uint64
		want int
	}{{0, 4096}, {8191, 1}, {8192, 0}, {1 << 62, 0}} {
		res, st := f.Read(nil, &fuse.ReadIn{Offset: test.off, Size: 4096}, make([]byte, 4096))
		if !st.Ok() || res.Size() != test.want {
			t.Errorf("read at %d: %d bytes, %v, want %d", test.off, res.Size(), st, test.want)
		}
	}
	if _, st := f.Write(nil, &fuse.WriteIn{Offset: 8190}, make([]byte, 4)); st != fuse.Status(syscall.EFBIG) {
		t.Errorf("write over the end: %v, want EFBIG", st)
	}
	if st := f.Fallocate(nil, &fuse.FallocateIn{Mode: unix.FALLOC_FL_ZERO_RANGE, Offset: 8191, Length: 1 << 40}); !st.Ok() || m.data[8191] != 0 || m.data[8190] != 1 {
		t.Errorf("zero over the end: %v", st)
	}
	if st := f.Fallocate(nil, &fuse.FallocateIn{Length: 1}); st != fuse.Status(syscall.EOPNOTSUPP) {
		t.Errorf("plain fallocate: %v, want EOPNOTSUPP", st)
	}
}

// TestServe_IsAFile mounts in the test's own namespace, which is safe because
// nothing here waits for the file while the server is being stopped.
func TestServe_IsAFile(t *testing.T) {
	testenv.LeakCheck(t)
	testenv.NeedFUSE(t)
	m := &memory{data: make([]byte, 1<<20)}
	s, err := Serve(t.TempDir(), m, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	// Not by os.Open, which asks epoll whether the file can be waited for. The
	// kernel then asks the server, in this process, whose runtime may not run
	// anything until epoll has answered: a garbage collection in between hangs.
	fd, err := unix.Open(s.Path(), unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), s.Path())
	defer f.Close()
	text := bytes.Repeat([]byte("billet "), 3000)
	if _, err := f.WriteAt(text, 12345); err != nil {
		t.Fatal(err)
	}
	err = f.Sync()
	if _, n := m.at(0); err != nil || n != 1 {
		t.Errorf("sync: %v, the device was flushed %d times, want once", err, n)
	}
	got := make([]byte, len(text))
	if _, err := f.ReadAt(got, 12345); err != nil || !bytes.Equal(got, text) {
		t.Errorf("read back: %v", err)
	}
	if info, err := f.Stat(); err != nil || info.Size() != 1<<20 {
		t.Errorf("stat: %v, %v", info, err)
	}
	err = unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 12345, 7)
	if b, _ := m.at(12345); err != nil || b != 0 {
		t.Errorf("punch: %v", err)
	}
	if err := s.Close(); !errors.Is(err, unix.EBUSY) {
		t.Errorf("close while the file is open: %v, want EBUSY", err)
	}
}
