package volume

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/billethq/billet/internal/blob"
	"github.com/billethq/billet/internal/clock"
	"github.com/billethq/billet/internal/errs"
)

const (
	// DefaultPatience is how long one operation on the store keeps trying
	// while the store does not answer: a guest that reads waits that long
	// before it sees an input/output error.
	DefaultPatience = 2 * time.Minute

	// The pauses between tries double from the first to the longest.
	firstPause   = 50 * time.Millisecond
	longestPause = 5 * time.Second

	// fetchTries is one fetch and one more when what came was not what the
	// name says: damage on the way heals, damage in the store does not.
	fetchTries = 2
)

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
	codec    *codec
	objects  sync.Pool // of *[]byte with room for one block object
}

// NewStore returns a Store over cfg.Bucket, which stays the caller's to close.
func NewStore(cfg StoreConfig) (*Store, error) {
	if cfg.Bucket == nil || cfg.Domains == nil {
		return nil, errs.New(errs.Invalid, "a volume store needs a bucket and domains")
	}
	codec, err := newCodec()
	if err != nil {
		return nil, err
	}
	s := &Store{bucket: cfg.Bucket, domains: cfg.Domains, patience: cfg.Patience, codec: codec}
	if s.patience == 0 {
		s.patience = DefaultPatience
	}
	s.objects.New = func() any {
		// The encoder may briefly need more than it keeps.
		b := make([]byte, 0, maxBlockObject+decoderSlack)
		return &b
	}
	return s, nil
}

// Domains returns the keys under which this store hashes.
func (s *Store) Domains() *Domains { return s.domains }

// GetBlock fetches the block e into dst, which has BlockSize bytes and holds
// nothing of use after an error. A zero e clears dst. Errors: *CorruptError
// with Block NoBlock, errs.Unavailable, errs.Denied for a domain without key.
func (s *Store) GetBlock(ctx context.Context, e Entry, dst []byte) error {
	if len(dst) != BlockSize {
		return errs.New(errs.Invalid, "room for %d bytes of a block, want %d", len(dst), BlockSize)
	}
	if e.IsZero() {
		clear(dst)
		return nil
	}
	key, err := s.key("blk", e)
	if err != nil {
		return err
	}
	return s.fetch(ctx, key, func(object []byte) error {
		if err := s.codec.decode(dst, object); err != nil {
			return err
		}
		if !s.domains.matches(e, dst) {
			return errors.New("the block does not hash to its name")
		}
		return nil
	})
}

// PutBlock stores raw under the name that Domains.Identify gave it and returns
// the bytes of the object. The zero Entry stores nothing. raw is hashed once
// more: a block stored under a wrong name would be lost for ever, and unseen.
func (s *Store) PutBlock(ctx context.Context, e Entry, raw []byte) (stored int64, err error) {
	if e.IsZero() {
		return 0, nil
	}
	key, err := s.key("blk", e)
	if err != nil {
		return 0, err
	}
	if !s.domains.matches(e, raw) {
		return 0, errs.New(errs.Internal, "block changed while it was stored as %s", e.Digest)
	}
	buf := s.objects.Get().(*[]byte)
	object, err := s.codec.encode((*buf)[:0], raw)
	if err != nil {
		return 0, err
	}
	if err := s.put(ctx, key, object); err != nil {
		return 0, err // the buffer is left to the collector: a cancelled upload may still read it
	}
	*buf = object[:0]
	s.objects.Put(buf)
	return int64(len(object)), nil
}

// key gives the object's key: <what>/<domain>/<hh>/<hash>.
func (s *Store) key(what string, e Entry) (string, error) {
	slot, ok := e.Slot()
	if !ok {
		return "", errs.New(errs.Unsupported, "entry kind %d is reserved", e.Kind)
	}
	name := s.domains.Name(slot)
	if name == "" {
		return "", errs.New(errs.Denied, "no key of domain %d for %s", slot, e.Digest)
	}
	hash := e.Digest.hex()
	return what + "/" + name + "/" + hash[:2] + "/" + hash, nil
}

// fetch gets an object and lets accept verify it.
func (s *Store) fetch(ctx context.Context, key string, accept func(object []byte) error) error {
	var why error
	for range fetchTries {
		object, err := s.get(ctx, key)
		switch {
		case err == nil:
			if why = accept(object); why == nil {
				return nil
			}
		case errs.Is(err, errs.NotFound):
			why = errors.New("it is missing")
		case errs.Is(err, errs.Invalid): // larger than any object
			why = err
		default:
			return err
		}
	}
	return &CorruptError{Block: NoBlock, Key: key, Why: why.Error()}
}

func (s *Store) get(ctx context.Context, key string) (object []byte, err error) {
	err = s.try(ctx, func(ctx context.Context) (err error) {
		object, err = s.bucket.Get(ctx, key)
		return err
	})
	return object, err
}

func (s *Store) put(ctx context.Context, key string, object []byte) error {
	return s.try(ctx, func(ctx context.Context) error { return s.bucket.Put(ctx, key, object) })
}

// try makes a call until the store answers it or patience is over. A store
// that hangs counts as one that does not answer.
func (s *Store) try(ctx context.Context, call func(ctx context.Context) error) error {
	limited, cancel := context.WithTimeout(ctx, s.patience)
	defer cancel()
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		err := call(limited)
		if err != nil && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil && limited.Err() != nil {
			return errs.Wrap(errs.Unavailable, err, "the object store did not answer for %v", s.patience)
		}
		if !errs.Is(err, errs.Unavailable) {
			return err
		}
		if clock.Sleep(limited, clock.Jitter(pause)) != nil {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return fmt.Errorf("the object store did not answer for %v: %w", s.patience, err)
		}
	}
}
