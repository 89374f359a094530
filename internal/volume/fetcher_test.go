package volume

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/billethq/billet/internal/blob/faulty"
	"github.com/billethq/billet/internal/errs"
)

// gate is a store whose block fetches stand still until they are let through.
type gate struct {
	*memory
	arrived chan string   // keys, as fetches arrive
	open    chan struct{} // one receive lets one through; closed: all
}

func newGate() *gate {
	return &gate{memory: newMemory(), arrived: make(chan string, 1000), open: make(chan struct{})}
}

func (g *gate) Get(ctx context.Context, key string) ([]byte, error) {
	if strings.HasPrefix(key, "blk/") {
		g.arrived <- key
		select {
		case <-g.open:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return g.memory.Get(ctx, key)
}

// volumeOf stores blocks 0 to n-1.
func volumeOf(t testing.TB, s *Store, n int) *Manifest {
	t.Helper()
	at := map[int64]int{}
	for i := range n {
		at[int64(i)] = i
	}
	return putVolume(t, s, testMeta(int64(n+1)*BlockSize, 1), at)
}

func wantRead(t testing.TB, f *Fetcher, m *Manifest, index int64, prio Priority) {
	t.Helper()
	got := make([]byte, 5000)
	if err := f.Read(t.Context(), m, index, got, 777, prio); err != nil {
		t.Errorf("read block %d: %v", index, err)
		return // not Fatal: readers are goroutines
	}
	if !bytes.Equal(got, testBlock(int(index))[777:5777]) {
		t.Errorf("read block %d: other bytes came back", index)
	}
}

func TestFetcher_ReadsAndCaches(t *testing.T) {
	b := newMemory()
	s := testStore(t, b)
	m := volumeOf(t, s, 2)
	dir := t.TempDir()
	f := testFetcher(t, s, testCache(t, dir, 64*BlockSize))
	wantRead(t, f, m, 1, Guest)
	if err := f.Close(); err != nil { // waits for the insertion
		t.Fatal(err)
	}
	clear(b.objects) // from here on the cache is all there is
	f = testFetcher(t, s, testCache(t, dir, 64*BlockSize))
	wantRead(t, f, m, 1, Guest)
	if got := f.Stats().Fetched; got != 0 {
		t.Errorf("fetched %d blocks, want none", got)
	}
}

func TestFetcher_ZerosNeedNoStore(t *testing.T) {
	b := faulty.New(newMemory(), faulty.Config{})
	s := testStore(t, b)
	m := volumeOf(t, s, 1)
	f := testFetcher(t, s, nil)
	gets := b.Calls(faulty.Get)
	for what, index := range map[string]int64{"zero block": 1, "beyond the end": 5000} {
		p := []byte{1, 2, 3}
		if err := f.Read(t.Context(), m, index, p, 0, Guest); err != nil || !isZero(p) {
			t.Errorf("%s: %v, %v; want zeros", what, p, err)
		}
	}
	p := []byte{1, 2, 3}
	if err := f.Read(t.Context(), nil, 0, p, 0, Guest); err != nil || !isZero(p) {
		t.Errorf("empty disk: %v, %v; want zeros", p, err)
	}
	if got := b.Calls(faulty.Get); got != gets {
		t.Errorf("%d calls for zeros, want none", got-gets)
	}
}

func TestFetcher_OneFetchForManyReaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		s := testStore(t, g)
		m := volumeOf(t, s, 1)
		f := testFetcher(t, s, testCache(t, t.TempDir(), 64*BlockSize))
		const readers = 20
		var wg sync.WaitGroup
		wg.Go(func() { wantRead(t, f, m, 0, Guest) })
		<-g.arrived // the fetch is on its way
		for range readers - 1 {
			wg.Go(func() { wantRead(t, f, m, 0, Guest) })
		}
		synctest.Wait() // they wait for it
		close(g.open)
		wg.Wait()
		if got := f.Stats(); got.Fetched != 1 || got.Joined != readers-1 {
			t.Errorf("stats = %+v, want 1 fetch that %d joined", got, readers-1)
		}
	})
}

