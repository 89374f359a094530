package device

import (
	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/model"
	"github.com/billethq/billet/internal/volume"
)

// DiskRoot names the content of a root, which a memory image taken at it is
// bound to: the root that was uploaded last, or the one that the device stands
// on. Of any other it is errs.Conflict.
func (d *Device) DiskRoot(root model.Root) (volume.Digest, error) {
	d.steps.Lock()
	defer d.steps.Unlock()
	if base := d.layers.Load().base; base.Root() == root {
		return base.DiskRoot(), nil
	}
	if d.uploaded.Root() == root {
		return d.uploaded.DiskRoot(), nil
	}
	return volume.Digest{}, errs.New(errs.Conflict, "root %s was not uploaded here", root.Short())
}
