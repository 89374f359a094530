package device

import (
	"github.com/billethq/billet/internal/volume"
)

// WriteAt stores p at off. Whole pages are never read; a part of a page that
// the overlay does not hold is first completed from below, which may fetch a
// block. A full host disk is ENOSPC (see IsFull).
func (d *Device) WriteAt(p []byte, off int64) error {
	d.writes.Add(1)
	d.writtenBytes.Add(int64(len(p)))
	for len(p) > 0 {
		n, err := d.writeSome(p, off)
		if err != nil {
			return d.report(err)
		}
		p, off = p[n:], off+int64(n)
	}
	return nil
}

// writeSome writes the part of a page at the front of p, or the whole pages
// there, and returns how many bytes that was.
func (d *Device) writeSome(p []byte, off int64) (int, error) {
	if in := int(off % volume.PageSize); in != 0 || len(p) < volume.PageSize {
		n := min(len(p), volume.PageSize-in)
		return n, d.writePart(p[:n], off)
	}
	n := len(p) - len(p)%volume.PageSize
	d.mu.RLock()
	defer d.mu.RUnlock()
	l := d.layers.Load()
	l.worth.note(off, int64(n))
	return n, l.active.Write(p[:n], off)
}

// writePart writes within one page. The page is completed outside the lock,
// from the view l; if the active overlay was swapped meanwhile, somebody may
// have written to the page in the old one, and it is completed again.
func (d *Device) writePart(p []byte, off int64) error {
	start := off - off%volume.PageSize
	for {
		l, done, err := d.tryPart(p, off)
		if done || err != nil {
			return err
		}
		page := make([]byte, volume.PageSize)
		below := func(l *layers) error { return d.readLayers(l, false, page, start) }
		if err := d.withLayers(below); err != nil {
			return err
		}
		d.fills.Add(1)
		copy(page[off-start:], p)
		if done, err := d.tryFilled(l, page, start); done || err != nil {
			return err
		}
	}
}

func (d *Device) tryPart(p []byte, off int64) (*layers, bool, error) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	l := d.layers.Load()
	l.worth.note(off, int64(len(p)))
	done, err := l.active.WriteWithin(p, off)
	return l, done, err
}

func (d *Device) tryFilled(l *layers, page []byte, start int64) (bool, error) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	if d.layers.Load().active != l.active {
		return false, nil
	}
	l.worth.note(start, int64(len(page)))
	return l.active.WriteAbsent(page, start)
}

// Zero makes a range read as zeros and frees the space under it.
func (d *Device) Zero(off, n int64) error {
	d.writes.Add(1)
	for n > 0 {
		step := n
		if in := off % volume.PageSize; in != 0 || n < volume.PageSize {
			step = min(n, volume.PageSize-in)
			if err := d.WriteAt(make([]byte, step), off); err != nil {
				return err
			}
		} else {
			step = n - n%volume.PageSize
			if err := d.report(d.zeroPages(off, step)); err != nil {
				return err
			}
		}
		off, n = off+step, n-step
	}
	return nil
}

func (d *Device) zeroPages(off, n int64) error {
	d.mu.RLock()
	defer d.mu.RUnlock()
	l := d.layers.Load()
	l.worth.note(off, n)
	return l.active.Zero(off, n, func(block int64) bool {
		if !l.base.Entry(block).IsZero() {
			return false
		}
		if l.sealed == nil {
			return true
		}
		b := l.sealed.Block(block)
		return b.Empty()
	})
}
