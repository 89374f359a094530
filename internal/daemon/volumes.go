package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/billethq/billet/internal/config"
	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/model"
	"github.com/billethq/billet/internal/node"
	"github.com/billethq/billet/internal/volume/client"
	"github.com/billethq/billet/internal/volume/protocol"
)

// keepFree is what the host cache leaves to others on its file system: the
// overlays, which cannot be fetched again, live there too.
const keepFree = 2 << 30

const (
	// spawnTimeout bounds the start of a volume process: it opens an overlay
	// and mounts it, which replays a journal at most.
	spawnTimeout = 2 * time.Minute
	// clearTimeout bounds the wait for what a dead one left to be gone.
	clearTimeout = time.Minute
)

// volumes joins the node's wish for a disk to the volume processes.
type volumes struct {
	cfg     config.Config
	command []string // starts a volume process
	spares  *spares
	log     *slog.Logger
}

// newVolumes also starts a spare process; the caller closes it.
func newVolumes(cfg config.Config, log *slog.Logger) (volumes, error) {
	exe, err := os.Executable()
	if err != nil {
		return volumes{}, errs.Wrap(errs.Internal, err, "find billet's own binary")
	}
	command := []string{exe, "volume"}
	return volumes{cfg: cfg, command: command, spares: newSpares(command, log), log: log}, nil
}

func (v volumes) close() { v.spares.close() }

// Open implements node.Volumes.
func (v volumes) Open(ctx context.Context, spec node.VolumeSpec) (node.Volume, error) {
	c, st, err := client.Attach(ctx, v.command, spec.Dir)
	if err == nil && !st.Mounted { // an earlier node was on its way down
		return volumeClient{c}, nil
	}
	if errs.Is(err, errs.NotFound) {
		if err := v.Clear(ctx, spec.Dir); err != nil {
			return nil, err
		}
		ctx, cancel := context.WithTimeout(ctx, spawnTimeout)
		defer cancel()
		var ready protocol.Ready
		c, ready, err = v.spares.open(ctx, v.document(spec), spec.Mounting)
		v.log.Debug("volume process started", "instance", spec.Instance, "steps", ready.Steps)
	}
	var damaged *protocol.DamagedError
	if errors.As(err, &damaged) {
		return nil, fmt.Errorf("%w: %w", err, node.ErrDamaged)
	}
	if err != nil {
		return nil, err
	}
	return volumeClient{c}, nil
}

func (v volumes) document(spec node.VolumeSpec) protocol.Config {
	return protocol.Config{
		Version: protocol.Version, Instance: spec.Instance, Subject: spec.Subject, Tenant: spec.Tenant, Epoch: spec.Epoch,
		Root: spec.Root, Size: spec.Size, Dir: spec.Dir, DomainKeys: spec.Keys,
		Cache: protocol.CacheConfig{Dir: filepath.Join(v.cfg.NodeDir(), "cache"), MaxBytes: v.cfg.Node.CacheLimit, KeepFree: keepFree},
		Store: protocol.StoreConfig{Dir: v.cfg.Objects()},
	}
}

// Exists implements node.Volumes.
func (v volumes) Exists(dir string) bool {
	entries, err := os.ReadDir(protocol.Place(dir).OverlayDir())
	return err == nil && len(entries) > 0
}

// Clear implements node.Volumes.
func (v volumes) Clear(ctx context.Context, dir string) error {
	c, err := client.Remains(v.command, dir)
	if errs.Is(err, errs.NotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, clearTimeout)
	defer cancel()
	if alive, err := c.Process().Alive(); err == nil && alive {
		// Unmounted first where that is possible: the overlay is then whole.
		if c.Close(ctx) == nil {
			return nil
		}
	}
	return c.Kill(ctx)
}

// volumeClient is one volume process as the node sees it.
type volumeClient struct{ c *client.Client }

// Mount implements node.Volume.
func (v volumeClient) Mount() (rootfs, ns string) {
	p := v.c.Process()
	return p.RootFS, p.MountNS
}

// Status implements node.Volume.
func (v volumeClient) Status(ctx context.Context) (node.VolumeStatus, error) {
	st, err := v.c.Status(ctx)
	out := node.VolumeStatus{Root: st.Root, UnsavedBytes: st.UnsavedBytes, Sealed: st.Sealed, Pending: st.Pending, Traffic: st.Counters.ReadBytes + st.Counters.WrittenBytes}
	for _, f := range st.Faults {
		out.Faults = append(out.Faults, node.Fault{Kind: node.FaultKind(f.Kind), Detail: f.Detail})
	}
	return out, err
}

// Seal implements node.Volume.
func (v volumeClient) Seal(ctx context.Context) (bool, error) {
	dirty, err := v.c.Seal(ctx, true)
	return !dirty, err
}

// Upload implements node.Volume.
func (v volumeClient) Upload(ctx context.Context, up node.Upload) (node.Uploaded, error) {
	r, err := v.c.Upload(ctx, protocol.UploadRequest{Intent: up.Intent, Epoch: up.Epoch, Seq: up.Seq, Started: up.Started})
	return node.Uploaded{Root: r.Root, Consistency: string(r.Consistency), StoredBytes: r.StoredBytes, WrittenBytes: r.WrittenBytes}, err
}

// SaveMemory implements node.Volume.
func (v volumeClient) SaveMemory(ctx context.Context, dir string, disk model.Root, machine model.Machine, taken time.Time) (node.SavedMemory, error) {
	r, err := v.c.SaveMemory(ctx, protocol.SaveMemoryRequest{Dir: dir, Disk: disk, Machine: machine, Created: taken})
	return node.SavedMemory{Root: r.Root, Bytes: r.Bytes}, err
}

// LoadMemory implements node.Volume.
func (v volumeClient) LoadMemory(ctx context.Context, root model.Root, dir string, machine model.Machine) (node.LoadedMemory, error) {
	r, err := v.c.LoadMemory(ctx, protocol.LoadMemoryRequest{Root: root, Dir: dir, Machine: machine})
	var damaged *protocol.DamagedError
	if errors.As(err, &damaged) {
		err = fmt.Errorf("%w: %w", err, node.ErrDamaged)
	}
	return node.LoadedMemory{Bytes: r.Bytes, Taken: r.Taken}, err
}

// Committed implements node.Volume.
func (v volumeClient) Committed(ctx context.Context, root model.Root) error {
	return v.c.Committed(ctx, root)
}

// Unmount implements node.Volume.
func (v volumeClient) Unmount(ctx context.Context) error { return v.c.Unmount(ctx) }

// Close implements node.Volume.
func (v volumeClient) Close(ctx context.Context) error { return v.c.Close(ctx) }

// Fault implements node.Volume. A corrupt block alone gives the guest an I/O
// error where it is; Status tells of it, and the wait goes on for worse.
func (v volumeClient) Fault(ctx context.Context) (node.Fault, error) {
	f, err := v.c.WaitFault(ctx)
	if err == nil && f.Kind != protocol.FaultCorruptBlock {
		return node.Fault{Kind: node.FaultKind(f.Kind), Detail: f.Detail}, nil
	}
	if err != nil {
		if alive, aerr := v.c.Process().Alive(); aerr != nil || alive {
			return node.Fault{}, err
		}
	}
	if err := v.c.Wait(ctx); err != nil {
		return node.Fault{}, err
	}
	return node.Fault{Kind: node.FaultGone, Detail: "the volume process has died"}, nil
}