func TestFetcher_ReaderLeavesAndTheFetchGoesOn(t *testing.T) {
	g := newGate()
	s := testStore(t, g)
	m := volumeOf(t, s, 1)
	c := testCache(t, t.TempDir(), 64*BlockSize)
	f := testFetcher(t, s, c)
	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan error)
	go func() { left <- f.Read(ctx, m, 0, make([]byte, 10), 0, Guest) }()
	<-g.arrived
	cancel()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Fatalf("error = %v, want %v", err, context.Canceled)
	}
	close(g.open)
	f.running.Wait()
	if !c.Has(m.Entry(0)) || f.Stats().Fetched != 1 {
		t.Error("the fetch ended with its reader")
	}
}

// Background fetches that stand still must not make a guest wait.
func TestFetcher_GuestPassesBackground(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		s := testStore(t, g)
		const waiting = backgroundSlots + 3
		m := volumeOf(t, s, waiting+1)
		f := testFetcher(t, s, testCache(t, t.TempDir(), 64*BlockSize))
		var wg sync.WaitGroup
		for i := range waiting {
			wg.Go(func() { wantRead(t, f, m, int64(i), Background) })
		}
		synctest.Wait()
		for range backgroundSlots {
			<-g.arrived
		}
		if n := len(g.arrived); n != 0 {
			t.Errorf("%d background fetches beyond the %d slots", n, backgroundSlots)
		}
		wg.Go(func() { wantRead(t, f, m, waiting, Guest) })
		if key := <-g.arrived; key != keyOf(t, s, m.Entry(waiting)) {
			t.Errorf("fetched %s, want the guest's block", key)
		}
		close(g.open)
		wg.Wait()
	})
}

// A guest that wants a block that waits in the background moves it up.
func TestFetcher_GuestMovesAWaitingFetchUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		s := testStore(t, g)
		m := volumeOf(t, s, backgroundSlots+1)
		f := testFetcher(t, s, testCache(t, t.TempDir(), 64*BlockSize))
		var wg sync.WaitGroup
		for i := range backgroundSlots {
			wg.Go(func() { wantRead(t, f, m, int64(i), Background) })
			<-g.arrived
		}
		wg.Go(func() { wantRead(t, f, m, backgroundSlots, Background) })
		synctest.Wait() // the others wait for a slot
		wg.Go(func() { wantRead(t, f, m, backgroundSlots, Guest) })
		if key := <-g.arrived; key != keyOf(t, s, m.Entry(backgroundSlots)) {
			t.Errorf("fetched %s, want the block that waited", key)
		}
		close(g.open)
		wg.Wait()
		if got := f.Stats().Fetched; got != backgroundSlots+1 {
			t.Errorf("fetched %d blocks, want %d", got, backgroundSlots+1)
		}
	})
}

func TestFetcher_ReadsAhead(t *testing.T) {
	s := testStore(t, newMemory())
	m := volumeOf(t, s, 12)
	c := testCache(t, t.TempDir(), 64*BlockSize)
	f := testFetcher(t, s, c)
	for i := range int64(3) {
		wantRead(t, f, m, i, Guest)
		wantRead(t, f, m, i, Guest) // the same block is no step
	}
	f.running.Wait()
	for i := range int64(12) {
		if want := i <= 2+readAheadBlocks; c.Has(m.Entry(i)) != want {
			t.Errorf("block %d here = %v, want %v", i, !want, want)
		}
	}
	if got := f.Stats(); got.ReadAhead != readAheadBlocks || got.Fetched != 3+readAheadBlocks {
		t.Errorf("stats = %+v, want %d read ahead", got, readAheadBlocks)
	}
}

func TestStreams_TellsReadersApart(t *testing.T) {
	var s streams
	s.init()
	for i, step := range []struct {
		index int64
		want  bool
	}{{0, false}, {1, false}, {2, true}, {2, false}, {900, false}, {3, true}, {901, false}, {500, false}, {902, true}, {4, true}, {7, false}, {6, false}} {
		if got := s.sequential(step.index); got != step.want {
			t.Errorf("step %d, block %d: sequential = %v, want %v", i, step.index, got, step.want)
		}
	}
}

func TestFetcher_CorruptBlockIsNamed(t *testing.T) {
	b := newMemory()
	s := testStore(t, b)
	m := volumeOf(t, s, 3)
	f := testFetcher(t, s, testCache(t, t.TempDir(), 64*BlockSize))
	key := keyOf(t, s, m.Entry(2))
	b.objects[key][blockHeaderSize+20] ^= 1
	p := make([]byte, 10)
	wantCorrupt(t, f.Read(t.Context(), m, 2, p, 0, Guest), 2, key)
	wantRead(t, f, m, 1, Guest) // the others are sound
	if f.Stats().Failed != 1 {
		t.Errorf("stats = %+v, want 1 failed", f.Stats())
	}
}

