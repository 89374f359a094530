package volume

import (
	"context"
	"io"
)

// ImportStats says what an import found and stored.
type ImportStats struct {
	UsedBytes   int64 // of blocks that are not zero
	StoredBytes int64 // of objects added to the store
}

// Import is the input of ImportDisk.
type Import struct {
	Source io.ReaderAt // holes are skipped when it is an *os.File
	Size   int64       // bytes of Source; the device is padded to whole blocks
	Meta   Meta        // Size may be zero; Home chooses the domain of every block
	// Known is a root whose blocks the caller has pinned and that need not be
	// stored again. nil: none.
	Known *Manifest
	// Progress is called, never concurrently, with bytes done and in all.
	Progress func(done, total int64)
}

// ImportDisk stores a disk as a new root.
func ImportDisk(ctx context.Context, s *Store, in Import) (*Manifest, ImportStats, error) {
	return nil, ImportStats{}, errSkeleton
}
