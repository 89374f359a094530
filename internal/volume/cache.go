package volume

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/billethq/billet/internal/clock"
	"github.com/billethq/billet/internal/errs"
)

const (
	// cacheTemp holds unfinished insertions.
	cacheTemp = "tmp"
	// touchEvery bounds how often a block's time of use is written down:
	// eviction needs no finer order, and a read should cost no write.
	touchEvery = 10 * time.Minute
	// maxVerified bounds what a process remembers of blocks it has hashed
	// (5 MB at most); beyond it all are hashed again at their next read.
	maxVerified = 32 << 10
)

// CacheConfig is what a Cache needs.
type CacheConfig struct {
	Dir      string // shared by every process of the host; made when missing
	MaxBytes int64  // watermark above which blocks used longest ago are evicted
	KeepFree int64  // bytes of the file system that are left to others
	Domains  *Domains
	Log      *slog.Logger
	Clock    clock.Clock // nil: clock.Real
}

// Cache holds verified raw blocks on this host's disk, one file each, named by
// content and never changed, in a directory that several processes share. It
// is a hint: every block is also in the store, every failure is a miss.
//
// A file is trusted by a process after that process has hashed it once, for as
// long as it stays the same file: what another process wrote, and what a power
// cut left of it, is hashed first. Cache is safe for concurrent use.
type Cache struct {
	cfg CacheConfig

	mu       sync.RWMutex
	verified map[Digest]stamp

	buffers sync.Pool // of *[]byte of BlockSize, to hash in
	sweeper sweeper
	full    atomic.Bool // the last insertion failed

	hits, misses, inserted, corrupt, insertFailed, evicted atomic.Int64
}

// stamp identifies a file that was hashed, and says when its use was last
// written down.
type stamp struct {
	inode   uint64
	mtime   int64
	touched int64 // Unix seconds
}

// CacheStats counts what a Cache did in this process, in blocks.
type CacheStats struct {
	Hits, Misses int64
	Inserted     int64
	InsertFailed int64 // the disk was full or failed; the reader was served
	Corrupt      int64 // files that did not hash to their name, dropped
	Evicted      int64
}

// OpenCache opens or makes the directory.
func OpenCache(cfg CacheConfig) (*Cache, error) {
	if cfg.Domains == nil || cfg.Log == nil || cfg.MaxBytes < BlockSize || cfg.KeepFree < 0 {
		return nil, errs.New(errs.Invalid, "a block cache needs domains, a logger and room for at least one block")
	}
	if err := os.MkdirAll(filepath.Join(cfg.Dir, cacheTemp), 0o700); err != nil {
		return nil, errs.Wrap(errs.Unavailable, err, "block cache %s", cfg.Dir)
	}
	if cfg.Clock == nil {
		cfg.Clock = clock.Real{}
	}
	c := &Cache{cfg: cfg, verified: make(map[Digest]stamp)}
	c.buffers.New = newBlockBuffer
	c.sweeper.init(cfg)
	return c, nil
}

// ReadAt fills p from offset off of block e; false means that the cache does
// not hold it, or that what it held was damaged and has been dropped. off+len(p)
// is at most BlockSize.
func (c *Cache) ReadAt(e Entry, p []byte, off int) bool {
	if c.read(e, p, off) {
		c.hits.Add(1)
		return true
	}
	c.misses.Add(1)
	return false
}

func (c *Cache) read(e Entry, p []byte, off int) bool {
	// Plain system calls: the runtime's poller would add two to each read.
	name := c.path(e.Digest)
	fd, err := openRetry(name)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return false
	}
	if c.trusts(e.Digest, fd, &st) {
		return preadFull(fd, p, int64(off)) == nil
	}
	if err := c.verify(e, fd, &st, p, off); err != nil {
		c.corrupt.Add(1)
		c.cfg.Log.Warn("dropped a damaged block from the cache", "block", e.Digest.String(), "error", err)
		_ = os.Remove(name)
		return false
	}
	return true
}

// trusts reports whether this very file was hashed before, and notes its use.
func (c *Cache) trusts(d Digest, fd int, st *unix.Stat_t) bool {
	c.mu.RLock()
	have, ok := c.verified[d]
	c.mu.RUnlock()
	if !ok || have.inode != st.Ino || have.mtime != st.Mtim.Nano() || st.Size != BlockSize {
		return false
	}
	if now := c.cfg.Clock.Now().Unix(); now-have.touched >= int64(touchEvery/time.Second) {
		c.trust(d, fd, st)
	}
	return true
}

