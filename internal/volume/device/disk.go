package device

import (
	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/volume"
)

// DiskRoot names the content that a memory image taken now is bound to: of the
// root that was uploaded last and waits for its commit, or of the one the device
// stands on when nothing that matters was written since. Before that is
// uploaded it is errs.Conflict.
func (d *Device) DiskRoot() (volume.Digest, error) {
	d.steps.Lock()
	defer d.steps.Unlock()
	s, l := d.state.Load(), d.layers.Load()
	switch {
	case l.sealed == nil && d.clean(l.active):
		return l.base.DiskRoot(), nil
	case s.Pending != nil && d.uploaded != nil && d.uploaded.Root() == s.Pending.Root:
		return d.uploaded.DiskRoot(), nil
	}
	return volume.Digest{}, errs.New(errs.Conflict, "what was written is not uploaded")
}
