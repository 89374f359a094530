package volume

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/testenv"
)

// namedBlock is a test block with its name.
func namedBlock(t testing.TB, n int) (Entry, []byte) {
	t.Helper()
	raw := testBlock(n)
	return testDomains(t).Identify(SlotTenant, raw), raw
}

func wantHit(t *testing.T, c *Cache, n int) {
	t.Helper()
	e, raw := namedBlock(t, n)
	got := make([]byte, 8000)
	if !c.ReadAt(e, got, 12345) {
		t.Fatalf("block %d: miss, want a hit", n)
	}
	if !bytes.Equal(got, raw[12345:12345+8000]) {
		t.Fatalf("block %d: other bytes came back", n)
	}
}

func TestCache_HitsWhatWasPut(t *testing.T) {
	c := testCache(t, t.TempDir(), 64*BlockSize)
	e, raw := namedBlock(t, 1)
	if c.Has(e) || c.ReadAt(e, make([]byte, 10), 0) {
		t.Fatal("an empty cache has a block")
	}
	c.Put(e, raw)
	c.Put(e, raw)
	wantHit(t, c, 1)
	whole := make([]byte, BlockSize)
	if !c.ReadAt(e, whole, 0) || !bytes.Equal(whole, raw) {
		t.Error("the whole block is not read back")
	}
	if got, want := c.Stats(), (CacheStats{Hits: 2, Misses: 1, Inserted: 1}); got != want {
		t.Errorf("stats = %+v, want %+v", got, want)
	}
}

// invariant 8: what a cache file can suffer between two processes, a power cut included:
// the next process drops it, whichever byte it is.
func TestCache_DamagedFileIsDropped(t *testing.T) {
	for what, damage := range map[string]func(file []byte) []byte{
		"first byte": func(f []byte) []byte { f[0] ^= 1; return f },
		"last byte":  func(f []byte) []byte { f[len(f)-1] ^= 0x80; return f },
		"a middle":   func(f []byte) []byte { f[len(f)/2] ^= 4; return f },
		"empty":      func([]byte) []byte { return nil },
		"short":      func(f []byte) []byte { return f[:len(f)-1] },
		"long":       func(f []byte) []byte { return append(f, 0) },
		"zeros":      func(f []byte) []byte { clear(f); return f },
	} {
		t.Run(what, func(t *testing.T) {
			dir := t.TempDir()
			e, raw := namedBlock(t, 1)
			testCache(t, dir, 64*BlockSize).Put(e, raw)
			c := testCache(t, dir, 64*BlockSize)
			file := c.path(e.Digest)
			if err := os.WriteFile(file, damage(bytes.Clone(raw)), 0o600); err != nil {
				t.Fatal(err)
			}
			if c.ReadAt(e, make([]byte, 10), 500_000) {
				t.Error("a damaged file was read")
			}
			if _, err := os.Stat(file); !os.IsNotExist(err) {
				t.Errorf("the damaged file is still there: %v", err)
			}
			if got := c.Stats().Corrupt; got != 1 {
				t.Errorf("counted %d damaged files, want 1", got)
			}
			c.Put(e, raw)
			wantHit(t, c, 1)
		})
	}
}

// A file that was trusted and is no longer the same file is hashed again.
func TestCache_ReplacedFileIsHashedAgain(t *testing.T) {
	c := testCache(t, t.TempDir(), 64*BlockSize)
	e, raw := namedBlock(t, 1)
	c.Put(e, raw)
	wantHit(t, c, 1)
	changed := bytes.Clone(raw)
	changed[0] ^= 1
	file := c.path(e.Digest)
	if err := os.WriteFile(file+".new", changed, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		t.Fatal(err)
	}
	if c.ReadAt(e, make([]byte, 10), 100) {
		t.Error("a replaced file was trusted")
	}
}

