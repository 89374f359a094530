package overlay

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"sync/atomic"

	"github.com/billethq/billet/internal/errs"
)

// The map file, version 1. Little endian.
//
//	page 0         "billetOV", u32 version, zeros
//	page 1+2g+s    slot s (0 or 1) of group g:
//	               u32 CRC-32C of the rest | u32 group | u64 generation | 16 zeros
//	               63 blocks of 32 bytes held + 32 bytes zero | 32 zeros
//
// A group is rewritten in the slot that is not its newest, with a higher
// generation, after the data it speaks of is on disk. A torn write therefore
// leaves the older slot, and the marks of one page are always of one instant.
// A slot of zeros was never written.
const (
	tableMagic   = "billetOV"
	tableVersion = 1
	slotHeader   = 32
	blockBytes   = 2 * BlockPages / 8
	groupBlocks  = (PageSize - slotHeader) / blockBytes
)

// group holds the marks of groupBlocks blocks: 4 KiB, made when the first of
// their pages is written, so that an idle volume costs next to nothing.
type group struct {
	blocks [groupBlocks]Block  // each under its block's lock
	last   [groupBlocks]uint32 // the same
	dirty  atomic.Bool         // differs from the newest slot
	// Guarded by Overlay.flush:
	newest int // the slot with the newest generation; 1 when none is written
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func create(data, table file, size int64) (*Overlay, error) {
	o := newOverlay(data, table, size)
	head := make([]byte, PageSize)
	copy(head, tableMagic)
	binary.LittleEndian.PutUint32(head[8:], tableVersion)
	if err := o.resize(); err != nil {
		return nil, err
	}
	if _, err := table.WriteAt(head, 0); err != nil {
		return nil, err
	}
	if err := errors.Join(data.Sync(), table.Sync()); err != nil {
		return nil, err
	}
	return o, nil
}

func open(data, table file, size int64) (*Overlay, error) {
	o := newOverlay(data, table, size)
	head := make([]byte, PageSize)
	if _, err := table.ReadAt(head, 0); err != nil {
		return nil, damaged("read head: %v", err)
	}
	if string(head[:8]) != tableMagic {
		return nil, damaged("not a map file")
	}
	if v := binary.LittleEndian.Uint32(head[8:]); v != tableVersion {
		return nil, errs.New(errs.Unsupported, "map file version %d, this build knows %d", v, tableVersion)
	}
	if err := o.checkLength(); err != nil {
		return nil, err
	}
	if err := o.load(); err != nil {
		return nil, err
	}
	return o, o.resize()
}

// resize gives both files their full length. The map's never changes while it
// is in use, so a short one means that something else cut it.
func (o *Overlay) resize() error {
	for f, want := range map[file]int64{o.data: o.size, o.table: tableLength(len(o.groups))} {
		have, err := f.Length()
		if err != nil {
			return err
		}
		if have >= want {
			continue
		}
		if err := f.Resize(want); err != nil {
			return err
		}
		if err := f.Sync(); err != nil {
			return err
		}
	}
	return nil
}

func tableLength(groups int) int64 { return int64(1+2*groups) * PageSize }

func (o *Overlay) checkLength() error {
	table, err := o.table.Length()
	if err != nil {
		return err
	}
	data, err := o.data.Length()
	if err != nil {
		return err
	}
	if data > o.size {
		return errs.New(errs.Invalid, "overlay of %d bytes opened for a device of %d: a device never shrinks", data, o.size)
	}
	if want := tableLength(int((data/BlockSize + groupBlocks - 1) / groupBlocks)); data%BlockSize != 0 || table < want {
		return damaged("data of %d bytes wants a map of %d, found %d", data, want, table)
	}
	return nil
}

// load reads the slots that were ever written: holes are skipped, so that the
// cost follows what is held and not the size of the device.
func (o *Overlay) load() error {
	buf := make([]byte, 2*PageSize)
	for off := int64(PageSize); ; {
		next, err := o.table.NextData(off)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("find data: %w", err)
		}
		i := (max(next, off) - PageSize) / (2 * PageSize)
		if i >= int64(len(o.groups)) {
			return nil
		}
		off = PageSize + i*2*PageSize
		if _, err := o.table.ReadAt(buf, off); err != nil {
			return damaged("read group %d: %v", i, err)
		}
		if err := o.loadGroup(uint32(i), buf); err != nil {
			return err
		}
		off += 2 * PageSize
	}
}