// trust remembers a file that was hashed, and writes down that it is in use.
func (c *Cache) trust(d Digest, fd int, st *unix.Stat_t) {
	touch(fd)
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.verified) >= maxVerified {
		clear(c.verified)
	}
	c.verified[d] = stamp{inode: st.Ino, mtime: st.Mtim.Nano(), touched: c.cfg.Clock.Now().Unix()}
}

// verify hashes the whole file and copies the part that is wanted.
func (c *Cache) verify(e Entry, fd int, st *unix.Stat_t, p []byte, off int) error {
	if st.Size != BlockSize {
		return fmt.Errorf("file of %d bytes", st.Size)
	}
	buf := c.buffers.Get().(*[]byte)
	defer c.buffers.Put(buf)
	if err := preadFull(fd, *buf, 0); err != nil {
		return err
	}
	if !c.cfg.Domains.matches(e, *buf) {
		return errors.New("it does not hash to its name")
	}
	copy(p, (*buf)[off:])
	c.trust(e.Digest, fd, st)
	return nil
}

// Has reports whether the cache seems to hold block e. A zero block needs no
// cache.
func (c *Cache) Has(e Entry) bool {
	return e.IsZero() || unix.Access(c.path(e.Digest), unix.F_OK) == nil
}

// Put inserts a raw block that the caller has verified to be e. A cache that
// cannot take it counts that, and the caller goes on.
func (c *Cache) Put(e Entry, raw []byte) {
	if c.Has(e) {
		return
	}
	if err := c.insert(e, raw); err != nil {
		c.insertFailed.Add(1)
		if !c.full.Swap(true) { // once, not for each block while it lasts
			c.cfg.Log.Warn("the block cache takes no blocks", "dir", c.cfg.Dir, "error", err)
		}
		c.startSweep()
		return
	}
	c.inserted.Add(1)
	if c.full.Swap(false) {
		c.cfg.Log.Info("the block cache takes blocks again", "dir", c.cfg.Dir)
	}
	if c.sweeper.due() {
		c.startSweep()
	}
}

// insert writes a temporary file and gives it its name. It is not synced: what
// a power cut leaves is found by the next process's first hash.
func (c *Cache) insert(e Entry, raw []byte) error {
	if free, err := freeBytes(c.cfg.Dir); err == nil && free < c.cfg.KeepFree+BlockSize {
		return fmt.Errorf("%d bytes are free, %d are kept", free, c.cfg.KeepFree)
	}
	f, err := os.OpenFile(filepath.Join(c.cfg.Dir, cacheTemp, rand.Text()), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.Write(raw); err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	if err := c.name(f.Name(), c.path(e.Digest)); err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err == nil {
		c.trust(e.Digest, int(f.Fd()), &st)
	}
	return nil
}

// name renames, making the directory of the first two digits on its first use.
func (c *Cache) name(from, to string) error {
	err := os.Rename(from, to)
	if !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := os.Mkdir(filepath.Dir(to), 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	return os.Rename(from, to)
}

// Stats returns the counters.
func (c *Cache) Stats() CacheStats {
	return CacheStats{
		Hits: c.hits.Load(), Misses: c.misses.Load(), Inserted: c.inserted.Load(),
		InsertFailed: c.insertFailed.Load(), Corrupt: c.corrupt.Load(), Evicted: c.evicted.Load(),
	}
}

// Close waits for a running eviction. No other call may follow or run.
func (c *Cache) Close() error {
	c.sweeper.wait()
	return nil
}

func (c *Cache) path(d Digest) string {
	hash := d.hex()
	return c.cfg.Dir + "/" + hash[:2] + "/" + hash
}

func openRetry(name string) (int, error) {
	for {
		fd, err := unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != unix.EINTR {
			return fd, err
		}
	}
}

func preadFull(fd int, p []byte, off int64) error {
	for len(p) > 0 {
		n, err := unix.Pread(fd, p, off)
		switch {
		case err == unix.EINTR:
		case err != nil:
			return err
		case n == 0:
			return io.ErrUnexpectedEOF
		}
		p, off = p[max(n, 0):], off+int64(max(n, 0))
	}
	return nil
}

// touch sets the time of last use, whatever the mount's options say, and
// leaves the time of change.
func touch(fd int) {
	_ = unix.UtimesNanoAt(fd, "", []unix.Timespec{{Nsec: unix.UTIME_NOW}, {Nsec: unix.UTIME_OMIT}}, unix.AT_EMPTY_PATH)
}

func freeBytes(dir string) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, err
	}
	return int64(st.Bavail) * st.Bsize, nil
}
