package device

import (
	"fmt"

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
	if old.clean() {
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
	fresh := new(worth)
	fresh.super.Store(true) // thawing rewrites the superblock
	d.layers.Store(&layers{active: next, worth: fresh, sealed: old.active, base: old.base})
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
	d.layers.Store(&layers{active: old.active, worth: old.worth, base: base})
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