func TestCache_UnreadableDirectoryIsAMiss(t *testing.T) {
	dir := t.TempDir()
	c := testCache(t, dir, 64*BlockSize)
	e, raw := namedBlock(t, 1)
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if c.ReadAt(e, make([]byte, 10), 0) {
		t.Error("a cache that is gone has a block")
	}
	c.Put(e, raw)
	if got := c.Stats(); got.InsertFailed != 1 || got.Misses != 1 {
		t.Errorf("stats = %+v, want one failed insertion and one miss", got)
	}
}

func cacheFiles(t testing.TB, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "??", "*"))
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func TestCache_EvictsWhatWasUsedLongestAgo(t *testing.T) {
	dir := t.TempDir()
	c := testCache(t, dir, 20*BlockSize)
	const blocks = 20
	for n := range blocks {
		e, raw := namedBlock(t, n)
		c.Put(e, raw)
		used := time.Now().Add(time.Duration(n-blocks) * time.Hour)
		if err := os.Chtimes(c.path(e.Digest), used, time.Time{}); err != nil {
			t.Fatal(err)
		}
	}
	c.sweeper.wait()
	// The oldest is read by another process, which writes its use down.
	other := testCache(t, dir, 20*BlockSize)
	wantHit(t, other, 0)
	e, raw := namedBlock(t, blocks)
	c.Put(e, raw)
	c.sweeper.wait()
	if got := len(cacheFiles(t, dir)); got != 18 {
		t.Errorf("%d blocks are left, want 18: nine tenths of the watermark", got)
	}
	for n, kept := range map[int]bool{0: true, 1: false, 2: false, 3: false, 4: true, blocks: true} {
		e, _ := namedBlock(t, n)
		if c.Has(e) != kept {
			t.Errorf("block %d kept = %v, want %v", n, !kept, kept)
		}
	}
}

