package volume

import (
	"bytes"
	"encoding/hex"
	"flag"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"pgregory.net/rapid"
)

// update writes the golden files anew. The formats are durable: a golden file
// that has been released is never updated, a new version gets files of its own.
var update = flag.Bool("update", false, "write golden files that are missing")

// golden compares with a file of testdata.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	file := filepath.Join("testdata", name)
	want, err := os.ReadFile(file)
	if os.IsNotExist(err) && *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s: the durable format has changed:\n%s\nwant\n%s", name, hex.Dump(got[:min(len(got), 512)]), hex.Dump(want[:min(len(want), 512)]))
	}
}

func testCodec(t testing.TB) *codec {
	t.Helper()
	c, err := newCodec()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// noise is a block that does not compress.
func noise(seed uint64) []byte {
	raw := make([]byte, BlockSize)
	src := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8), 1})
	_, _ = src.Read(raw)
	return raw
}

func TestBlock_RoundTrip(t *testing.T) {
	c := testCodec(t)
	dst := make([]byte, BlockSize)
	rapid.Check(t, func(t *rapid.T) {
		// From nothing but noise to nothing but zeros.
		raw := noise(rapid.Uint64().Draw(t, "seed"))
		from := rapid.IntRange(0, BlockSize).Draw(t, "zeros from")
		clear(raw[from:])
		object, err := c.encode(nil, raw)
		if err != nil {
			t.Fatal(err)
		}
		if len(object) > maxBlockObject {
			t.Fatalf("object of %d bytes, at most %d are allowed", len(object), maxBlockObject)
		}
		if err := c.decode(dst, object); err != nil {
			t.Fatalf("zeros from %d: %v", from, err)
		}
		if !bytes.Equal(dst, raw) {
			t.Fatalf("zeros from %d: another block came back", from)
		}
	})
}

func TestBlock_StoresRawWhenGainIsSmall(t *testing.T) {
	c := testCodec(t)
	for _, tc := range []struct {
		zeroPercent int
		codec       byte
	}{{0, codecRaw}, {6, codecRaw}, {10, codecZstd}, {100, codecZstd}} {
		raw := noise(1)
		clear(raw[:BlockSize*tc.zeroPercent/100])
		object, err := c.encode(nil, raw)
		if err != nil {
			t.Fatal(err)
		}
		if object[4] != tc.codec {
			t.Errorf("%d %% zeros: codec %d, %d bytes; want codec %d", tc.zeroPercent, object[4], len(object), tc.codec)
		}
	}
}

// The bytes that zstd gives may differ from one release of it to the next; that
// released objects are still read may not.
func TestBlock_Golden(t *testing.T) {
	c := testCodec(t)
	raw := testBlock(42)
	file := filepath.Join("testdata", "block-zstd.golden")
	object, err := os.ReadFile(file)
	if os.IsNotExist(err) && *update {
		if object, err = c.encode(nil, raw); err == nil {
			err = os.WriteFile(file, object, 0o644)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	dst := make([]byte, BlockSize)
	if err := c.decode(dst, object); err != nil || !bytes.Equal(dst, raw) {
		t.Errorf("the golden block is not read: %v", err)
	}
	golden(t, "block-zstd-header.golden", object[:12])

	object, err = c.encode(nil, noise(42))
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "block-raw-header.golden", object[:blockHeaderSize])
	if !bytes.Equal(object[blockHeaderSize:], noise(42)) {
		t.Error("a raw block's payload is not the block")
	}
	d := testDomains(t)
	golden(t, "block-names.golden", []byte(d.Sum(SlotTenant, raw).String()+"\n"+d.Sum(SlotDeployment, raw).String()+"\n"))
}

// Each changed bit and each cut of a small object must be seen, by the checks
// before the digest or by the digest.
func TestBlock_DetectsEveryChange(t *testing.T) {
	c, d := testCodec(t), testDomains(t)
	raw := testBlock(7)
	e := d.Identify(SlotTenant, raw)
	object, err := c.encode(nil, raw)
	if err != nil {
		t.Fatal(err)
	}
	dst := make([]byte, BlockSize)
	sound := func(object []byte) bool { return c.decode(dst, object) == nil && d.matches(e, dst) }
	if !sound(object) {
		t.Fatal("the object itself is refused")
	}
	for at := range object {
		for bit := range 8 {
			object[at] ^= 1 << bit
			if sound(object) {
				t.Errorf("bit %d of byte %d of %d: not detected", bit, at, len(object))
			}
			object[at] ^= 1 << bit
		}
		if sound(object[:at]) {
			t.Errorf("cut to %d of %d bytes: not detected", at, len(object))
		}
	}
	if sound(append(object, 0)) {
		t.Error("a byte more: not detected")
	}
}

// The digest alone must be enough, for whoever can write to the store can also
// write a checksum.
func TestBlock_DetectsAnotherBlockUnderItsName(t *testing.T) {
	b := newMemory()
	s := testStore(t, b)
	m := putVolume(t, s, testMeta(2*BlockSize, 1), map[int64]int{0: 1, 1: 2})
	first, second := keyOf(t, s, m.Entry(0)), keyOf(t, s, m.Entry(1))
	b.objects[first] = b.objects[second]
	err := s.GetBlock(t.Context(), m.Entry(0), make([]byte, BlockSize))
	wantCorrupt(t, err, NoBlock, first)
}

func keyOf(t *testing.T, s *Store, e Entry) string {
	t.Helper()
	key, err := s.key("blk", e)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// A payload that claims to be a block and unpacks to far more must not be
// unpacked: the decoder stops at a block's size.
func TestBlock_RefusesABomb(t *testing.T) {
	c := testCodec(t)
	object, err := c.encode(nil, testBlock(1))
	if err != nil {
		t.Fatal(err)
	}
	bomb := c.enc.EncodeAll(make([]byte, 64<<20), object[:blockHeaderSize:blockHeaderSize])
	if err := c.decode(make([]byte, BlockSize), resealed(c, bomb)); err == nil {
		t.Error("64 MiB were accepted as a block")
	}
	short := c.enc.EncodeAll(make([]byte, BlockSize-1), object[:blockHeaderSize:blockHeaderSize])
	if err := c.decode(make([]byte, BlockSize), resealed(c, short)); err == nil {
		t.Error("a byte less was accepted as a block")
	}
}

// resealed gives an object a right checksum.
func resealed(c *codec, object []byte) []byte {
	sum := c.checksum(object)
	object[12], object[13], object[14], object[15] = byte(sum), byte(sum>>8), byte(sum>>16), byte(sum>>24)
	return object
}

func FuzzDecodeBlock(f *testing.F) {
	c := testCodec(f)
	object, err := c.encode(nil, testBlock(1))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(object)
	f.Add(object[:blockHeaderSize])
	f.Add([]byte(nil))
	dst := make([]byte, BlockSize)
	f.Fuzz(func(t *testing.T, object []byte) {
		if len(object) >= blockHeaderSize {
			resealed(c, object) // get past the checksum
		}
		if c.decode(dst, object) != nil {
			return
		}
		again, err := c.encode(nil, dst)
		if err != nil {
			t.Fatal(err)
		}
		back := make([]byte, BlockSize)
		if err := c.decode(back, again); err != nil || !bytes.Equal(back, dst) {
			t.Fatalf("an accepted block does not survive: %v", err)
		}
	})
}
