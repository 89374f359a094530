package volume

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/model"
)

func goldenMemory(t testing.TB) (MemoryMeta, []Entry, []byte) {
	t.Helper()
	meta := MemoryMeta{
		Disk: Digest{9}, Created: time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC), Domain: testTenant,
		Machine: model.Machine{Driver: model.DriverGVisor, Binary: "ab", CPUModel: "a processor", CPUFeatures: "a b", HostKernel: "6", GuestKernel: "g"},
		Files:   []MemoryFile{{"checkpoint.img", 12}, {"pages.img", 2 * LeafEntries * BlockSize}},
	}
	names := []Entry{{KindTenant, Digest{4}}, {}, {KindTenant, Digest{5}}}
	object, err := encodeMemory(meta, names)
	if err != nil {
		t.Fatal(err)
	}
	return meta, names, object
}

func TestMemory_Golden(t *testing.T) {
	meta, names, object := goldenMemory(t)
	golden(t, "memory.golden", object)
	gotMeta, gotNames, err := decodeMemory(object)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(meta, gotMeta); diff != "" {
		t.Errorf("metadata (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(names, gotNames); diff != "" {
		t.Errorf("leaves (-want +got):\n%s", diff)
	}
}

func TestMemory_EveryChangeIsAnotherOrNone(t *testing.T) {
	_, _, object := goldenMemory(t)
	for at := range object {
		for bit := range 8 {
			changed := bytes.Clone(object)
			changed[at] ^= 1 << bit
			if meta, names, err := decodeMemory(changed); err == nil {
				if again, err := encodeMemory(meta, names); err != nil || !bytes.Equal(again, changed) {
					t.Errorf("bit %d of byte %d: read as an image that is written otherwise (%v)", bit, at, err)
				}
			}
		}
		if _, _, err := decodeMemory(object[:at]); err == nil {
			t.Errorf("cut to %d of %d bytes: read", at, len(object))
		}
	}
}

func TestMemoryMeta_Refuses(t *testing.T) {
	good, names, _ := goldenMemory(t)
	for what, spoil := range map[string]func(*MemoryMeta){
		"no files":            func(m *MemoryMeta) { m.Files = nil },
		"an empty file":       func(m *MemoryMeta) { m.Files = []MemoryFile{{"a", 0}, m.Files[1]} },
		"a negative size":     func(m *MemoryMeta) { m.Files = []MemoryFile{{"a", -1}, m.Files[1]} },
		"a file that climbs":  func(m *MemoryMeta) { m.Files = []MemoryFile{{"../a", 12}, m.Files[1]} },
		"a file given twice":  func(m *MemoryMeta) { m.Files = []MemoryFile{{"pages.img", 12}, m.Files[1]} },
		"too large":           func(m *MemoryMeta) { m.Files = []MemoryFile{{"a", maxMemorySize}, m.Files[1]} },
		"no disk":             func(m *MemoryMeta) { m.Disk = Digest{} },
		"no domain":           func(m *MemoryMeta) { m.Domain = "" },
		"too many features":   func(m *MemoryMeta) { m.Machine.CPUFeatures = strings.Repeat("x", maxLongText+1) },
		"a model without end": func(m *MemoryMeta) { m.Machine.CPUModel = strings.Repeat("x", 256) },
	} {
		meta := good
		spoil(&meta)
		if _, err := encodeMemory(meta, names); err == nil {
			t.Errorf("%s: accepted", what)
		}
	}
}

func FuzzDecodeMemory(f *testing.F) {
	_, _, object := goldenMemory(f)
	f.Add(object)
	f.Add([]byte(memoryMagic))
	f.Fuzz(func(t *testing.T, object []byte) {
		meta, names, err := decodeMemory(object)
		if err != nil {
			return
		}
		if again, err := encodeMemory(meta, names); err != nil || !bytes.Equal(again, object) {
			t.Fatalf("read as an image that is written otherwise: %v", err)
		}
	})
}

// memoryDir has the files of an image: one that ends within a block, one with a
// block of zeros in it, one of exactly a block.
func memoryDir(t testing.TB) (dir string, files map[string][]byte, meta MemoryMeta) {
	t.Helper()
	dir = t.TempDir()
	files = map[string][]byte{
		"state": []byte("small"),
		"pages": append(append(testBlock(1), make([]byte, BlockSize)...), testBlock(2)[:12345]...),
		"meta":  testBlock(3),
	}
	for name, body := range files {
		if err := os.WriteFile(filepath.Join(dir, name), body, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	meta = MemoryMeta{
		Disk: Digest{9}, Machine: model.Machine{Driver: model.DriverGVisor}, Created: time.Unix(1700000000, 0),
		Files: []MemoryFile{{Name: "state"}, {Name: "pages"}, {Name: "meta"}},
	}
	return dir, files, meta
}

func TestMemory_ComesBack(t *testing.T) {
	b := newMemory()
	s := testStore(t, b)
	dir, files, meta := memoryDir(t)
	put, stats, err := PutMemory(t.Context(), s, nil, dir, meta)
	if err != nil {
		t.Fatal(err)
	}
	if stats.UsedBytes != 4*BlockSize || stats.StoredBytes <= 0 {
		t.Errorf("got %+v, want four blocks", stats)
	}
	again, _, err := PutMemory(t.Context(), s, nil, dir, meta)
	if err != nil || again.Root() != put.Root() {
		t.Errorf("stored again: %v, %v, want %v", again.Root(), err, put.Root())
	}
	got, err := s.LoadMemory(t.Context(), put.Root())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(put.Meta(), got.Meta()); diff != "" {
		t.Errorf("metadata (-want +got):\n%s", diff)
	}
	out := t.TempDir()
	if err := testFetcher(t, s, nil).WriteMemory(t.Context(), got, out); err != nil {
		t.Fatal(err)
	}
	for name, want := range files {
		if body, err := os.ReadFile(filepath.Join(out, name)); err != nil || !bytes.Equal(body, want) {
			t.Errorf("%s came back with %d bytes, %v, want the %d written", name, len(body), err, len(want))
		}
	}
}

// TestMemory_FromTheCache: a host that has the blocks asks the store for none.
func TestMemory_FromTheCache(t *testing.T) {
	b := newMemory()
	s, c := testStore(t, b), testCache(t, t.TempDir(), 64*BlockSize)
	dir, _, meta := memoryDir(t)
	m, _, err := PutMemory(t.Context(), s, c, dir, meta)
	if err != nil {
		t.Fatal(err)
	}
	for key := range b.objects {
		if strings.HasPrefix(key, "blk/") {
			delete(b.objects, key)
		}
	}
	if err := testFetcher(t, s, c).WriteMemory(t.Context(), m, t.TempDir()); err != nil {
		t.Error(err)
	}
}

// TestMemory_EveryByteCounts: an object that is altered, cut or missing is
// found, whichever it is.
func TestMemory_EveryByteCounts(t *testing.T) {
	b := newMemory()
	s := testStore(t, b)
	dir, _, meta := memoryDir(t)
	m, _, err := PutMemory(t.Context(), s, nil, dir, meta)
	if err != nil {
		t.Fatal(err)
	}
	restore := func() error {
		got, err := s.LoadMemory(t.Context(), m.Root())
		if err != nil {
			return err
		}
		f, err := NewFetcher(FetcherConfig{Store: s})
		if err != nil {
			return err
		}
		defer f.Close() // a fetch may outlive the error of another
		return f.WriteMemory(t.Context(), got, t.TempDir())
	}
	if err := restore(); err != nil {
		t.Fatal(err)
	}
	for key, body := range b.objects {
		for what, damaged := range map[string][]byte{
			"a flipped byte": append(append(bytes.Clone(body[:len(body)/2]), body[len(body)/2]^1), body[len(body)/2+1:]...),
			"cut short":      body[:len(body)-1],
			"missing":        nil,
		} {
			if b.objects[key] = damaged; damaged == nil {
				delete(b.objects, key)
			}
			var corrupt *CorruptError
			if err := restore(); !errors.As(err, &corrupt) {
				t.Errorf("%s, %s: got %v, want a damaged object", key, what, err)
			}
		}
		b.objects[key] = body
	}
}

func TestMemory_IsItsTenants(t *testing.T) {
	b := newMemory()
	dir, _, meta := memoryDir(t)
	m, _, err := PutMemory(t.Context(), testStore(t, b), nil, dir, meta)
	if err != nil {
		t.Fatal(err)
	}
	domains, err := NewDomains(testKey("othertenant", 3), testKey(model.DeploymentDomain, 2))
	if err != nil {
		t.Fatal(err)
	}
	other, err := NewStore(StoreConfig{Bucket: b, Domains: domains})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.LoadMemory(t.Context(), m.Root()); err == nil {
		t.Error("another tenant reads it")
	}
	_, err = testStore(t, b).LoadMemory(t.Context(), "b3:zz")
	wantKind(t, "malformed id", err, errs.Invalid)
}
