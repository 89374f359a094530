package volume

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/billethq/billet/internal/blob/faulty"
	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/model"
)

// A lineage of volumes against a plain map: each root reads back as what was
// written, whatever the order of changes, and stores only what is new.
func TestPutManifest_LineageProperty(t *testing.T) {
	domains := testDomains(t)
	rapid.Check(t, func(t *rapid.T) {
		b := newMemory()
		s, err := NewStore(StoreConfig{Bucket: b, Domains: domains})
		if err != nil {
			t.Fatal(err)
		}
		want := map[int64]Entry{}
		var m *Manifest
		blocks := int64(1)
		for seq := range rapid.IntRange(1, 6).Draw(t, "commits") {
			blocks = rapid.Int64Range(blocks, 3*LeafEntries).Draw(t, "blocks")
			changed := map[int64]Entry{}
			for range rapid.IntRange(0, 6).Draw(t, "changes") {
				e := Entry{Kind: rapid.SampledFrom([]EntryKind{KindZero, KindTenant, KindDeployment}).Draw(t, "kind")}
				if !e.IsZero() {
					e.Digest = drawDigest(t, "digest")
				}
				changed[rapid.Int64Range(0, blocks-1).Draw(t, "index")] = e
			}
			dirty := map[int64]bool{}
			for i, e := range changed {
				dirty[i/LeafEntries] = true
				if want[i] = e; e.IsZero() {
					delete(want, i)
				}
			}
			b.takePuts()
			m, _, err = s.PutManifest(t.Context(), m, changed, testMeta(blocks*BlockSize, model.Seq(seq+1)))
			if err != nil {
				t.Fatal(err)
			}
			if n := countPrefix(b.takePuts(), "leaf/"); n > len(dirty) {
				t.Fatalf("stored %d leaves, %d have changes", n, len(dirty))
			}
			loaded, err := s.LoadManifest(t.Context(), m.Root())
			if err != nil {
				t.Fatal(err)
			}
			for what, got := range map[string]*Manifest{"returned": m, "loaded": loaded} {
				if diff := cmp.Diff(want, collect(got)); diff != "" {
					t.Fatalf("%s manifest (-want +got):\n%s", what, diff)
				}
				if got.DiskRoot() != m.DiskRoot() || got.Meta() != m.Meta() || got.Root() != m.Root() {
					t.Fatalf("%s manifest is another", what)
				}
			}
		}
	})
}

func collect(m *Manifest) map[int64]Entry {
	got := map[int64]Entry{}
	last := int64(-1)
	for i, e := range m.All() {
		if i <= last || m.Entry(i) != e {
			panic(fmt.Sprintf("All yields block %d after %d, Entry gives %+v", i, last, m.Entry(i)))
		}
		got[i], last = e, i
	}
	return got
}

func countPrefix(keys []string, prefix string) (n int) {
	for _, key := range keys {
		if strings.HasPrefix(key, prefix) {
			n++
		}
	}
	return n
}

func TestPutManifest_StoresLeavesThenRootThenPointer(t *testing.T) {
	b := newMemory()
	s := testStore(t, b)
	changed := putBlocks(t, s, SlotTenant, map[int64]int{0: 1, LeafEntries: 2})
	b.takePuts()
	_, stored, err := s.PutManifest(t.Context(), nil, changed, testMeta(2*LeafEntries*BlockSize, 1))
	if err != nil {
		t.Fatal(err)
	}
	puts := b.takePuts()
	var kinds []string
	total := 0
	for _, key := range puts {
		kind, _, _ := strings.Cut(key, "/")
		kinds = append(kinds, kind)
		total += len(b.objects[key])
	}
	if want := []string{"leaf", "leaf", "root", "roots"}; !slices.Equal(kinds, want) {
		t.Errorf("stored %v, want %v", kinds, want)
	}
	if stored != int64(total) {
		t.Errorf("reported %d bytes stored, there are %d", stored, total)
	}
	if want := "roots/" + string(testSubject) + "/00000000000000000003-00000000000000000001"; puts[3] != want {
		t.Errorf("pointer = %s, want %s", puts[3], want)
	}
}

