package volume

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/billethq/billet/internal/errs"
)

// importWorkers read, hash, compress and store blocks side by side: two cores'
// worth of compression while as many wait for the store.
const importWorkers = 4

// Import is the input of ImportDisk.
type Import struct {
	Source io.ReaderAt // holes are skipped when it is an *os.File
	Size   int64       // bytes of Source; the device is padded to whole blocks
	Meta   Meta        // Size is set by the import; Home is the domain of every block
	// Known is a root that the caller has pinned, whose blocks and leaves need
	// not be stored again. nil: none. It does not become the Parent.
	Known *Manifest
	// Progress, if set, is called with the bytes done and in all; never
	// concurrently, and it must not block.
	Progress func(done, total int64)
}

// ImportStats says what an import found and stored.
type ImportStats struct {
	UsedBytes   int64 // of blocks that are not zero
	StoredBytes int64 // of objects added to the store
}

// ImportDisk stores a disk as a new root. A block is not stored when this call
// has stored it before, or Known names it; that some block exists in the store
// is no reason, since the garbage collector may be about to remove it.
func ImportDisk(ctx context.Context, s *Store, in Import) (*Manifest, ImportStats, error) {
	in.Meta.Size = (in.Size + BlockSize - 1) / BlockSize * BlockSize
	in.Meta = s.complete(in.Meta)
	if in.Source == nil {
		return nil, ImportStats{}, errs.New(errs.Invalid, "import disk: no source")
	}
	if err := in.Meta.check(); err != nil {
		return nil, ImportStats{}, fmt.Errorf("import disk: %w", err)
	}
	if in.Known != nil && in.Known.meta.Home != in.Meta.Home {
		return nil, ImportStats{}, errs.New(errs.Invalid, "import disk: the known volume is of another domain")
	}
	i := newImporter(s, in)
	if err := i.run(ctx); err != nil {
		return nil, ImportStats{}, fmt.Errorf("import disk: %w", err)
	}
	m, stored, err := s.publish(ctx, in.Known, i.leaves, in.Meta)
	if err != nil {
		return nil, ImportStats{}, fmt.Errorf("import disk: %w", err)
	}
	i.stats.StoredBytes += stored
	return m, i.stats, nil
}

type importer struct {
	store  *Store
	in     Import
	leaves []*leafTable
	total  int64  // bytes to look at
	cache  *Cache // nil, or what keeps the blocks for this host

	mu    sync.Mutex
	have  map[Entry]struct{} // known, or stored by this call
	done  int64
	stats ImportStats
}

func newImporter(s *Store, in Import) *importer {
	return &importer{store: s, in: in, leaves: make([]*leafTable, in.Meta.Leaves()), have: in.Known.Entries()}
}

func (i *importer) run(ctx context.Context) error {
	runs, err := dataRuns(i.in.Source, i.in.Size)
	if err != nil {
		return err
	}
	for _, r := range runs {
		i.total += (r.end - r.start) * BlockSize
	}
	group, ctx := errgroup.WithContext(ctx)
	blocks := make(chan int64)
	group.Go(func() error {
		defer close(blocks)
		for _, r := range runs {
			for b := r.start; b < r.end; b++ {
				select {
				case blocks <- b:
				case <-ctx.Done():
					return context.Cause(ctx)
				}
			}
		}
		return nil
	})
	for range importWorkers {
		group.Go(func() error {
			raw := make([]byte, BlockSize)
			for b := range blocks {
				if err := i.block(ctx, b, raw); err != nil {
					return fmt.Errorf("block %d: %w", b, err)
				}
			}
			return nil
		})
	}
	return group.Wait()
}

func (i *importer) block(ctx context.Context, index int64, raw []byte) error {
	start := index * BlockSize
	n, err := i.in.Source.ReadAt(raw[:min(BlockSize, i.in.Size-start)], start)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if int64(n) < min(BlockSize, i.in.Size-start) {
		return errs.New(errs.Invalid, "the disk ends at byte %d, it should have %d", start+int64(n), i.in.Size)
	}
	clear(raw[n:])
	e := i.store.domains.Identify(i.in.Meta.Home, raw)
	stored := int64(0)
	if i.claim(index, e) {
		if stored, err = i.store.PutBlock(ctx, e, raw); err != nil {
			return err
		}
		if i.cache != nil {
			i.cache.Put(e, raw)
		}
	}
	i.progress(e, stored)
	return nil
}

// claim writes the entry down and reports whether its block must be stored. A
// second worker with the same block relies on the first: when that one fails,
// so does the import.
func (i *importer) claim(index int64, e Entry) bool {
	if e.IsZero() {
		return false
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	leaf := i.leaves[index/LeafEntries]
	if leaf == nil {
		leaf = new(leafTable)
		i.leaves[index/LeafEntries] = leaf
	}
	leaf[index%LeafEntries] = e
	_, have := i.have[e]
	i.have[e] = struct{}{}
	return !have
}

func (i *importer) progress(e Entry, stored int64) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.done += BlockSize
	i.stats.StoredBytes += stored
	if !e.IsZero() {
		i.stats.UsedBytes += BlockSize
	}
	if i.in.Progress != nil {
		i.in.Progress(i.done, i.total)
	}
}
