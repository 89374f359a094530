// Package overlay keeps the pages that one guest has written and that are not
// yet durable in the object store.
//
// An overlay is two files: NAME.data, a sparse file as large as the device in
// which a page lies at its own offset, and NAME.map, which says which pages
// are held. Nothing else is ever put there: clean blocks live in the host
// cache. (One file for both makes a crash between the data and the mark
// undetectable: a block says clean while half of it is new.)
//
// Every page is absent, held or zero. What Flush has acknowledged survives the
// end of the process at any instant and the loss of power; what came later may
// be there or not, page by page, as on any disk. The host's file system is
// trusted to return what it was given: the files carry no sum of the data.
package overlay

import (
	"fmt"
	"iter"
	"math/bits"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/billethq/billet/internal/errs"
)

const (
	// PageSize is the unit in which written data is tracked, and ext4's own.
	PageSize = 4096
	// BlockSize is the unit of the manifest and of locking.
	BlockSize = 1 << 20
	// BlockPages is the number of pages in a block.
	BlockPages = BlockSize / PageSize

	// lockShards lets that many blocks be written at once; two blocks that
	// share a lock only wait for a local write.
	lockShards = 64
)

// Pages is a set of pages of one block.
type Pages [BlockPages / 64]uint64

// Has reports whether page i of the block is in the set.
func (p *Pages) Has(i int) bool { return p[i/64]&(1<<(i%64)) != 0 }

// Count returns the number of pages in the set.
func (p *Pages) Count() int {
	n := 0
	for _, w := range p {
		n += bits.OnesCount64(w)
	}
	return n
}

func (p *Pages) set(i int)   { p[i/64] |= 1 << (i % 64) }
func (p *Pages) clear(i int) { p[i/64] &^= 1 << (i % 64) }

// Block says what an overlay holds of one block. No page is in both sets.
type Block struct {
	Held Pages // the data is in the overlay
	Zero Pages // discarded or written as zeros; reads as zeros
}

// Empty reports whether the overlay says nothing about the block.
func (b *Block) Empty() bool { return b.Held == Pages{} && b.Zero == Pages{} }

// Overlay is one layer of written pages. Its methods may run concurrently.
// After Close reads and writes fail with os.ErrClosed.
type Overlay struct {
	size   int64
	data   file
	table  file
	groups []atomic.Pointer[group] // nil: nothing held in these blocks
	locks  [lockShards]sync.RWMutex
	grow   sync.Mutex // guards the making of groups

	pages atomic.Int64  // held and zero pages
	tick  atomic.Uint32 // counts writes, to order blocks by their last one
	dirty atomic.Bool   // data was written since the last Flush began

	flush      sync.Mutex // one Flush at a time; guards what follows
	generation uint64
	broken     error // a failed fdatasync: the kernel forgot what was dirty
}

// Create makes an empty overlay for a device of size bytes, a multiple of
// BlockSize. The files are durable when it returns; their names are so once
// the caller has synced dir.
func Create(dir, name string, size int64) (*Overlay, error) {
	return openFiles(dir, name, size, os.O_RDWR|os.O_CREATE|os.O_TRUNC, create)
}

// Open finds an overlay as the last Flush left it. A size larger than the one
// it was created with grows it. A file that is not what Flush wrote is refused
// as errs.Internal, never read as empty.
func Open(dir, name string, size int64) (*Overlay, error) {
	return openFiles(dir, name, size, os.O_RDWR, open)
}

// Remove deletes an overlay's files. Missing files are no error.
func Remove(dir, name string) error {
	for _, path := range Files(dir, name) {
		if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
			return fmt.Errorf("remove overlay: %w", err)
		}
	}
	return nil
}

// Files returns the paths of an overlay's files: data, then map.
func Files(dir, name string) []string {
	return []string{filepath.Join(dir, name+".data"), filepath.Join(dir, name+".map")}
}

