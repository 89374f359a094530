package volume

import "context"

// Priority orders fetches: each class has its own slots, so that a guest's
// fault never waits behind another class.
type Priority uint8

// The priorities.
const (
	Guest Priority = iota
	ReadAhead
	Background
)

// FetcherConfig is what a Fetcher needs.
type FetcherConfig struct {
	Store *Store
	Cache *Cache // nil: none
}

// Fetcher is the read path of one device.
type Fetcher struct{}

// FetcherStats counts what a Fetcher did.
type FetcherStats struct {
	Fetched, FetchedBytes, Joined, ReadAhead, Failed int64
}

// NewFetcher returns a Fetcher; Close ends it.
func NewFetcher(cfg FetcherConfig) (*Fetcher, error) { return nil, errSkeleton }

// Read fills p from offset off of block index of m: from the cache, else from
// the store, verified. A zero block and one beyond m's end read as zeros.
// off+len(p) is at most BlockSize. When ctx ends the call returns; the fetch
// goes on and fills the cache. Errors: *CorruptError naming the block,
// errs.Unavailable, ctx's.
func (f *Fetcher) Read(ctx context.Context, m *Manifest, index int64, p []byte, off int, prio Priority) error {
	return errSkeleton
}

// Stats returns the counters.
func (f *Fetcher) Stats() FetcherStats { return FetcherStats{} }

// Close cancels what runs and waits for it.
func (f *Fetcher) Close() error { return nil }
