package node

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/model"
)

// fakeVolume is one overlay and, while pid is not zero, its process.
type fakeVolume struct {
	pid     int
	spawned int // processes so far
	mounted bool
	epoch   model.Epoch
	root    model.Root
	fresh   []string // written since the newest seal
	sealed  []string
	pending model.Root
	faults  []Fault
	uploads int
	opens   int
	onOpen  func() error
	onMount func() error // refuses a mount that has been announced
	// elsewhere: it is mounted in another place than announced.
	elsewhere bool
	// before, when set, runs ahead of the named call and may refuse it.
	before func(call string) error
}

func (f *fakeVolume) ns() string { return fmt.Sprintf("/proc/%d/ns/mnt", f.pid) }

// volumesView is the volume processes as one life of the node sees them.
type volumesView struct{ l *life }

func instanceOf(volumeDir string) model.InstanceID {
	return model.InstanceID(filepath.Base(filepath.Dir(volumeDir)))
}

func overlayFile(dir string) string { return filepath.Join(dir, "overlay") }

// Open implements Volumes.
func (v volumesView) Open(ctx context.Context, spec VolumeSpec) (Volume, error) {
	w := v.l.w
	var out Volume
	err := v.l.call(ctx, "Open", func() error {
		f := w.volumes[spec.Instance]
		if f == nil {
			f = &fakeVolume{root: spec.Root, epoch: spec.Epoch}
			w.volumes[spec.Instance] = f
		}
		f.opens++
		if f.onOpen != nil {
			if err := f.onOpen(); err != nil {
				return err
			}
		}
		if f.epoch != spec.Epoch {
			w.violate("an overlay opened under another epoch")
		}
		if f.pid == 0 {
			if w.guest(spec.Instance).running {
				return errs.New(errs.Conflict, "the file system is still mounted: end the sandbox first")
			}
			f.spawned++
			if spec.Mounting != nil {
				rootfs, ns := volumeView{pid: 1000 + f.spawned}.Mount()
				if f.elsewhere {
					rootfs += "-other"
				}
				spec.Mounting(rootfs, ns)
			}
			if f.onMount != nil {
				if err := f.onMount(); err != nil {
					return err
				}
			}
			f.pid, f.mounted, f.faults = 1000+f.spawned, true, nil
		}
		if err := os.WriteFile(overlayFile(spec.Dir), nil, 0o600); err != nil {
			return errs.Wrap(errs.Internal, err, "overlay")
		}
		out = volumeView{v.l, f, spec.Instance, f.pid}
		return nil
	})
	return out, err
}

// Exists implements Volumes.
func (v volumesView) Exists(dir string) bool {
	_, err := os.Stat(overlayFile(dir))
	return err == nil
}

// Clear implements Volumes.
func (v volumesView) Clear(ctx context.Context, dir string) error {
	w := v.l.w
	return v.l.call(ctx, "Clear", func() error {
		f := w.volumes[instanceOf(dir)]
		if f == nil {
			return nil
		}
		if w.guest(instanceOf(dir)).running || v.l.held[instanceOf(dir)] {
			return errs.New(errs.Conflict, "the file system is still mounted: end the sandbox first")
		}
		f.pid, f.mounted = 0, false
		return nil
	})
}

// volumeView is one process as one life of the node sees it.
type volumeView struct {
	l   *life
	f   *fakeVolume
	id  model.InstanceID
	pid int
}

// call refuses when the process is no more.
func (v volumeView) call(ctx context.Context, name string, effect func() error) error {
	return v.l.call(ctx, name, func() error {
		if v.f.pid != v.pid {
			return errs.New(errs.Unavailable, "the volume process is gone")
		}
		if v.f.before != nil {
			if err := v.f.before(name); err != nil {
				return err
			}
		}
		return effect()
	})
}

// Mount implements Volume.
func (v volumeView) Mount() (rootfs, ns string) {
	return "/rootfs", fmt.Sprintf("/proc/%d/ns/mnt", v.pid)
}