// invariant 13: whatever step fails, nothing that was stored names something that was not.
func TestPutManifest_FailedStepPublishesNothing(t *testing.T) {
	for _, step := range []string{"leaf/*/*/*", "root/*/*", "roots/*/*"} {
		inner := newMemory()
		b := faulty.New(inner, faulty.Config{})
		s := testStore(t, b)
		changed := putBlocks(t, s, SlotTenant, map[int64]int{0: 1})
		inner.takePuts()
		b.Arm(t, faulty.Fault{Key: step, Effect: faulty.Full, Count: 1})
		_, _, err := s.PutManifest(t.Context(), nil, changed, testMeta(BlockSize, 1))
		wantKind(t, step, err, errs.Exhausted)
		for _, key := range inner.takePuts() {
			if key >= step[:strings.Index(step, "*")] {
				t.Errorf("%s failed and %s was stored", step, key)
			}
		}
		if _, _, err := s.PutManifest(t.Context(), nil, changed, testMeta(BlockSize, 1)); err != nil {
			t.Errorf("repeat after %s failed: %v", step, err)
		}
	}
}

// invariant 16: a writer whose reply was lost repeats its call.
func TestPutManifest_LostReplyIsNoSecondWriter(t *testing.T) {
	b := faulty.New(newMemory(), faulty.Config{})
	s := testStore(t, b)
	changed := putBlocks(t, s, SlotTenant, map[int64]int{0: 1})
	b.Arm(t, faulty.Fault{Op: faulty.PutIfAbsent, Effect: faulty.LoseReply, Count: 1})
	m, _, err := s.PutManifest(t.Context(), nil, changed, testMeta(BlockSize, 1))
	if err != nil {
		t.Fatal(err)
	}
	again, _, err := s.PutManifest(t.Context(), nil, changed, testMeta(BlockSize, 1))
	if err != nil || again.Root() != m.Root() {
		t.Errorf("repeat = %v, %v; want %s", again.Root(), err, m.Root())
	}
}

// invariant 3: two writers of one number, and one of them loses.
func TestPutManifest_SecondWriterIsStale(t *testing.T) {
	b := newMemory()
	s := testStore(t, b)
	first := putVolume(t, s, testMeta(BlockSize, 1), map[int64]int{0: 1})
	_, _, err := s.PutManifest(t.Context(), nil, putBlocks(t, s, SlotTenant, map[int64]int{0: 2}), testMeta(BlockSize, 1))
	wantKind(t, "same number, other content", err, errs.Stale)
	root, epoch, seq, err := s.Latest(t.Context(), testSubject)
	if root != first.Root() || epoch != 3 || seq != 1 || err != nil {
		t.Errorf("latest = %s, %d, %d, %v; want the first writer's", root, epoch, seq, err)
	}
}

// A flipped bit on the way back must not fence a writer that won.
func TestPutManifest_DamagedPointerReadIsRepeated(t *testing.T) {
	b := faulty.New(newMemory(), faulty.Config{Seed: 5})
	s := testStore(t, b)
	m := putVolume(t, s, testMeta(BlockSize, 1), map[int64]int{0: 1})
	b.Arm(t, faulty.Fault{Op: faulty.Get, Key: "roots/*/*", Effect: faulty.Flip, Count: 1})
	again, _, err := s.PutManifest(t.Context(), nil, collect(m), testMeta(BlockSize, 1))
	if err != nil || again.Root() != m.Root() {
		t.Errorf("repeat = %v, %v; want %s", again.Root(), err, m.Root())
	}
}

