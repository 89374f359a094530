package volume

import (
	"cmp"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// sweepShare: a process looks over the cache whenever it has inserted
	// this share of it. What several processes insert meanwhile is what the
	// cache can exceed its watermark by.
	sweepShare = 64
	// sweepTarget is the percentage of the watermark that a sweep leaves, so
	// that the next insertions need none.
	sweepTarget = 90
	// cacheTempAge is the age at which an insertion's file is a dead
	// process's.
	cacheTempAge = time.Hour

	sweepLock = "lock"
)

// sweeper decides when this process sweeps, and keeps it to one sweep at a time.
type sweeper struct {
	every int64 // blocks between sweeps

	mu      sync.Mutex
	since   int64
	running bool
	done    sync.WaitGroup
}

func (s *sweeper) init(cfg CacheConfig) {
	s.every = max(1, cfg.MaxBytes/BlockSize/sweepShare)
	// A random phase: many short processes together sweep as often as one
	// long one.
	s.since = rand.Int64N(s.every)
}

// due counts an insertion.
func (s *sweeper) due() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.since++
	if s.since < s.every {
		return false
	}
	s.since = 0
	return true
}

func (s *sweeper) wait() { s.done.Wait() }

// startSweep evicts in the background, unless this or another process does.
func (c *Cache) startSweep() {
	s := &c.sweeper
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running {
		return
	}
	s.running = true
	s.done.Go(func() {
		if err := c.sweep(); err != nil {
			c.cfg.Log.Warn("sweep of the block cache", "dir", c.cfg.Dir, "error", err)
		}
		s.mu.Lock()
		s.running = false
		s.mu.Unlock()
	})
}

// cached is one file of the cache.
type cached struct {
	name string
	used int64 // nanoseconds since 1970
}

// sweep evicts the blocks used longest ago until the cache is below its
// watermark and the file system has its free space. Nothing but files of this
// directory with a block's name is removed; a reader that has one open keeps it.
func (c *Cache) sweep() error {
	lock, err := os.OpenFile(filepath.Join(c.cfg.Dir, sweepLock), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer lock.Close() // ends the lock
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil // another process sweeps
	}
	c.dropStaleTemps()
	files, err := c.scan()
	if err != nil {
		return err
	}
	total := int64(len(files)) * BlockSize
	excess := int64(0)
	if total > c.cfg.MaxBytes {
		excess = total - c.cfg.MaxBytes*sweepTarget/100
	}
	if free, err := freeBytes(c.cfg.Dir); err == nil {
		excess = max(excess, c.cfg.KeepFree-free)
	}
	if excess <= 0 {
		return nil
	}
	slices.SortFunc(files, func(a, b cached) int { return cmp.Compare(a.used, b.used) })
	for _, f := range files {
		if excess <= 0 {
			break
		}
		if os.Remove(filepath.Join(c.cfg.Dir, f.name[:2], f.name)) == nil {
			excess -= BlockSize
			c.evicted.Add(1)
		}
	}
	return nil
}

func (c *Cache) scan() ([]cached, error) {
	var files []cached
	for i := range 256 {
		sub := filepath.Join(c.cfg.Dir, hexByte(byte(i)))
		entries, err := os.ReadDir(sub)
		if os.IsNotExist(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			if _, err := ParseDigest(digestPrefix + e.Name()); err != nil {
				continue
			}
			if info, err := e.Info(); err == nil {
				files = append(files, cached{e.Name(), usedAt(info)})
			}
		}
	}
	return files, nil
}

func (c *Cache) dropStaleTemps() {
	dir := filepath.Join(c.cfg.Dir, cacheTemp)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		if info, err := e.Info(); err == nil && c.cfg.Clock.Now().Sub(info.ModTime()) > cacheTempAge {
			_ = os.Remove(filepath.Join(dir, e.Name()))
		}
	}
}

func usedAt(info fs.FileInfo) int64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return st.Atim.Nano()
	}
	return info.ModTime().UnixNano()
}

func hexByte(b byte) string { return Digest{b}.hex()[:2] }