// Status implements Volume.
func (v volumeView) Status(ctx context.Context) (st VolumeStatus, err error) {
	err = v.call(ctx, "Status", func() error {
		st = VolumeStatus{
			Root: v.f.root, Sealed: len(v.f.sealed) > 0, Pending: v.f.pending, Faults: slices.Clone(v.f.faults),
			UnsavedBytes: int64(len(v.f.fresh) + len(v.f.sealed)),
		}
		return nil
	})
	return st, err
}

// Seal implements Volume.
func (v volumeView) Seal(ctx context.Context) (clean bool, err error) {
	err = v.call(ctx, "Seal", func() error {
		if len(v.f.sealed) == 0 {
			v.f.sealed, v.f.fresh = v.f.fresh, nil
		}
		clean = len(v.f.sealed) == 0
		return nil
	})
	return clean, err
}

// Upload implements Volume.
func (v volumeView) Upload(ctx context.Context, up Upload) (out Uploaded, err error) {
	w := v.l.w
	w.mu.Lock()
	var free <-chan struct{}
	if w.stall != nil {
		free = w.stall()
	}
	w.mu.Unlock()
	if free != nil {
		select {
		case <-free:
		case <-ctx.Done():
			return out, context.Cause(ctx)
		}
	}
	err = v.call(ctx, "Upload", func() error {
		v.f.uploads++
		content := slices.Concat(w.objects[v.f.root], v.f.sealed)
		root := rootOf(string(v.f.root), strings.Join(content, "\n"), string(up.Intent))
		w.objects[root] = content
		v.f.pending = root
		out = Uploaded{Root: root, Consistency: "fs"}
		return nil
	})
	return out, err
}

// Committed implements Volume.
func (v volumeView) Committed(ctx context.Context, root model.Root) error {
	w := v.l.w
	return v.call(ctx, "Committed", func() error {
		if root != v.f.pending {
			w.violate("committed what is not pending")
		}
		v.f.root, v.f.sealed, v.f.pending = root, nil, ""
		return nil
	})
}

// Unmount implements Volume.
func (v volumeView) Unmount(ctx context.Context) error {
	return v.call(ctx, "Unmount", func() error {
		if v.l.w.guest(v.id).running {
			v.l.w.violate("unmounted under a running guest")
		}
		v.f.mounted = false
		return nil
	})
}

// Close implements Volume.
func (v volumeView) Close(ctx context.Context) error {
	return v.call(ctx, "Close", func() error {
		if n := len(v.f.fresh) + len(v.f.sealed); n > 0 {
			v.l.w.violate(fmt.Sprintf("closed with %d writes unsaved", n))
		}
		v.f.pid, v.f.mounted = 0, false
		return nil
	})
}

// Fault implements Volume.
func (v volumeView) Fault(ctx context.Context) (Fault, error) {
	w := v.l.w
	grave := func() int {
		return slices.IndexFunc(v.f.faults, func(f Fault) bool { return f.Kind != FaultCorrupt })
	}
	err := w.hold(ctx, func() bool { return v.l.dead || v.f.pid != v.pid || grave() >= 0 })
	if err != nil {
		return Fault{}, err
	}
	var out Fault
	err = v.l.call(ctx, "Fault", func() error {
		out = Fault{Kind: FaultGone, Detail: "the volume process has died"}
		if v.f.pid == v.pid {
			out = v.f.faults[grave()]
		}
		return nil
	})
	return out, err
}

// write is a write of the guest, acknowledged.
func (w *world) write(id model.InstanceID, text string) {
	w.change(func() {
		f := w.volumes[id]
		f.fresh = append(slices.Clone(f.fresh), text)
	})
}

// killVolume is kill -9 of a volume process.
func (w *world) killVolume(id model.InstanceID) {
	w.change(func() { w.volumes[id].pid, w.volumes[id].mounted = 0, false })
}

// fault makes something go wrong with a volume.
func (w *world) fault(id model.InstanceID, f Fault) {
	w.change(func() { w.volumes[id].faults = append(w.volumes[id].faults, f) })
}

func rootOf(parts ...string) model.Root {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return model.Root("b3:" + hex.EncodeToString(sum[:]))
}
