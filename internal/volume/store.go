package volume

import (
	"context"
	"errors"
	"time"

	"github.com/billethq/billet/internal/blob"
	"github.com/billethq/billet/internal/model"
)

var errSkeleton = errors.New("not built yet")

// DefaultPatience is how long an operation on the store keeps trying while the
// store does not answer.
const DefaultPatience = 2 * time.Minute

// StoreConfig is what a Store needs.
type StoreConfig struct {
	Bucket   blob.Bucket
	Domains  *Domains
	Patience time.Duration // zero: DefaultPatience
}

// Store reads and writes blocks, leaves and roots. It is safe for concurrent
// use. Everything read is verified. A store that does not answer is asked again
// until Patience is over; then the error is errs.Unavailable.
type Store struct {
	bucket   blob.Bucket
	domains  *Domains
	patience time.Duration
}

// NewStore returns a Store over cfg.Bucket, which stays the caller's to close.
func NewStore(cfg StoreConfig) (*Store, error) { return nil, errSkeleton }

// Domains returns the keys under which this store hashes.
func (s *Store) Domains() *Domains { return s.domains }

// GetBlock fetches the block e into dst, which has BlockSize bytes. A zero e
// clears dst. Errors: *CorruptError with Block NoBlock, errs.Unavailable.
func (s *Store) GetBlock(ctx context.Context, e Entry, dst []byte) error { return errSkeleton }

// PutBlock stores raw under the name that Domains.Identify gave it and returns
// the bytes of the object. The zero Entry stores nothing.
func (s *Store) PutBlock(ctx context.Context, e Entry, raw []byte) (stored int64, err error) {
	return 0, errSkeleton
}

// LoadManifest fetches a root and its leaves.
func (s *Store) LoadManifest(ctx context.Context, root model.Root) (*Manifest, error) {
	return nil, errSkeleton
}

// PutManifest stores base with the changed entries as a new root: changed
// leaves, then the root, then the numbered pointer, each confirmed before the
// next. Every block that changed names must have been stored before. The new
// root's Parent is base's; a nil base is the empty disk. A pointer that exists
// with another root is errs.Stale.
func (s *Store) PutManifest(ctx context.Context, base *Manifest, changed map[int64]Entry, meta Meta) (m *Manifest, stored int64, err error) {
	return nil, 0, errSkeleton
}

// Latest returns the newest root of a subject's numbered lineage, without the
// ledger. errs.NotFound when there is none.
func (s *Store) Latest(ctx context.Context, subject model.SubjectID) (model.Root, model.Epoch, model.Seq, error) {
	return "", 0, 0, errSkeleton
}