func TestLatest_HighestEpochThenSeq(t *testing.T) {
	s := testStore(t, newMemory())
	_, _, _, err := s.Latest(t.Context(), testSubject)
	wantKind(t, "none", err, errs.NotFound)
	var newest *Manifest
	for i, at := range []struct {
		epoch model.Epoch
		seq   model.Seq
	}{{9, 7}, {10, 2}, {9, 12}, {10, 1}} {
		meta := testMeta(BlockSize, at.seq)
		meta.Epoch = at.epoch
		m := putVolume(t, s, meta, map[int64]int{0: i})
		if i == 1 {
			newest = m
		}
	}
	root, epoch, seq, err := s.Latest(t.Context(), testSubject)
	if err != nil || root != newest.Root() || epoch != 10 || seq != 2 {
		t.Errorf("latest = %s, %d, %d, %v; want %s, 10, 2", root.Short(), epoch, seq, err, newest.Root().Short())
	}
}

// A workspace on an image: the image's leaves stay the deployment's, and are
// neither stored again nor held twice.
func TestPutManifest_SharesTheImagesLeaves(t *testing.T) {
	b := newMemory()
	s := testStore(t, b)
	image := putVolume(t, s, imageMeta((LeafEntries+8)*BlockSize), map[int64]int{0: 1, 5: 2, LeafEntries: 3})
	b.takePuts()
	changed := putBlocks(t, s, SlotTenant, map[int64]int{LeafEntries + 1: 4})
	m, _, err := s.PutManifest(t.Context(), image, changed, testMeta(32*LeafEntries*BlockSize, 1))
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range b.takePuts() {
		if strings.Contains(key, "/"+model.DeploymentDomain+"/") {
			t.Errorf("a workspace stored %s", key)
		}
	}
	if m.leaves[0] != image.leaves[0] || m.names[0] != image.names[0] {
		t.Error("the unchanged leaf is not shared")
	}
	if m.names[1].Kind != KindTenant || m.Entry(LeafEntries).Kind != KindDeployment || m.Entry(LeafEntries+1).Kind != KindTenant {
		t.Error("the changed leaf is not the tenant's with the image's block in it")
	}
	if got := m.Meta(); got.Parent != image.Root() || got.Domains[SlotTenant] != testTenant || got.Domains[SlotDeployment] != model.DeploymentDomain {
		t.Errorf("metadata = %+v", got)
	}
	loaded, err := s.LoadManifest(t.Context(), m.Root())
	if err != nil || !cmp.Equal(collect(m), collect(loaded)) {
		t.Errorf("load: %v", err)
	}
	if e := image.Entry(20 * LeafEntries); !e.IsZero() {
		t.Errorf("beyond the image's end is %+v, want zeros", e)
	}
}

func TestPutManifest_LeafChangedBackIsTheOldOne(t *testing.T) {
	b := newMemory()
	s := testStore(t, b)
	first := putVolume(t, s, testMeta(BlockSize, 1), map[int64]int{0: 1})
	b.takePuts()
	second, _, err := s.PutManifest(t.Context(), first, map[int64]Entry{0: first.Entry(0)}, testMeta(BlockSize, 2))
	if err != nil {
		t.Fatal(err)
	}
	if n := countPrefix(b.takePuts(), "leaf/"); n != 0 || second.leaves[0] != first.leaves[0] {
		t.Errorf("stored %d leaves, want none and the old one shared", n)
	}
	if second.DiskRoot() != first.DiskRoot() || second.Root() == first.Root() {
		t.Error("the same disk under other metadata must have the same disk root and another root")
	}
}