// The sweep removes blocks and stale insertions, nothing else that may lie there.
func TestCache_SweepTouchesNothingElse(t *testing.T) {
	dir := t.TempDir()
	c := testCache(t, dir, BlockSize)
	e, raw := namedBlock(t, 1)
	c.Put(e, raw)
	sub := filepath.Dir(c.path(e.Digest))
	stale, young := filepath.Join(dir, "tmp", "stale"), filepath.Join(dir, "tmp", "young")
	for _, f := range []string{filepath.Join(dir, "overlay"), filepath.Join(sub, "stranger"), stale, young} {
		if err := os.WriteFile(f, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	then := time.Now().Add(-2 * cacheTempAge)
	if err := os.Chtimes(stale, then, then); err != nil {
		t.Fatal(err)
	}
	for n := range 3 {
		e, raw := namedBlock(t, 2+n)
		c.Put(e, raw)
		c.sweeper.wait()
	}
	if c.Stats().Evicted == 0 {
		t.Error("nothing was evicted")
	}
	for f, kept := range map[string]bool{filepath.Join(dir, "overlay"): true, filepath.Join(sub, "stranger"): true, young: true, stale: false} {
		if _, err := os.Stat(f); (err == nil) != kept {
			t.Errorf("%s kept = %v, want %v", f, !kept, kept)
		}
	}
}

// While one process sweeps, another does not, and goes on.
func TestCache_OneSweepAtATime(t *testing.T) {
	dir := t.TempDir()
	c := testCache(t, dir, BlockSize)
	lock, err := os.OpenFile(filepath.Join(dir, sweepLock), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	for n := range 3 {
		e, raw := namedBlock(t, n)
		c.Put(e, raw)
		c.sweeper.wait()
	}
	if got := c.Stats().Evicted; got != 0 {
		t.Errorf("evicted %d blocks while another process swept", got)
	}
	_ = lock.Close()
	e, raw := namedBlock(t, 9)
	c.Put(e, raw)
	c.sweeper.wait()
	if got := c.Stats().Evicted; got == 0 {
		t.Error("evicted nothing after the other process was done")
	}
}

// Two processes insert, read and evict in one directory; a reader is given the
// block or a miss, never anything else.
func TestCache_TwoProcesses(t *testing.T) {
	dir := t.TempDir()
	const blocks, rounds = 12, 40
	var wg sync.WaitGroup
	for p := range 2 {
		c := testCache(t, dir, 6*BlockSize)
		for worker := range 2 {
			wg.Go(func() {
				for i := range rounds {
					n := (i*7 + p*3 + worker*5) % blocks
					e, raw := namedBlock(t, n)
					got := make([]byte, 4096)
					if c.ReadAt(e, got, 4096) && !bytes.Equal(got, raw[4096:8192]) {
						t.Errorf("process %d: block %d has other bytes", p, n)
					}
					c.Put(e, raw)
				}
				if s := c.Stats(); s.Corrupt != 0 || s.InsertFailed != 0 {
					t.Errorf("process %d: stats = %+v, want nothing damaged and nothing failed", p, s)
				}
			})
		}
	}
	wg.Wait()
	left, err := os.ReadDir(filepath.Join(dir, "tmp"))
	if err != nil || len(left) != 0 {
		t.Errorf("unfinished insertions: %v, %v; want none", left, err)
	}
}

func TestCache_FullDiskServes(t *testing.T) {
	dir := testenv.TmpfsDir(t, "3m")
	c := testCache(t, dir, 64*BlockSize)
	for n := range 5 {
		e, raw := namedBlock(t, n)
		c.Put(e, raw)
	}
	got := c.Stats()
	if got.InsertFailed == 0 || got.Inserted == 0 || got.Inserted+got.InsertFailed != 5 {
		t.Errorf("stats = %+v, want some blocks inserted and the others counted", got)
	}
	wantHit(t, c, 0)
	if left, _ := os.ReadDir(filepath.Join(dir, "tmp")); len(left) != 0 {
		t.Errorf("unfinished insertions take room: %v", left)
	}
}

// Overlays share the file system: the cache leaves them what they are promised.
func TestCache_KeepsRoomForOthers(t *testing.T) {
	dir := testenv.TmpfsDir(t, "16m")
	c, err := OpenCache(CacheConfig{Dir: dir, MaxBytes: 64 * BlockSize, KeepFree: 8 * BlockSize, Domains: testDomains(t), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	for n := range 20 {
		e, raw := namedBlock(t, n)
		c.Put(e, raw)
		c.sweeper.wait()
		if free, err := freeBytes(dir); err != nil || free < 8*BlockSize {
			t.Fatalf("after %d blocks %d bytes are free, %v; want 8 blocks", n+1, free, err)
		}
	}
	if got := c.Stats().Inserted; got < 5 {
		t.Errorf("inserted %d blocks, want at least 5", got)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestOpenCache_Refuses(t *testing.T) {
	good := CacheConfig{Dir: t.TempDir(), MaxBytes: BlockSize, Domains: testDomains(t), Log: slog.New(slog.DiscardHandler)}
	for what, spoil := range map[string]func(*CacheConfig){
		"no room":    func(c *CacheConfig) { c.MaxBytes = BlockSize - 1 },
		"no domains": func(c *CacheConfig) { c.Domains = nil },
		"no log":     func(c *CacheConfig) { c.Log = nil },
	} {
		cfg := good
		spoil(&cfg)
		_, err := OpenCache(cfg)
		wantKind(t, what, err, errs.Invalid)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	cfg := good
	cfg.Dir = file
	_, err := OpenCache(cfg)
	wantKind(t, "a file", err, errs.Unavailable)
}

// Warm reads are what a guest feels: a page of a block that is in the cache
// must cost little beside the page's way through FUSE (some 30 µs).
func BenchmarkCache_ReadPage(b *testing.B) {
	c := testCache(b, b.TempDir(), 64*BlockSize)
	var entries []Entry
	for n := range 16 {
		e, raw := namedBlock(b, n)
		c.Put(e, raw)
		entries = append(entries, e)
	}
	p := make([]byte, PageSize)
	b.SetBytes(PageSize)
	for i := 0; b.Loop(); i++ {
		if !c.ReadAt(entries[i%len(entries)], p, i%256*PageSize) {
			b.Fatal(fmt.Errorf("block %d: miss", i))
		}
	}
}
