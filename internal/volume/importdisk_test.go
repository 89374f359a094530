package volume

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/billethq/billet/internal/blob/dir"
	"github.com/billethq/billet/internal/blob/faulty"
	"github.com/billethq/billet/internal/errs"
)

// sparseFile has blocks of test content at the given places and holes elsewhere.
func sparseFile(t testing.TB, size int64, at map[int64]int) *os.File {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "disk"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	if err := f.Truncate(size); err != nil {
		t.Fatal(err)
	}
	for i, n := range at {
		raw := testBlock(n)
		if _, err := f.WriteAt(raw[:min(BlockSize, size-i*BlockSize)], i*BlockSize); err != nil {
			t.Fatal(err)
		}
	}
	return f
}

// plain hides that a reader is a file, so that holes are read as zeros.
type plain struct{ io.ReaderAt }

func TestImportDisk_ReadsBack(t *testing.T) {
	b := newMemory()
	s := testStore(t, b)
	const size = 40*BlockSize + 5000
	at := map[int64]int{0: 1, 3: 2, 17: 2, 40: 3}
	f := sparseFile(t, size, at)
	var last, total int64
	calls := 0
	m, stats, err := ImportDisk(t.Context(), s, Import{Source: f, Size: size, Meta: imageMeta(0), Progress: func(done, all int64) {
		if done <= last || done > all {
			t.Errorf("progress %d of %d after %d", done, all, last)
		}
		last, total, calls = done, all, calls+1
	}})
	if err != nil {
		t.Fatal(err)
	}
	if m.Size() != 41*BlockSize {
		t.Errorf("size = %d, want 41 blocks", m.Size())
	}
	if last != total || calls == 0 || calls > 8 {
		t.Errorf("progress ended at %d of %d after %d calls; want the end, and no call for holes", last, total, calls)
	}
	want := make([]byte, 41*BlockSize)
	if _, err := f.ReadAt(want[:size], 0); err != nil {
		t.Fatal(err)
	}
	loaded, err := s.LoadManifest(t.Context(), m.Root())
	if err != nil {
		t.Fatal(err)
	}
	for i := range int64(41) {
		got := make([]byte, BlockSize)
		if err := s.GetBlock(t.Context(), loaded.Entry(i), got); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want[i*BlockSize:(i+1)*BlockSize]) {
			t.Errorf("block %d differs", i)
		}
	}
	puts := b.takePuts()
	if n := countPrefix(puts, "blk/deployment/"); n != 3 || len(puts) != 5 {
		t.Errorf("stored %v, want three different blocks, a leaf, a root and no pointer", puts)
	}
	stored := 0
	for _, object := range b.objects {
		stored += len(object)
	}
	if stats != (ImportStats{UsedBytes: 4 * BlockSize, StoredBytes: int64(stored)}) {
		t.Errorf("stats = %+v, want 4 blocks used and %d bytes stored", stats, stored)
	}
}

// invariant 17: one input gives one root: through holes or through zeros, and into any store.
func TestImportDisk_IsDeterministic(t *testing.T) {
	f := sparseFile(t, 20*BlockSize, map[int64]int{1: 1, 19: 2})
	first, _, err := ImportDisk(t.Context(), testStore(t, newMemory()), Import{Source: f, Size: 20 * BlockSize, Meta: imageMeta(0)})
	if err != nil {
		t.Fatal(err)
	}
	bucket, err := dir.Create(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = bucket.Close() })
	second, _, err := ImportDisk(t.Context(), testStore(t, bucket), Import{Source: plain{f}, Size: 20 * BlockSize, Meta: imageMeta(0)})
	if err != nil {
		t.Fatal(err)
	}
	if first.Root() != second.Root() {
		t.Errorf("roots %s and %s, want one", first.Root(), second.Root())
	}
}

