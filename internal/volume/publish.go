package volume

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/billethq/billet/internal/errs"
)

// PutManifest stores base with the changed entries as a new root: changed
// leaves, then the root, then the numbered pointer, each confirmed before the
// next, so that whoever finds one finds all below it. Every block that changed
// names must have been stored before, or be under a root that the caller has
// pinned. The new root's Parent is base's; a nil base is the empty disk, and a
// larger meta.Size adds zeros. It returns the bytes of the objects it stored.
//
// Errors: errs.Stale when the numbered pointer exists with another root;
// errs.Invalid for metadata that contradicts base; errs.Unavailable. Repeating
// a call that failed is safe.
func (s *Store) PutManifest(ctx context.Context, base *Manifest, changed map[int64]Entry, meta Meta) (m *Manifest, stored int64, err error) {
	if base != nil {
		meta.Parent = base.Root()
	}
	meta = s.complete(meta)
	if err := checkSuccessor(base, meta); err != nil {
		return nil, 0, fmt.Errorf("store volume: %w", err)
	}
	leaves, err := applyChanges(base, changed, meta)
	if err != nil {
		return nil, 0, fmt.Errorf("store volume: %w", err)
	}
	return s.publish(ctx, base, leaves, meta)
}

// complete fills in what the store knows: the domain table, and a time as it
// will be read back.
func (s *Store) complete(meta Meta) Meta {
	meta.Created = fromMicros(micros(meta.Created))
	meta.Domains = [MaxDomains]string{SlotDeployment: s.domains.Name(SlotDeployment)}
	if meta.Home == SlotTenant {
		meta.Domains[SlotTenant] = s.domains.Name(SlotTenant)
	}
	return meta
}

func checkSuccessor(base *Manifest, meta Meta) error {
	if err := meta.check(); err != nil {
		return err
	}
	if base == nil {
		return nil
	}
	switch {
	case meta.Size < base.Size():
		return errs.New(errs.Invalid, "device of %d bytes is smaller than its parent's %d", meta.Size, base.Size())
	case base.meta.Writer == WriterGuest && meta.Writer == WriterHost:
		return errs.New(errs.Invalid, "a lineage that a guest's kernel wrote never becomes a host's")
	case base.meta.Home == SlotTenant && meta.Home == SlotDeployment:
		return errs.New(errs.Invalid, "a tenant's volume never becomes an image")
	}
	return nil
}

// applyChanges returns base's leaves with the changes; those without any are
// shared with base.
func applyChanges(base *Manifest, changed map[int64]Entry, meta Meta) ([]*leafTable, error) {
	leaves := make([]*leafTable, meta.Leaves())
	if base != nil {
		copy(leaves, base.leaves)
	}
	fresh := make(map[int64]bool) // leaves that are copies, and may be written
	for i, e := range changed {
		if i < 0 || i >= meta.Blocks() {
			return nil, errs.New(errs.Invalid, "block %d lies beyond the %d of the device", i, meta.Blocks())
		}
		if !meta.allows(e) {
			return nil, errs.New(errs.Invalid, "block %d of kind %d cannot be part of this volume", i, e.Kind)
		}
		l := i / LeafEntries
		if !fresh[l] {
			fresh[l] = true
			leaf := new(leafTable)
			if leaves[l] != nil {
				*leaf = *leaves[l]
			}
			leaves[l] = leaf
		}
		leaves[l][i%LeafEntries] = e
	}
	return leaves, nil
}

// publish stores the leaves, the root and its pointer.
// known is a root that the caller has pinned, or nil.
func (s *Store) publish(ctx context.Context, known *Manifest, leaves []*leafTable, meta Meta) (*Manifest, int64, error) {
	m := &Manifest{meta: meta, leaves: leaves}
	stored, err := s.putLeaves(ctx, known, m)
	if err != nil {
		return nil, 0, err
	}
	n, err := s.putRoot(ctx, m)
	if err != nil {
		return nil, 0, fmt.Errorf("store root: %w", err)
	}
	return m, stored + n, nil
}

// putLeaves names m's leaves, and stores those that known does not hold.
func (s *Store) putLeaves(ctx context.Context, known, m *Manifest) (int64, error) {
	m.names = make([]Entry, len(m.leaves))
	var stored atomic.Int64
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(leafConcurrency)
	for i := range m.leaves {
		if m.shareLeaf(known, i) {
			continue
		}
		object := encodeLeaf(m.leaves[i])
		if object == nil {
			m.leaves[i] = nil
			continue
		}
		m.names[i] = Entry{Kind: m.meta.Home.Kind(), Digest: s.domains.Sum(m.meta.Home, object)}
		key, err := s.key("leaf", m.names[i])
		if err != nil {
			return 0, errors.Join(err, group.Wait())
		}
		group.Go(func() error {
			stored.Add(int64(len(object)))
			return s.put(groupCtx, key, object)
		})
	}
	if err := group.Wait(); err != nil {
		return 0, fmt.Errorf("store leaves: %w", err)
	}
	return stored.Load(), nil
}

// shareLeaf takes leaf i from known when the content is the same, also when it
// was changed back: one table in memory and one object in the store.
func (m *Manifest) shareLeaf(known *Manifest, i int) bool {
	if m.leaves[i] == nil {
		return true
	}
	if known == nil || i >= len(known.leaves) || known.leaves[i] == nil {
		return false
	}
	if m.leaves[i] != known.leaves[i] && *m.leaves[i] != *known.leaves[i] {
		return false
	}
	m.leaves[i], m.names[i] = known.leaves[i], known.names[i]
	return true
}

func (s *Store) putRoot(ctx context.Context, m *Manifest) (stored int64, err error) {
	object, err := encodeRoot(m.meta, m.names)
	if err != nil {
		return 0, errs.Wrap(errs.Invalid, err, "encode")
	}
	m.root = rootID(object)
	digest, err := ParseDigest(string(m.root))
	if err != nil {
		return 0, err
	}
	if err := s.put(ctx, rootKey(m.meta.Domains[m.meta.Home], digest), object); err != nil {
		return 0, err
	}
	n, err := s.putPointer(ctx, m)
	return int64(len(object)) + n, err
}

// putPointer creates the numbered pointer. A host that was overtaken writes
// under a lower epoch; a second writer under the same number loses here.
func (s *Store) putPointer(ctx context.Context, m *Manifest) (stored int64, err error) {
	if m.meta.Subject == "" {
		return 0, nil
	}
	key, body := pointerKey(m.meta.Subject, m.meta.Epoch, m.meta.Seq), []byte(m.root)
	err = s.try(ctx, func(ctx context.Context) error { return s.bucket.PutIfAbsent(ctx, key, body) })
	if err == nil {
		return int64(len(body)), nil
	}
	if !errs.Is(err, errs.Conflict) {
		return 0, err
	}
	// It exists: ours, of a call whose reply was lost, or another writer's.
	err = s.fetch(ctx, key, func(object []byte) error {
		if string(object) != string(body) {
			return fmt.Errorf("it names %.70q", object)
		}
		return nil
	})
	var other *CorruptError
	if errors.As(err, &other) {
		return 0, errs.New(errs.Stale, "numbered root %s is taken: %s", key, other.Why)
	}
	return 0, err
}