// invariant 8: one byte of a cache file is wrong: the reader is served the right ones.
func TestFetcher_DamagedCacheFileIsFetchedAgain(t *testing.T) {
	s := testStore(t, newMemory())
	m := volumeOf(t, s, 1)
	dir := t.TempDir()
	testCache(t, dir, 64*BlockSize).Put(m.Entry(0), testBlock(0))
	c := testCache(t, dir, 64*BlockSize)
	file := c.path(m.Entry(0).Digest)
	changed := testBlock(0)
	changed[800] ^= 1
	if err := os.WriteFile(file, changed, 0o600); err != nil {
		t.Fatal(err)
	}
	f := testFetcher(t, s, c)
	wantRead(t, f, m, 0, Guest)
	if got := f.Stats().Fetched; got != 1 || c.Stats().Corrupt != 1 {
		t.Errorf("fetched %d, cache %+v; want one fetch for one damaged file", got, c.Stats())
	}
	f.running.Wait()
	wantHit(t, c, 0)
}

func TestFetcher_CloseEndsEverything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		s := testStore(t, g)
		const readers = backgroundSlots + 2
		m := volumeOf(t, s, readers)
		f := testFetcher(t, s, nil)
		results := make(chan error, readers)
		for i := range readers {
			go func() { results <- f.Read(t.Context(), m, int64(i), make([]byte, 10), 0, Background) }()
		}
		for range backgroundSlots {
			<-g.arrived
		}
		synctest.Wait() // the others wait for a slot
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		for range readers {
			if err := <-results; err == nil {
				t.Error("a read succeeded from a store that stood still")
			}
		}
		wantKind(t, "read after close", f.Read(t.Context(), m, 0, make([]byte, 10), 0, Guest), errs.Unavailable)
	})
}

func TestFetcher_RefusesBadRanges(t *testing.T) {
	f := testFetcher(t, testStore(t, newMemory()), nil)
	for _, r := range []struct{ off, n int }{{-1, 1}, {BlockSize, 1}, {1, BlockSize}} {
		err := f.Read(t.Context(), nil, 0, make([]byte, r.n), r.off, Guest)
		wantKind(t, fmt.Sprintf("%d bytes at %d", r.n, r.off), err, errs.Invalid)
	}
}

// A hostile store, a cache that evicts all the time, and many readers: each is
// given the block that the volume has.
func TestFetcher_SurvivesAHostileStore(t *testing.T) {
	inner := newMemory()
	m := volumeOf(t, testStore(t, inner), 16)
	b := faulty.New(inner, faulty.Config{Seed: 11, Trouble: 10})
	b.Arm(t, faulty.Fault{Op: faulty.Get, Effect: faulty.Flip, After: 3, Count: 1})
	f := testFetcher(t, testStore(t, b), testCache(t, t.TempDir(), 4*BlockSize))
	var wg sync.WaitGroup
	for r := range 4 {
		wg.Go(func() {
			for i := range 24 {
				wantRead(t, f, m, int64((i*(r+1)+r*5)%16), Priority(r%2*2))
			}
		})
	}
	wg.Wait()
}

// A fetch that has not begun and that nobody waits for any more is given up:
// readers that come and go must not build up a queue.
func TestFetcher_GivesUpWhatNobodyWaitsFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		s := testStore(t, g)
		m := volumeOf(t, s, backgroundSlots+1)
		f := testFetcher(t, s, nil)
		var wg sync.WaitGroup
		for i := range backgroundSlots {
			wg.Go(func() { wantRead(t, f, m, int64(i), Background) })
		}
		ctx, cancel := context.WithCancel(t.Context())
		synctest.Wait()
		wg.Go(func() {
			err := f.Read(ctx, m, backgroundSlots, make([]byte, 10), 0, Background)
			if !errors.Is(err, context.Canceled) {
				t.Errorf("error = %v, want %v", err, context.Canceled)
			}
		})
		synctest.Wait()
		cancel()
		synctest.Wait()
		close(g.open)
		wg.Wait()
		f.running.Wait()
		if got := f.Stats().Fetched; got != backgroundSlots || len(f.flights) != 0 {
			t.Errorf("fetched %d blocks, %d are on their way; want %d and none", got, len(f.flights), backgroundSlots)
		}
		wantRead(t, f, m, backgroundSlots, Background)
	})
}
