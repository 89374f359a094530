package device

import (
	"sync/atomic"

	"github.com/billethq/billet/internal/volume"
)

// worth says whether what an overlay holds is worth saving. Growing, mounting,
// thawing and unmounting a file system write pages that mean nothing by
// themselves: the next start would write them again. They go into a root with
// the first write that matters, and are no reason to make one.
type worth struct {
	wrote atomic.Bool // a page was written that may matter
	// super: the superblock alone does not. It is rewritten by a thaw, and by a
	// kernel that counts in it.
	super atomic.Bool
}

// note is told of each write before it is made.
func (w *worth) note(off, n int64) {
	if w.wrote.Load() || w.super.Load() && off+n <= volume.PageSize {
		return
	}
	w.wrote.Store(true)
}

// clean reports whether the active overlay holds nothing worth saving.
func (l *layers) clean() bool { return !l.worth.wrote.Load() || l.active.PageCount() == 0 }

// Clean reports whether there is nothing to save: no sealed overlay, and in the
// active one nothing that came after Settle, but the superblock.
func (d *Device) Clean() bool {
	l := d.layers.Load()
	return l.sealed == nil && l.clean()
}

// Begin says that the guest may write from now on: what it flushes is kept.
// What the overlay holds already is settled.
func (d *Device) Begin() error {
	d.Settle()
	d.steps.Lock()
	defer d.steps.Unlock()
	if err := d.layers.Load().active.Flush(); err != nil {
		return err
	}
	s := *d.state.Load()
	s.Fresh = false
	if err := s.save(d.cfg.Dir); err != nil {
		return err
	}
	d.state.Store(&s)
	return nil
}

// Settle says that whatever the active overlay holds was written by growing and
// mounting before a guest was there, or by unmounting after it was found clean.
// It is called while nobody writes. Without it, starting and stopping an idle
// workspace would upload blocks and a root each time.
//
// Which pages these were does not matter, and must not: growing rewrites pages
// that a guest's change may be all in, such as the first inodes.
func (d *Device) Settle() {
	d.steps.Lock()
	defer d.steps.Unlock()
	l := d.layers.Load()
	first := l.active.Block(0)
	l.worth.super.Store(first.Held.Has(0))
	l.worth.wrote.Store(false)
}
