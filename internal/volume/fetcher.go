package volume

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/billethq/billet/internal/errs"
)

// Priority orders fetches: each class has slots of its own, so that a guest's
// fault never waits behind another class.
type Priority uint8

// The priorities.
const (
	Guest      Priority = iota // a guest waits for it
	Resume                     // of a memory image, without which a guest does not go on
	ReadAhead                  // a guest will probably want it next
	Background                 // a flush composes a block, or a disk is copied

	priorities = 4
)

// Fetches of one class that run at once. 16 parallel fetches keep a store of
// 20 ms latency as busy as two cores can decompress.
const (
	guestSlots      = 16
	resumeSlots     = 16
	readAheadSlots  = 4
	backgroundSlots = 4

	// maxReadAheadQueue bounds what is read ahead but not yet begun: a queue
	// that long means that the store is slower than the guest anyway.
	maxReadAheadQueue = 64
)

// FetcherConfig is what a Fetcher needs.
type FetcherConfig struct {
	Store *Store
	Cache *Cache // nil: none
}

// Fetcher is the read path of a device: the cache, and behind it the store
// with one fetch per block however many wait for it. Safe for concurrent use.
type Fetcher struct {
	store   *Store
	cache   *Cache
	ctx     context.Context // of the fetches, which outlive their readers
	cancel  context.CancelFunc
	running sync.WaitGroup
	buffers sync.Pool // of *[]byte of BlockSize
	streams streams

	mu      sync.Mutex
	closed  bool
	flights map[Entry]*flight
	classes [priorities]class

	fetched, joined, readAhead, failed atomic.Int64
}

// class is the fetches of one priority.
type class struct {
	slots   int
	running int
	queue   []*flight
}

// flight is one block on its way. Its fields but done are guarded by
// Fetcher.mu, buf and err until done is closed.
type flight struct {
	entry   Entry
	prio    Priority
	started bool
	refs    int // its readers, and the fetch itself: the last one gives buf back
	done    chan struct{}
	buf     *[]byte
	err     error
}

// FetcherStats counts what a Fetcher did, in blocks.
type FetcherStats struct {
	Fetched   int64 // from the store
	Joined    int64 // reads that found their block on its way
	ReadAhead int64 // fetches begun before anybody asked
	Failed    int64
}

// NewFetcher returns a Fetcher, which Close ends.
func NewFetcher(cfg FetcherConfig) (*Fetcher, error) {
	if cfg.Store == nil {
		return nil, errs.New(errs.Invalid, "a fetcher needs a store")
	}
	f := &Fetcher{store: cfg.Store, cache: cfg.Cache, flights: make(map[Entry]*flight)}
	f.ctx, f.cancel = context.WithCancel(context.Background())
	f.buffers.New = newBlockBuffer
	f.classes[Guest].slots = guestSlots
	f.classes[Resume].slots = resumeSlots
	f.classes[ReadAhead].slots = readAheadSlots
	f.classes[Background].slots = backgroundSlots
	f.streams.init()
	return f, nil
}

// newBlockBuffer makes what the pools of raw blocks hold. The pools empty
// themselves when a process is idle.
func newBlockBuffer() any {
	b := make([]byte, BlockSize)
	return &b
}

// Read fills p from offset off of block index of m: from the cache, else from
// the store, verified. A zero block and one beyond m's end read as zeros.
// off+len(p) is at most BlockSize. When ctx ends the call returns; the fetch
// goes on and fills the cache. Two guest reads in sequence make the fetcher
// read ahead. Errors: *CorruptError naming the block, errs.Unavailable, ctx's;
// p then holds nothing of use.
func (f *Fetcher) Read(ctx context.Context, m *Manifest, index int64, p []byte, off int, prio Priority) error {
	if off < 0 || off+len(p) > BlockSize || prio >= priorities {
		return errs.New(errs.Invalid, "read of %d bytes at %d of a block, class %d", len(p), off, prio)
	}
	if prio == Guest && f.streams.sequential(index) {
		f.ahead(m, index)
	}
	e := m.Entry(index)
	if e.IsZero() {
		clear(p)
		return nil
	}
	if f.cache != nil && f.cache.ReadAt(e, p, off) {
		return nil
	}
	fl, err := f.join(e, prio)
	if err != nil {
		return err
	}
	defer f.release(fl)
	select {
	case <-fl.done:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if fl.err != nil {
		return nameBlock(fl.err, index)
	}
	copy(p, (*fl.buf)[off:])
	return nil
}

// nameBlock says which block of the device a damaged object was; the flight
// does not know, for one object may stand at several places.
func nameBlock(err error, index int64) error {
	var corrupt *CorruptError
	if !errors.As(err, &corrupt) {
		return err
	}
	return &CorruptError{Block: index, Key: corrupt.Key, Why: corrupt.Why}
}

// Stats returns the counters.
func (f *Fetcher) Stats() FetcherStats {
	return FetcherStats{Fetched: f.fetched.Load(), Joined: f.joined.Load(), ReadAhead: f.readAhead.Load(), Failed: f.failed.Load()}
}

// Close cancels what runs, refuses what waits and returns when both are done.
func (f *Fetcher) Close() error {
	f.mu.Lock()
	f.closed = true
	for i := range f.classes {
		for _, fl := range f.classes[i].queue {
			if !fl.started {
				f.refuse(fl)
			}
		}
		f.classes[i].queue = nil
	}
	f.mu.Unlock()
	f.cancel()
	f.running.Wait()
	return nil
}