func openFiles(dir, name string, size int64, flag int, make func(data, table file, size int64) (*Overlay, error)) (*Overlay, error) {
	if size <= 0 || size%BlockSize != 0 {
		return nil, errs.New(errs.Invalid, "overlay of %d bytes: not a positive multiple of %d", size, BlockSize)
	}
	var files [2]*os.File
	for i, path := range Files(dir, name) {
		f, err := os.OpenFile(path, flag, 0o600)
		if err != nil {
			closeAll(files[:i])
			return nil, fmt.Errorf("open overlay: %w", err)
		}
		files[i] = f
	}
	o, err := make(osFile{files[0]}, osFile{files[1]}, size)
	if err != nil {
		closeAll(files[:])
		return nil, fmt.Errorf("open overlay %s: %w", filepath.Join(dir, name), err)
	}
	return o, nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close() // the caller returns the error that matters
	}
}

func newOverlay(data, table file, size int64) *Overlay {
	groups := (size/BlockSize + groupBlocks - 1) / groupBlocks
	return &Overlay{size: size, data: data, table: table, groups: make([]atomic.Pointer[group], groups)}
}

// Size returns the size of the device in bytes.
func (o *Overlay) Size() int64 { return o.size }

// PageCount returns how many pages are held or zero.
func (o *Overlay) PageCount() int64 { return o.pages.Load() }

// Close closes the files without flushing.
func (o *Overlay) Close() error {
	err := o.data.Close()
	if e := o.table.Close(); err == nil {
		err = e
	}
	return err
}

// Block returns what is held of block n.
func (o *Overlay) Block(n int64) Block {
	g := o.groups[n/groupBlocks].Load()
	if g == nil {
		return Block{}
	}
	l := o.lock(n)
	l.RLock()
	defer l.RUnlock()
	return g.blocks[n%groupBlocks]
}

// Written yields each block of which something is held, in ascending order,
// with a number that rises with the time of its last write; it is 0 for blocks
// written before the overlay was opened.
func (o *Overlay) Written() iter.Seq2[int64, uint32] {
	return func(yield func(int64, uint32) bool) {
		for i := range o.groups {
			g := o.groups[i].Load()
			if g == nil {
				continue
			}
			for k := range int64(groupBlocks) {
				block := int64(i)*groupBlocks + k
				l := o.lock(block)
				l.RLock()
				empty, last := g.blocks[k].Empty(), g.last[k]
				l.RUnlock()
				if !empty && !yield(block, last) {
					return
				}
			}
		}
	}
}

// ReadAt reads from the data file, whatever the map says: the caller has asked
// Block which pages are held.
func (o *Overlay) ReadAt(p []byte, off int64) (int, error) { return o.data.ReadAt(p, off) }

// Write stores whole pages: off and len(p) are multiples of PageSize. It never
// reads. A full host disk is ENOSPC; the pages then hold the old or the new.
func (o *Overlay) Write(p []byte, off int64) error {
	if off%PageSize != 0 || len(p)%PageSize != 0 {
		return errs.New(errs.Internal, "write of %d bytes at %d is not aligned", len(p), off)
	}
	for len(p) > 0 {
		n := int(min(int64(len(p)), BlockSize-off%BlockSize))
		if err := o.writeBlock(p[:n], off); err != nil {
			return err
		}
		p, off = p[n:], off+int64(n)
	}
	return nil
}

func (o *Overlay) writeBlock(p []byte, off int64) error {
	block := off / BlockSize
	g := o.group(block)
	l := o.lock(block)
	l.Lock()
	defer l.Unlock()
	return o.store(g, block, p, off)
}

// WriteWithin stores bytes inside one page and reports true, if the overlay
// knows the rest of the page. It reports false, having done nothing, when the
// page is absent: the caller then fills it by WriteAbsent.
func (o *Overlay) WriteWithin(p []byte, off int64) (bool, error) {
	block, page := off/BlockSize, int(off%BlockSize/PageSize)
	g := o.group(block)
	l := o.lock(block)
	l.Lock()
	defer l.Unlock()
	b := &g.blocks[block%groupBlocks]
	switch {
	case b.Held.Has(page):
		o.dirty.Store(true)
		_, err := o.data.WriteAt(p, off)
		g.last[block%groupBlocks] = o.tick.Add(1)
		return true, err
	case b.Zero.Has(page):
		// The whole page: the host's file system may be one that cannot punch
		// holes, and then old data lies under the zero mark.
		whole := make([]byte, PageSize)
		copy(whole[off%PageSize:], p)
		return true, o.store(g, block, whole, off-off%PageSize)
	}
	return false, nil
}

