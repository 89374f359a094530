package volume

import (
	"encoding/hex"
	"strings"

	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/model"
)

// The geometry of every volume. It is part of the durable formats.
const (
	BlockSize   = 1 << 20 // bytes of a block, the unit of storage and of dedup
	PageSize    = 4096    // bytes of a page, the unit in which guest writes are tracked
	LeafEntries = 1024    // blocks of one leaf: 1 GiB of disk

	// MaxDeviceSize bounds a device, and with it the size of a root object
	// (16,384 leaves, 541 KB).
	MaxDeviceSize = 16 << 40
)

// Digest is a BLAKE3-256 of content; its text form is "b3:" and 64 hexadecimal
// digits. The zero Digest means none.
type Digest [32]byte

const digestPrefix = "b3:"

func (d Digest) String() string { return digestPrefix + d.hex() }

// IsZero reports whether d names nothing.
func (d Digest) IsZero() bool { return d == Digest{} }

func (d Digest) hex() string { return hex.EncodeToString(d[:]) }

// root gives d as the id of a volume; none becomes the empty Root.
func (d Digest) root() model.Root {
	if d.IsZero() {
		return ""
	}
	return model.Root(d.String())
}

// ParseDigest reads the text form.
func ParseDigest(s string) (Digest, error) {
	var d Digest
	digits, ok := strings.CutPrefix(s, digestPrefix)
	if !ok || len(digits) != 2*len(d) || strings.ToLower(digits) != digits {
		return d, errs.New(errs.Invalid, "digest %q is not b3: and 64 hexadecimal digits", s)
	}
	if _, err := hex.Decode(d[:], []byte(digits)); err != nil {
		return Digest{}, errs.Wrap(errs.Invalid, err, "digest %q", s)
	}
	return d, nil
}

// EntryKind says what stands at one place of a leaf (a block) or of a root (a
// leaf). It takes two bits in a leaf.
type EntryKind uint8

// The kinds of entries.
const (
	KindZero       EntryKind = 0 // nothing but zeros; no object
	KindTenant     EntryKind = 1 // an object of domain 0, the tenant's
	KindPatch      EntryKind = 2 // reserved: a block with a patch of pages
	KindDeployment EntryKind = 3 // an object of domain 1: images and generations
)

// Entry names one block or one leaf. The zero Entry is all zeros.
type Entry struct {
	Kind   EntryKind
	Digest Digest
}

// IsZero reports whether e stands for zeros.
func (e Entry) IsZero() bool { return e.Kind == KindZero }

// Slot returns the domain that e's object lives in; ok is false for zeros.
func (e Entry) Slot() (slot Slot, ok bool) {
	switch e.Kind {
	case KindTenant:
		return SlotTenant, true
	case KindDeployment:
		return SlotDeployment, true
	case KindZero, KindPatch:
	}
	return 0, false
}
