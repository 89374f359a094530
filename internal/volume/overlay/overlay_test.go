package overlay

import (
	"bytes"
	"errors"
	"os"
	"sync"
	"syscall"
	"testing"

	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/testenv"
)

func mustCreate(t *testing.T, size int64) (*Overlay, string) {
	t.Helper()
	dir := t.TempDir()
	o, err := Create(dir, "o", size)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = o.Close() })
	return o, dir
}

func nothingBelow(int64) bool { return false }

func TestOverlay_ReopensAsFlushed(t *testing.T) {
	o, dir := mustCreate(t, 200*BlockSize)
	page := bytes.Repeat([]byte("x"), PageSize)
	for _, at := range []int64{0, 5 * BlockSize, 199*BlockSize + BlockSize - PageSize} {
		if err := o.Write(page, at); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(o.Zero(7*BlockSize, BlockSize, nothingBelow), o.Flush(), o.Close()); err != nil {
		t.Fatal(err)
	}
	o, err := Open(dir, "o", 400*BlockSize) // grown meanwhile
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	if got, want := o.PageCount(), int64(3+BlockPages); got != want {
		t.Errorf("%d pages, want %d", got, want)
	}
	var blocks []int64
	for b := range o.Written() {
		blocks = append(blocks, b)
	}
	if want := []int64{0, 5, 7, 199}; len(blocks) != len(want) || blocks[0] != 0 || blocks[2] != 7 {
		t.Errorf("blocks %v, want %v", blocks, want)
	}
	if b := o.Block(7); b.Zero.Count() != BlockPages || b.Held.Count() != 0 {
		t.Errorf("block 7 has %d zero and %d held pages", b.Zero.Count(), b.Held.Count())
	}
	if _, err := Open(dir, "o", 100*BlockSize); !errs.Is(err, errs.Invalid) {
		t.Errorf("open smaller: %v, want invalid", err)
	}
}

func TestOverlay_ZeroOverNothingHoldsNothing(t *testing.T) {
	o, _ := mustCreate(t, 1<<35)
	if err := o.Zero(0, 1<<35, func(int64) bool { return true }); err != nil {
		t.Fatal(err)
	}
	if o.PageCount() != 0 {
		t.Errorf("%d pages are held", o.PageCount())
	}
	for i := range o.groups {
		if o.groups[i].Load() != nil {
			t.Fatalf("marks of group %d were made", i)
		}
	}
}

func TestOverlay_LastWriteOrdersBlocks(t *testing.T) {
	o, _ := mustCreate(t, 8*BlockSize)
	page := make([]byte, PageSize)
	for _, block := range []int64{3, 1, 2, 1} {
		if err := o.Write(page, block*BlockSize); err != nil {
			t.Fatal(err)
		}
	}
	last := map[int64]uint32{}
	for b, n := range o.Written() {
		last[b] = n
	}
	if !(last[3] < last[2] && last[2] < last[1]) {
		t.Errorf("last writes %v, want 3 before 2 before 1", last)
	}
}

func TestOverlay_ParallelPartsOfOnePage(t *testing.T) {
	o, _ := mustCreate(t, BlockSize)
	if ok, err := o.WriteAbsent(make([]byte, PageSize), 0); !ok || err != nil {
		t.Fatal(ok, err)
	}
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			part := bytes.Repeat([]byte{byte(i + 1)}, PageSize/8)
			if ok, err := o.WriteWithin(part, int64(i*len(part))); !ok || err != nil {
				t.Error(ok, err)
			}
			if err := o.Flush(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	got := make([]byte, PageSize)
	if _, err := o.ReadAt(got, 0); err != nil {
		t.Fatal(err)
	}
	for i := range got {
		if got[i] != byte(i/(PageSize/8)+1) {
			t.Fatalf("byte %d is %d", i, got[i])
		}
	}
}

func TestOverlay_FullDiskIsRepeatable(t *testing.T) {
	dir := testenv.TmpfsDir(t, "1m")
	o, err := Create(dir, "o", 64*BlockSize)
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	page := bytes.Repeat([]byte{7}, PageSize)
	full := int64(-1)
	for at := int64(0); at < 2<<20; at += PageSize {
		if err := o.Write(page, at); err != nil {
			if !errors.Is(err, syscall.ENOSPC) {
				t.Fatalf("write at %d: %v", at, err)
			}
			full = at
			break
		}
	}
	if full < 0 {
		t.Fatal("the disk never filled")
	}
	b := o.Block(full / BlockSize)
	if b.Held.Has(int(full % BlockSize / PageSize)) {
		t.Error("a page that was refused counts as held")
	}
	if err := o.Flush(); !errors.Is(err, syscall.ENOSPC) { // no room for the marks
		t.Logf("flush on the full disk: %v", err)
	}
	if err := o.Zero(0, 16*PageSize, nothingBelow); err != nil { // makes room
		t.Fatal(err)
	}
	if err := errors.Join(o.Write(page, full), o.Flush()); err != nil {
		t.Errorf("after room was made: %v", err)
	}
}

func TestOverlay_FailedSyncStays(t *testing.T) {
	p := &power{left: -1}
	o, err := create(newSimFile(p, false), newSimFile(p, false), BlockSize)
	if err != nil {
		t.Fatal(err)
	}
	if err := o.Write(make([]byte, PageSize), 0); err != nil {
		t.Fatal(err)
	}
	p.left = 0
	if err := o.Flush(); err == nil {
		t.Fatal("flush succeeded without power")
	}
	p.left = -1
	if err := o.Flush(); err == nil {
		t.Error("flush after a failed sync succeeded: what was lost is forgotten")
	}
}

func TestOverlay_ClosedIsErrClosed(t *testing.T) {
	o, _ := mustCreate(t, BlockSize)
	_ = o.Close()
	if _, err := o.ReadAt(make([]byte, 1), 0); !errors.Is(err, os.ErrClosed) {
		t.Errorf("read: %v, want os.ErrClosed", err)
	}
	if err := o.Write(make([]byte, PageSize), 0); !errors.Is(err, os.ErrClosed) {
		t.Errorf("write: %v, want os.ErrClosed", err)
	}
}
