package volume

import (
	"encoding/binary"
	"fmt"
)

// A leaf object is a header, two kind bits for each of 1024 entries, and the
// digests of those that are not zero, in order. Numbers are little-endian;
// entry i has bits 2(i mod 4) and above of byte 16 + i/4.
//
//	0  magic "SL1\0"    the 1 is the version
//	4  entries u32      LeafEntries
//	8  digests u32      1 to LeafEntries
//	12 reserved u32     0
//	16 kinds [256]byte
//	272 digests [32]byte each
//
// A leaf always has all its entries, also where the device ends within it: so
// a device that grows keeps its leaves. A leaf of zeros has no object.
const (
	leafMagic      = "SL1\x00"
	leafHeaderSize = 16
	leafKindsSize  = LeafEntries / 4
	leafFixedSize  = leafHeaderSize + leafKindsSize
)

// encodeLeaf returns the object of a leaf; nil when every entry is zero.
func encodeLeaf(leaf *leafTable) []byte {
	count := 0
	for i := range leaf {
		if !leaf[i].IsZero() {
			count++
		}
	}
	if count == 0 {
		return nil
	}
	out := make([]byte, leafFixedSize, leafFixedSize+count*len(Digest{}))
	copy(out, leafMagic)
	binary.LittleEndian.PutUint32(out[4:], LeafEntries)
	binary.LittleEndian.PutUint32(out[8:], uint32(count))
	for i := range leaf {
		e := &leaf[i]
		if e.IsZero() {
			continue
		}
		out[leafHeaderSize+i/4] |= byte(e.Kind) << (2 * (i % 4))
		out = append(out, e.Digest[:]...)
	}
	return out
}

// decodeLeaf refuses everything that encodeLeaf could not have written.
// tenant says whether entries of the tenant's domain are allowed: a leaf of
// the deployment's domain that named them would be readable to no one else.
func decodeLeaf(object []byte, tenant bool) (*leafTable, error) {
	if len(object) < leafFixedSize {
		return nil, fmt.Errorf("leaf object of %d bytes, at least %d are needed", len(object), leafFixedSize)
	}
	if string(object[:4]) != leafMagic {
		return nil, fmt.Errorf("leaf object begins with %q, want %q", object[:4], leafMagic)
	}
	if n := binary.LittleEndian.Uint32(object[4:]); n != LeafEntries {
		return nil, fmt.Errorf("leaf object of %d entries, want %d", n, LeafEntries)
	}
	if n := binary.LittleEndian.Uint32(object[12:]); n != 0 {
		return nil, fmt.Errorf("leaf object has unknown flags %x", n)
	}
	count := binary.LittleEndian.Uint32(object[8:])
	digests := object[leafFixedSize:]
	if count == 0 || count > LeafEntries || int(count)*len(Digest{}) != len(digests) {
		return nil, fmt.Errorf("leaf object of %d digests has %d bytes of them", count, len(digests))
	}
	leaf := new(leafTable)
	for i := range leaf {
		kind := EntryKind(object[leafHeaderSize+i/4] >> (2 * (i % 4)) & 3)
		if kind == KindZero {
			continue
		}
		if kind == KindPatch || kind == KindTenant && !tenant {
			return nil, fmt.Errorf("leaf entry %d has kind %d, which is not in use here", i, kind)
		}
		if len(digests) == 0 {
			return nil, fmt.Errorf("leaf has fewer digests than entries")
		}
		leaf[i].Kind = kind
		digests = digests[copy(leaf[i].Digest[:], digests):]
		if leaf[i].Digest.IsZero() {
			return nil, fmt.Errorf("leaf entry %d has a zero digest", i)
		}
	}
	if len(digests) != 0 {
		return nil, fmt.Errorf("leaf has %d bytes beyond its entries", len(digests))
	}
	return leaf, nil
}
