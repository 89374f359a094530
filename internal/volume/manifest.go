package volume

import (
	"iter"

	"github.com/billethq/billet/internal/model"
)

// Manifest is one root in memory: an immutable map from block index to entry
// with constant-time lookup. A full 32 GiB disk takes 1 MiB; a leaf of zeros
// takes nothing, and manifests of one lineage share the leaves they have in
// common. A nil *Manifest is the empty disk.
type Manifest struct {
	root   model.Root
	meta   Meta
	names  []Entry      // one per leaf
	leaves []*leafTable // one per leaf; nil for zeros
}

// leafTable is a decoded leaf. It is never changed once a Manifest holds it.
type leafTable [LeafEntries]Entry

// Root returns the id of the root.
func (m *Manifest) Root() model.Root {
	if m == nil {
		return ""
	}
	return m.root
}

// Meta returns what the root says of itself.
func (m *Manifest) Meta() Meta {
	if m == nil {
		return Meta{}
	}
	return m.meta
}

// Size returns the size of the device in bytes.
func (m *Manifest) Size() int64 { return m.Meta().Size }

// Blocks returns the number of blocks of the device.
func (m *Manifest) Blocks() int64 { return m.Meta().Blocks() }

// Entry returns the entry of block i. Beyond the end it is zero: a device may
// be larger than the manifest it begins with.
func (m *Manifest) Entry(i int64) Entry {
	if m == nil || i < 0 || i/LeafEntries >= int64(len(m.leaves)) {
		return Entry{}
	}
	leaf := m.leaves[i/LeafEntries]
	if leaf == nil {
		return Entry{}
	}
	return leaf[i%LeafEntries]
}

// All yields every block that is not zero, in ascending order of index.
func (m *Manifest) All() iter.Seq2[int64, Entry] {
	return func(yield func(int64, Entry) bool) {
		if m == nil {
			return
		}
		for l, leaf := range m.leaves {
			if leaf == nil {
				continue
			}
			for i := range leaf {
				if !leaf[i].IsZero() && !yield(int64(l)*LeafEntries+int64(i), leaf[i]) {
					return
				}
			}
		}
	}
}

// Entries returns the set of entries that are not zero: what a writer that has
// pinned this root may name without storing it again.
func (m *Manifest) Entries() map[Entry]struct{} {
	set := make(map[Entry]struct{})
	for _, e := range m.All() {
		set[e] = struct{}{}
	}
	return set
}

// DiskRoot names the content of the device alone, its geometry and leaves,
// whatever the metadata says: what a memory image is bound to.
func (m *Manifest) DiskRoot() Digest {
	if m == nil {
		return Digest{}
	}
	return diskRoot(m.meta, m.names)
}
