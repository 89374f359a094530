package volume

import "log/slog"

// CacheConfig is what a Cache needs.
type CacheConfig struct {
	Dir      string // shared by every process of the host; made when missing
	MaxBytes int64  // the watermark at which old blocks are evicted
	Domains  *Domains
	Log      *slog.Logger
}

// Cache holds verified raw blocks in a directory that several processes share.
type Cache struct{}

// CacheStats counts what a Cache did in this process.
type CacheStats struct {
	Hits, Misses, Inserted, Corrupt, InsertFailed, Evicted int64
}

// OpenCache opens or makes the directory.
func OpenCache(cfg CacheConfig) (*Cache, error) { return nil, errSkeleton }

// ReadAt fills p from offset off of block e; false means that the cache does
// not hold it.
func (c *Cache) ReadAt(e Entry, p []byte, off int) bool { return false }

// Has reports whether the cache seems to hold block e.
func (c *Cache) Has(e Entry) bool { return false }

// Put inserts a raw block that the caller has verified to be e. A cache that
// cannot take it counts that and stays silent.
func (c *Cache) Put(e Entry, raw []byte) {}

// Stats returns the counters.
func (c *Cache) Stats() CacheStats { return CacheStats{} }

// Close waits for a running eviction.
func (c *Cache) Close() error { return nil }
