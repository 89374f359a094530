package volume

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"
)

func drawDigest(t *rapid.T, label string) (d Digest) {
	copy(d[:], rapid.SliceOfN(rapid.Byte(), 31, 31).Draw(t, label))
	d[31] = rapid.ByteRange(1, 255).Draw(t, label+" end") // never zero
	return d
}

func drawLeaf(t *rapid.T) *leafTable {
	leaf := new(leafTable)
	for range rapid.IntRange(1, 20).Draw(t, "entries") {
		i := rapid.IntRange(0, LeafEntries-1).Draw(t, "index")
		kind := rapid.SampledFrom([]EntryKind{KindTenant, KindDeployment}).Draw(t, "kind")
		leaf[i] = Entry{Kind: kind, Digest: drawDigest(t, "digest")}
	}
	return leaf
}

func TestLeaf_RoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		leaf := drawLeaf(t)
		got, err := decodeLeaf(encodeLeaf(leaf), true)
		if err != nil {
			t.Fatal(err)
		}
		if *got != *leaf {
			t.Fatal("another leaf came back")
		}
	})
}

func TestLeaf_FullAndEmpty(t *testing.T) {
	leaf := new(leafTable)
	if object := encodeLeaf(leaf); object != nil {
		t.Errorf("a leaf of zeros has an object of %d bytes, want none", len(object))
	}
	for i := range leaf {
		leaf[i] = Entry{Kind: KindDeployment, Digest: Digest{byte(i), byte(i >> 8), 1}}
	}
	object := encodeLeaf(leaf)
	if want := leafFixedSize + LeafEntries*32; len(object) != want {
		t.Errorf("a full leaf has %d bytes, want %d", len(object), want)
	}
	if got, err := decodeLeaf(object, false); err != nil || *got != *leaf {
		t.Errorf("a full leaf of an image is not read back: %v", err)
	}
}

func goldenLeaf() *leafTable {
	leaf := new(leafTable)
	leaf[0] = Entry{Kind: KindTenant, Digest: Digest{0: 0xa0, 31: 0x0a}}
	leaf[5] = Entry{Kind: KindDeployment, Digest: Digest{0: 0xa5, 31: 0x5a}}
	leaf[LeafEntries-1] = Entry{Kind: KindTenant, Digest: Digest{0: 0xaf, 31: 0xfa}}
	return leaf
}

func TestLeaf_Golden(t *testing.T) { golden(t, "leaf.golden", encodeLeaf(goldenLeaf())) }

// One leaf has one encoding: whatever else decodes would have two names.
func TestLeaf_EveryChangeIsAnotherLeafOrNone(t *testing.T) {
	object := encodeLeaf(goldenLeaf())
	for at := range object {
		for bit := range 8 {
			changed := bytes.Clone(object)
			changed[at] ^= 1 << bit
			if leaf, err := decodeLeaf(changed, true); err == nil && !bytes.Equal(encodeLeaf(leaf), changed) {
				t.Errorf("bit %d of byte %d: read as a leaf that is written otherwise", bit, at)
			}
		}
		if _, err := decodeLeaf(object[:at], true); err == nil {
			t.Errorf("cut to %d bytes: read", at)
		}
	}
}

func TestLeaf_ImageNamesNoTenant(t *testing.T) {
	if _, err := decodeLeaf(encodeLeaf(goldenLeaf()), false); err == nil {
		t.Error("a leaf of the deployment's domain that names a tenant's block was read")
	}
}

func FuzzDecodeLeaf(f *testing.F) {
	f.Add(encodeLeaf(goldenLeaf()))
	f.Add([]byte(leafMagic))
	f.Fuzz(func(t *testing.T, object []byte) {
		leaf, err := decodeLeaf(object, true)
		if err == nil && !bytes.Equal(encodeLeaf(leaf), object) {
			t.Fatal("read as a leaf that is written otherwise")
		}
	})
}