func TestPutManifest_Refuses(t *testing.T) {
	s := testStore(t, newMemory())
	guest := testMeta(2*BlockSize, 1)
	guest.Writer = WriterGuest
	base := putVolume(t, s, guest, map[int64]int{0: 1})
	for what, try := range map[string]func() (map[int64]Entry, Meta){
		"smaller than its parent": func() (map[int64]Entry, Meta) { m := guest; m.Size = BlockSize; return nil, m },
		"host after guest":        func() (map[int64]Entry, Meta) { return nil, testMeta(2*BlockSize, 2) },
		"image of a tenant's": func() (map[int64]Entry, Meta) {
			m := imageMeta(2 * BlockSize)
			m.Writer = WriterGuest
			return nil, m
		},
		"beyond the end": func() (map[int64]Entry, Meta) { return map[int64]Entry{2: {}}, guest },
		"negative block": func() (map[int64]Entry, Meta) { return map[int64]Entry{-1: {}}, guest },
		"reserved kind":  func() (map[int64]Entry, Meta) { return map[int64]Entry{0: {KindPatch, Digest{1}}}, guest },
		"no digest":      func() (map[int64]Entry, Meta) { return map[int64]Entry{0: {Kind: KindTenant}}, guest },
		"zero with one":  func() (map[int64]Entry, Meta) { return map[int64]Entry{0: {Digest: Digest{1}}}, guest },
	} {
		changed, meta := try()
		_, _, err := s.PutManifest(t.Context(), base, changed, meta)
		wantKind(t, what, err, errs.Invalid)
	}
	_, _, err := s.PutManifest(t.Context(), nil, map[int64]Entry{0: {KindTenant, Digest{1}}}, imageMeta(BlockSize))
	wantKind(t, "a tenant's block in an image", err, errs.Invalid)
}

// invariant 11: a block of one tenant is never reused by another, whatever root it names.
func TestLoadManifest_AnotherTenantIsDenied(t *testing.T) {
	b := newMemory()
	m := putVolume(t, testStore(t, b), testMeta(BlockSize, 1), map[int64]int{0: 1})
	domains, err := NewDomains(testKey("othertenant", 9), testKey(model.DeploymentDomain, 2))
	if err != nil {
		t.Fatal(err)
	}
	other, err := NewStore(StoreConfig{Bucket: b, Domains: domains})
	if err != nil {
		t.Fatal(err)
	}
	if _, err = other.LoadManifest(t.Context(), m.Root()); err == nil {
		t.Error("another tenant's root was loaded")
	}
	// Also when somebody copied the root object under the other's name.
	digest, _ := ParseDigest(string(m.Root()))
	b.objects[rootKey("othertenant", digest)] = b.objects[rootKey(testTenant, digest)]
	_, err = other.LoadManifest(t.Context(), m.Root())
	wantKind(t, "copied root", err, errs.Denied)
}

func TestLoadManifest_MalformedRoot(t *testing.T) {
	s := testStore(t, newMemory())
	for _, root := range []model.Root{"", "b3:", "b3:../../x"} {
		_, err := s.LoadManifest(t.Context(), root)
		wantKind(t, string(root), err, errs.Invalid)
	}
}

// Content beyond the end would appear when the device grows.
func TestLoadManifest_RefusesBlocksBeyondTheEnd(t *testing.T) {
	b := newMemory()
	s := testStore(t, b)
	leaf := new(leafTable)
	leaf[1] = Entry{KindTenant, Digest{1}}
	meta := s.complete(testMeta(BlockSize, 1))
	m, _, err := s.publish(t.Context(), nil, []*leafTable{leaf}, meta)
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.LoadManifest(t.Context(), m.Root())
	wantKind(t, "block beyond the end", err, errs.Internal)
}

func TestLoadManifest_NewerVersionIsUnsupported(t *testing.T) {
	b := newMemory()
	s := testStore(t, b)
	m := putVolume(t, s, testMeta(BlockSize, 1), map[int64]int{0: 1})
	object := b.objects[b.only(t, "root/")]
	object[2] = '2'
	digest, _ := ParseDigest(string(rootID(object)))
	b.objects[rootKey(testTenant, digest)] = object
	_, err := s.LoadManifest(t.Context(), digest.root())
	wantKind(t, "newer root", err, errs.Unsupported)
	var corrupt *CorruptError
	if errors.As(err, &corrupt) || m.Root() == digest.root() {
		t.Errorf("a sound root of a newer version is called corrupt: %v", err)
	}
}

func TestManifest_NilIsTheEmptyDisk(t *testing.T) {
	var m *Manifest
	if m.Root() != "" || m.Size() != 0 || !m.Entry(0).IsZero() || len(m.Entries()) != 0 || !m.DiskRoot().IsZero() {
		t.Error("a nil manifest is not empty")
	}
	for i := range m.All() {
		t.Errorf("yields block %d", i)
	}
}