// WriteAbsent stores one whole page if it is absent, and reports whether it
// did: a page that somebody wrote meanwhile is newer than what p was made of.
func (o *Overlay) WriteAbsent(p []byte, off int64) (bool, error) {
	block, page := off/BlockSize, int(off%BlockSize/PageSize)
	g := o.group(block)
	l := o.lock(block)
	l.Lock()
	defer l.Unlock()
	if b := &g.blocks[block%groupBlocks]; b.Held.Has(page) || b.Zero.Has(page) {
		return false, nil
	}
	return true, o.store(g, block, p[:PageSize], off)
}

// store writes pages of one block, whose lock is held, and only then marks
// them: a mark without its data would hide the base.
func (o *Overlay) store(g *group, block int64, p []byte, off int64) error {
	o.dirty.Store(true)
	if _, err := o.data.WriteAt(p, off); err != nil {
		return err
	}
	k := block % groupBlocks
	b := &g.blocks[k]
	first, added, changed := int(off%BlockSize/PageSize), 0, false
	for i := first; i < first+len(p)/PageSize; i++ {
		if b.Held.Has(i) {
			continue
		}
		if !b.Zero.Has(i) {
			added++
		}
		b.Held.set(i)
		b.Zero.clear(i)
		changed = true
	}
	g.last[k] = o.tick.Add(1)
	if changed {
		o.pages.Add(int64(added))
		g.dirty.Store(true)
	}
	return nil
}

// Zero makes whole pages read as zeros; off and n are multiples of PageSize.
// An absent page of a block for which below reports true already does, and
// stays absent: nothing then has to be kept, or compared at the next upload.
func (o *Overlay) Zero(off, n int64, below func(block int64) bool) error {
	if off%PageSize != 0 || n%PageSize != 0 {
		return errs.New(errs.Internal, "zeroing %d bytes at %d is not aligned", n, off)
	}
	for n > 0 {
		step := min(n, BlockSize-off%BlockSize)
		if err := o.zeroBlock(off, step, below(off/BlockSize)); err != nil {
			return err
		}
		off, n = off+step, n-step
	}
	return nil
}

func (o *Overlay) zeroBlock(off, n int64, below bool) error {
	block := off / BlockSize
	if below && o.groups[block/groupBlocks].Load() == nil {
		return nil
	}
	g := o.group(block)
	l := o.lock(block)
	l.Lock()
	defer l.Unlock()
	k := block % groupBlocks
	b := &g.blocks[k]
	first, end := int(off%BlockSize/PageSize), int((off%BlockSize+n)/PageSize)
	added, punch, changed := 0, false, false
	for i := first; i < end; i++ {
		held := b.Held.Has(i)
		if b.Zero.Has(i) || !held && below {
			continue
		}
		if held {
			punch = true
			b.Held.clear(i)
		} else {
			added++
		}
		b.Zero.set(i)
		changed = true
	}
	if !changed {
		return nil
	}
	o.dirty.Store(true)
	g.last[k] = o.tick.Add(1)
	o.pages.Add(int64(added))
	g.dirty.Store(true)
	if !punch {
		return nil
	}
	// A file system without holes costs space, nothing else: the mark decides.
	if err := o.data.Punch(off, n); err != nil && err != syscall.EOPNOTSUPP && err != syscall.ENOSPC {
		return fmt.Errorf("punch hole: %w", err)
	}
	return nil
}

func (o *Overlay) lock(block int64) *sync.RWMutex { return &o.locks[block%lockShards] }

// group returns the marks of the group in which block lies, making them if
// need be.
func (o *Overlay) group(block int64) *group {
	p := &o.groups[block/groupBlocks]
	if g := p.Load(); g != nil {
		return g
	}
	o.grow.Lock()
	defer o.grow.Unlock()
	if g := p.Load(); g != nil {
		return g
	}
	g := &group{newest: 1}
	p.Store(g)
	return g
}