// A block that happens to be in the store is stored again: the collector may be
// about to remove it. Only what the caller has pinned is not.
func TestImportDisk_SkipsOnlyWhatIsKnown(t *testing.T) {
	b := newMemory()
	s := testStore(t, b)
	in := Import{Source: sparseFile(t, 4*BlockSize, map[int64]int{0: 1, 1: 2}), Size: 4 * BlockSize, Meta: imageMeta(0)}
	first, _, err := ImportDisk(t.Context(), s, in)
	if err != nil {
		t.Fatal(err)
	}
	b.takePuts()
	if _, _, err := ImportDisk(t.Context(), s, in); err != nil {
		t.Fatal(err)
	}
	if n := countPrefix(b.takePuts(), "blk/"); n != 2 {
		t.Errorf("without a known volume %d blocks were stored, want 2", n)
	}
	in.Known = first
	in.Source = sparseFile(t, 4*BlockSize, map[int64]int{0: 1, 1: 2, 2: 5})
	m, _, err := ImportDisk(t.Context(), s, in)
	if err != nil {
		t.Fatal(err)
	}
	if n := countPrefix(b.takePuts(), "blk/"); n != 1 {
		t.Errorf("with a known volume %d blocks were stored, want 1", n)
	}
	if m.Meta().Parent != "" {
		t.Error("the known volume became the parent")
	}
}

func TestImportDisk_EmptyDisk(t *testing.T) {
	b := newMemory()
	m, stats, err := ImportDisk(t.Context(), testStore(t, b), Import{Source: sparseFile(t, 3<<30, nil), Size: 3 << 30, Meta: imageMeta(0)})
	if err != nil {
		t.Fatal(err)
	}
	if len(b.takePuts()) != 1 || stats.UsedBytes != 0 || m.Meta().Leaves() != 3 || len(m.Entries()) != 0 {
		t.Errorf("an empty disk stored more than its root: %+v, %v", stats, slices.Collect(maps.Keys(b.objects)))
	}
}

func TestImportDisk_FailuresAreErrors(t *testing.T) {
	f := sparseFile(t, 8*BlockSize, map[int64]int{0: 1, 5: 2, 7: 3})
	b := faulty.New(newMemory(), faulty.Config{})
	b.Arm(t, faulty.Fault{Op: faulty.Put, Key: "blk/*/*/*", Effect: faulty.Full, After: 1, Count: 1})
	_, _, err := ImportDisk(t.Context(), testStore(t, b), Import{Source: f, Size: 8 * BlockSize, Meta: imageMeta(0)})
	wantKind(t, "full store", err, errs.Exhausted)
	s := testStore(t, newMemory())
	for what, in := range map[string]Import{
		"shorter than it says": {Source: bytes.NewReader(make([]byte, BlockSize)), Size: 2 * BlockSize, Meta: imageMeta(0)},
		"no source":            {Size: BlockSize, Meta: imageMeta(0)},
		"no size":              {Source: f, Meta: imageMeta(0)},
		"negative size":        {Source: f, Size: -5, Meta: imageMeta(0)},
	} {
		_, _, err := ImportDisk(t.Context(), s, in)
		wantKind(t, what, err, errs.Invalid)
	}
	broken := errors.New("broken disk")
	_, _, err = ImportDisk(t.Context(), s, Import{Source: failing{broken}, Size: BlockSize, Meta: imageMeta(0)})
	if !errors.Is(err, broken) {
		t.Errorf("error = %v, want %v", err, broken)
	}
}

type failing struct{ err error }

func (f failing) ReadAt([]byte, int64) (int, error) { return 0, f.err }

func TestDataRuns_JoinsWhatSharesABlock(t *testing.T) {
	f := sparseFile(t, 10*BlockSize, nil)
	for _, off := range []int64{0, 3*BlockSize - 4096, 3 * BlockSize, 4*BlockSize + 64<<10, 4*BlockSize + 512<<10, 10*BlockSize - 4096} {
		if _, err := f.WriteAt(make([]byte, 4096), off); err != nil {
			t.Fatal(err)
		}
	}
	runs, err := dataRuns(f, 10*BlockSize)
	if err != nil {
		t.Fatal(err)
	}
	if want := []blockRun{{0, 1}, {2, 5}, {9, 10}}; !slices.Equal(runs, want) {
		t.Errorf("runs = %v, want %v", runs, want)
	}
}