func (o *Overlay) loadGroup(i uint32, buf []byte) error {
	g := &group{newest: 1}
	var newest uint64
	written := 0
	for s := range 2 {
		slot := buf[s*PageSize : (s+1)*PageSize]
		if allZero(slot) {
			continue
		}
		written++
		if generation, ok := checkSlot(i, slot); ok && generation > newest {
			newest, g.newest = generation, s
		}
	}
	switch {
	case newest > 0:
	case written == 2:
		// Only one slot is ever being written: two bad ones are no torn write.
		return damaged("group %d: both copies fail their sum", i)
	default:
		return nil // its first write was torn: nothing was acknowledged
	}
	o.generation = max(o.generation, newest)
	o.pages.Add(g.decode(buf[g.newest*PageSize+slotHeader:]))
	o.groups[i].Store(g)
	return nil
}

func checkSlot(i uint32, slot []byte) (generation uint64, ok bool) {
	ok = binary.LittleEndian.Uint32(slot) == crc32.Checksum(slot[4:], castagnoli) &&
		binary.LittleEndian.Uint32(slot[4:]) == i
	return binary.LittleEndian.Uint64(slot[8:]), ok
}

func allZero(p []byte) bool {
	for _, b := range p {
		if b != 0 {
			return false
		}
	}
	return true
}

func (g *group) decode(p []byte) (pages int64) {
	for k := range g.blocks {
		b := &g.blocks[k]
		for w := range b.Held {
			b.Held[w] = binary.LittleEndian.Uint64(p[k*blockBytes+8*w:])
			b.Zero[w] = binary.LittleEndian.Uint64(p[k*blockBytes+blockBytes/2+8*w:])
		}
		pages += int64(b.Held.Count() + b.Zero.Count())
	}
	return pages
}

// encode writes the marks of group i as they are now. Each block's are taken
// under its lock.
func (o *Overlay) encode(i int, g *group, generation uint64, slot []byte) {
	clear(slot)
	binary.LittleEndian.PutUint32(slot[4:], uint32(i))
	binary.LittleEndian.PutUint64(slot[8:], generation)
	p := slot[slotHeader:]
	for k := range g.blocks {
		l := o.lock(int64(i)*groupBlocks + int64(k))
		l.RLock()
		b := g.blocks[k]
		l.RUnlock()
		for w := range b.Held {
			binary.LittleEndian.PutUint64(p[k*blockBytes+8*w:], b.Held[w])
			binary.LittleEndian.PutUint64(p[k*blockBytes+blockBytes/2+8*w:], b.Zero[w])
		}
	}
	binary.LittleEndian.PutUint32(slot, crc32.Checksum(slot[4:], castagnoli))
}

// Flush makes everything that was written before it was called durable. When
// nothing was, it does nothing at all.
//
// An error of the map file's write (a full disk) may be repeated. A failed
// fdatasync stays: the kernel has already forgotten which pages were lost, and
// a second call would succeed without them.
func (o *Overlay) Flush() error {
	o.flush.Lock()
	defer o.flush.Unlock()
	if o.broken != nil {
		return o.broken
	}
	changed, slots := o.collect()
	if !o.dirty.Swap(false) && len(changed) == 0 {
		return nil
	}
	if err := o.data.Sync(); err != nil {
		return o.fail(err)
	}
	for n, i := range changed {
		g := o.groups[i].Load()
		off := int64(1+2*i+1-g.newest) * PageSize
		if _, err := o.table.WriteAt(slots[n], off); err != nil {
			for _, i := range changed {
				o.groups[i].Load().dirty.Store(true)
			}
			return fmt.Errorf("write map: %w", err)
		}
	}
	if len(changed) > 0 {
		if err := o.table.Sync(); err != nil {
			return o.fail(err)
		}
	}
	for _, i := range changed {
		g := o.groups[i].Load()
		g.newest = 1 - g.newest
	}
	return nil
}

func (o *Overlay) fail(err error) error {
	o.broken = errs.Wrap(errs.Unavailable, err, "overlay: what was written is no longer known to be on disk")
	return o.broken
}

// collect encodes the groups that changed. It runs before the data is synced:
// a mark taken later could reach the disk before its data.
func (o *Overlay) collect() (changed []int, slots [][]byte) {
	o.generation++
	for i := range o.groups {
		g := o.groups[i].Load()
		if g == nil || !g.dirty.Swap(false) {
			continue
		}
		slot := make([]byte, PageSize)
		o.encode(i, g, o.generation, slot)
		changed, slots = append(changed, i), append(slots, slot)
	}
	return changed, slots
}

func damaged(format string, args ...any) error {
	return errs.New(errs.Internal, "overlay map is damaged: "+format, args...).
		WithHint("what was not saved cannot be read; give it up, its files are kept aside on the node: billet ws start NAME --from-snapshot --force")
}
