package device

import (
	"fmt"
	"iter"

	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/model"
	"github.com/billethq/billet/internal/volume"
	"github.com/billethq/billet/internal/volume/overlay"
)

// Seal sets aside what was written so far for the next Upload and gives the
// guest an empty overlay. It reports false, having done nothing, when nothing
// was written that matters. When an earlier seal still waits for its commit
// that one stays, its consistency too, and Seal reports true.
//
// consistency says what the caller made of the file system before the call.
// Writers wait while the last writes are flushed; readers never do.
func (d *Device) Seal(consistency volume.Consistency) (bool, error) {
	d.steps.Lock()
	defer d.steps.Unlock()
	old := d.layers.Load()
	if old.sealed != nil {
		return true, nil
	}
	if d.clean(old.active) {
		return false, nil
	}
	// Most of the work without the lock.
	if err := old.active.Flush(); err != nil {
		return false, d.report(err)
	}
	s := *d.state.Load()
	s.Sealed, s.Active, s.Consistency = s.Active, s.Active+1, consistency
	next, err := overlay.Create(d.cfg.Dir, overlayName(s.Active), d.cfg.Size)
	if err != nil {
		return false, d.report(err)
	}
	if err := d.swap(old, next, s); err != nil {
		_ = next.Close()
		return false, d.report(fmt.Errorf("seal: %w", err))
	}
	d.quiet.Store(&map[int64]struct{}{0: {}}) // thawing rewrites the superblock
	return true, nil
}

// NotFrozen corrects the consistency of the sealed overlay: the freeze under
// which it was made did not last.
func (d *Device) NotFrozen() error {
	d.steps.Lock()
	defer d.steps.Unlock()
	s := *d.state.Load()
	if s.Sealed == 0 || s.Consistency == volume.Crash {
		return nil
	}
	s.Consistency = volume.Crash
	if err := s.save(d.cfg.Dir); err != nil {
		return err
	}
	d.state.Store(&s)
	return nil
}

// swap flushes what came since and changes the layers under the lock. If it
// fails after the record was renamed, a reopen finds the seal done and this
// process goes on without it: both read the same bytes, because the overlay in
// question is then part of either view.
func (d *Device) swap(old *layers, next *overlay.Overlay, s state) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := old.active.Flush(); err != nil {
		return err
	}
	if err := s.save(d.cfg.Dir); err != nil {
		return err
	}
	d.state.Store(&s)
	d.layers.Store(&layers{active: next, sealed: old.active, base: old.base})
	return nil
}

// Pending returns the upload that waits for its commit, nil when none does.
func (d *Device) Pending() *Pending { return d.state.Load().Pending }

// Sealed reports whether a sealed overlay waits for its commit.
func (d *Device) Sealed() bool { return d.layers.Load().sealed != nil }

// Committed says that root is the subject's head in the ledger: it becomes the
// base and the sealed overlay is dropped. Repeating it is no error. A root
// that is not the pending one is errs.Conflict.
func (d *Device) Committed(root model.Root) error {
	d.steps.Lock()
	defer d.steps.Unlock()
	had := *d.state.Load()
	if had.Base == root {
		return nil
	}
	if had.Pending == nil || had.Pending.Root != root {
		return errs.New(errs.Conflict, "root %s was not uploaded here", root.Short())
	}
	base, err := d.uploadedManifest(root)
	if err != nil {
		return fmt.Errorf("load root %s: %w", root.Short(), err)
	}
	s := had.committed()
	if err := s.save(d.cfg.Dir); err != nil {
		return err
	}
	d.state.Store(&s)
	old := d.layers.Load()
	d.mu.Lock()
	d.layers.Store(&layers{active: old.active, base: base})
	d.mu.Unlock()
	// A reader of the old view meets os.ErrClosed and takes the new one.
	_ = old.sealed.Close()
	return overlay.Remove(d.cfg.Dir, overlayName(had.Sealed))
}

func (d *Device) uploadedManifest(root model.Root) (*volume.Manifest, error) {
	if d.uploaded != nil && d.uploaded.Root() == root {
		return d.uploaded, nil
	}
	return d.cfg.Store.LoadManifest(d.ctx, root)
}

// maxQuiet bounds what Settle takes for the traces of a mount: superblock,
// journal superblock and what lies between. A replayed journal writes more.
const maxQuiet = 64

// Begin says that the guest may write from now on: what it flushes is kept.
// settle is as Settle.
func (d *Device) Begin(settle bool) error {
	if settle {
		d.Settle()
	}
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

// Settle says that whatever the active overlay holds was written by mounting,
// or by unmounting after it was found clean. As long as no other page is
// written there is nothing to save: every change that matters also changes a
// page of the journal, of a file or of a directory. Without this, starting and
// stopping an idle workspace would upload a block and a root each time.
func (d *Device) Settle() {
	d.steps.Lock()
	defer d.steps.Unlock()
	l := d.layers.Load()
	if l.active.PageCount() > maxQuiet {
		return
	}
	quiet := make(map[int64]struct{})
	for page := range written(l.active) {
		quiet[page] = struct{}{}
	}
	d.quiet.Store(&quiet)
}

// Clean reports whether there is nothing to save: no sealed overlay, and no
// page in the active one but those that Settle saw.
func (d *Device) Clean() bool {
	l := d.layers.Load()
	return l.sealed == nil && d.clean(l.active)
}

func (d *Device) clean(active *overlay.Overlay) bool {
	var quiet map[int64]struct{}
	if p := d.quiet.Load(); p != nil {
		quiet = *p
	}
	if active.PageCount() > int64(len(quiet)) {
		return false
	}
	for page := range written(active) {
		if _, ok := quiet[page]; !ok {
			return false
		}
	}
	return true
}

// written yields the index of every page that o holds.
func written(o *overlay.Overlay) iter.Seq[int64] {
	return func(yield func(int64) bool) {
		for block := range o.Written() {
			b := o.Block(block)
			for i := range overlay.BlockPages {
				if (b.Held.Has(i) || b.Zero.Has(i)) && !yield(block*overlay.BlockPages+int64(i)) {
					return
				}
			}
		}
	}
}
