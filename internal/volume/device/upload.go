package device

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/failpoint"
	"github.com/billethq/billet/internal/model"
	"github.com/billethq/billet/internal/volume"
)

// uploadWorkers compose and store blocks at once: composing takes a core for
// compression, and the guest needs the others.
const uploadWorkers = 2

// Intent is the permission to upload: the base is pinned against garbage
// collection. Everything that goes into the root's metadata is here.
type Intent struct {
	ID      model.IntentID
	Subject model.SubjectID
	Epoch   model.Epoch
	Seq     model.Seq
	Started time.Time
}

// Uploaded says what an upload did.
type Uploaded struct {
	Root         model.Root
	Consistency  volume.Consistency
	StoredBytes  int64 // added to the object store
	WrittenBytes int64 // guest pages that the root makes durable
	Blocks       int64 // blocks stored
}

// Upload stores the sealed overlay over the base as a new root and records it
// as pending. Every block is stored before the root names it. It may be
// repeated at any time, also by another process: under the same epoch and
// number it gives the same root. Without a sealed overlay it is errs.Conflict.
func (d *Device) Upload(ctx context.Context, in Intent) (Uploaded, error) {
	d.steps.Lock()
	defer d.steps.Unlock()
	l := d.layers.Load()
	if l.sealed == nil {
		return Uploaded{}, errs.New(errs.Conflict, "nothing is sealed")
	}
	if err := d.beginUpload(in); err != nil {
		return Uploaded{}, err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(d.ctx, stop)()

	w := newComposer(d, l)
	if err := w.run(ctx); err != nil {
		return Uploaded{}, fmt.Errorf("upload blocks: %w", err)
	}
	failpoint.Reach(failpoint.FlushBlocks)
	m, stored, err := d.cfg.Store.PutManifest(ctx, l.base, w.changed, d.meta(in, l))
	if err != nil {
		return Uploaded{}, fmt.Errorf("upload root: %w", err)
	}
	failpoint.Reach(failpoint.FlushRoot)
	s := *d.state.Load()
	s.Pending = &Pending{Root: m.Root(), Intent: in.ID, Seq: in.Seq}
	if err := s.save(d.cfg.Dir); err != nil {
		return Uploaded{}, err
	}
	d.state.Store(&s)
	d.uploaded = m
	return Uploaded{
		Root: m.Root(), Consistency: s.Consistency, Blocks: w.blocks,
		StoredBytes: w.stored + stored, WrittenBytes: l.sealed.PageCount() * volume.PageSize,
	}, nil
}

// beginUpload records the metadata before anything is stored under it: a
// numbered root that exists with other content would be taken for a rival's.
func (d *Device) beginUpload(in Intent) error {
	s := *d.state.Load()
	if u := s.Upload; u != nil && u.Epoch == in.Epoch && u.Seq == in.Seq {
		return nil
	}
	s.Upload = &upload{Epoch: in.Epoch, Seq: in.Seq, Started: in.Started}
	if err := s.save(d.cfg.Dir); err != nil {
		return err
	}
	d.state.Store(&s)
	return nil
}

func (d *Device) meta(in Intent, l *layers) volume.Meta {
	s := d.state.Load()
	u := s.Upload
	return volume.Meta{
		Home: volume.SlotTenant, Subject: in.Subject, Epoch: u.Epoch, Seq: u.Seq, Created: u.Started,
		Size: d.cfg.Size, Consistency: s.Consistency, Writer: volume.WriterHost,
		Prebuild: l.base.Meta().Prebuild,
	}
}

// composer turns the sealed pages of blocks into entries.
type composer struct {
	d      *Device
	l      *layers
	blocks int64
	stored int64

	// known is every entry of the pinned base: naming one stores nothing. No
	// other digest may be reused, whatever the store seems to hold: a sweep
	// may be about to delete it.
	known map[volume.Entry]struct{}

	mu      sync.Mutex
	changed map[int64]volume.Entry
}

func newComposer(d *Device, l *layers) *composer {
	return &composer{d: d, l: l, known: l.base.Entries(), changed: make(map[int64]volume.Entry)}
}

// order lists the blocks with sealed pages, the one written longest ago first:
// it is the least likely to be written, and thereby stored, again soon.
func (w *composer) order() []int64 {
	type written struct {
		block int64
		last  uint32
	}
	var list []written
	for block, last := range w.l.sealed.Written() {
		list = append(list, written{block, last})
	}
	slices.SortStableFunc(list, func(a, b written) int { return cmp.Compare(a.last, b.last) })
	blocks := make([]int64, len(list))
	for i, b := range list {
		blocks[i] = b.block
	}
	return blocks
}

// run composes every block with sealed pages.
func (w *composer) run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	queue := make(chan int64)
	g.Go(func() error {
		defer close(queue)
		for _, block := range w.order() {
			select {
			case queue <- block:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		return nil
	})
	for range uploadWorkers {
		g.Go(func() error {
			buf := make([]byte, volume.BlockSize)
			for block := range queue {
				if err := w.block(ctx, block, buf); err != nil {
					return fmt.Errorf("block %d: %w", block, err)
				}
			}
			return nil
		})
	}
	return g.Wait()
}

func (w *composer) block(ctx context.Context, block int64, buf []byte) error {
	if err := w.d.compose(ctx, w.l, block, buf); err != nil {
		return err
	}
	e, fresh := w.identify(buf)
	if e == w.l.base.Entry(block) {
		return nil
	}
	var stored int64
	if fresh {
		var err error
		if stored, err = w.d.cfg.Store.PutBlock(ctx, e, buf); err != nil {
			return err
		}
		if w.d.cfg.Cache != nil {
			w.d.cfg.Cache.Put(e, buf)
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.changed[block] = e
	w.stored += stored
	if fresh {
		w.blocks++
	}
	return nil
}

// identify names a composed block, and reports whether it has to be stored. A
// block of the image keeps the image's name, wherever it now lies.
func (w *composer) identify(buf []byte) (e volume.Entry, fresh bool) {
	domains := w.d.cfg.Store.Domains()
	own := domains.Identify(volume.SlotTenant, buf)
	if _, known := w.known[own]; known || own.IsZero() {
		return own, false
	}
	if domains.Name(volume.SlotDeployment) != "" {
		e := domains.Identify(volume.SlotDeployment, buf)
		if _, known := w.known[e]; known {
			return e, false
		}
	}
	return own, true
}

// compose makes a block as it is below the active overlay. Unlike a guest it
// does not wait for a store that is down: the upload is repeated as a whole.
func (d *Device) compose(ctx context.Context, l *layers, block int64, buf []byte) error {
	fetch := func(base *volume.Manifest, block int64, p []byte, in int) error {
		return d.cfg.Fetcher.Read(ctx, base, block, p, in, volume.Background)
	}
	return d.readBlock(l, false, buf, block*volume.BlockSize, fetch)
}
