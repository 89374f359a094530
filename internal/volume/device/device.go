// Package device is the disk that a guest sees: a writable overlay over an
// immutable root, and the way in which what was written becomes the next root.
//
// A read looks at the active overlay, at the sealed one if there is one, then
// at the blocks of the base. Writes go to the active overlay only. Seal swaps
// the active overlay for an empty one; Upload stores the sealed pages as a new
// root; Committed makes that root the base and drops the sealed overlay. Each
// step is recorded in one small file (see state), so that the end of the
// process at any instant is found as before the step or as after it.
package device

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/billethq/billet/internal/clock"
	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/model"
	"github.com/billethq/billet/internal/volume"
	"github.com/billethq/billet/internal/volume/overlay"
)

// Config is what a Device needs.
type Config struct {
	Dir string // private to this device: overlays and state
	// Root is the durable root of the subject according to the ledger; "" is
	// the empty disk.
	Root model.Root
	// Size of the device in bytes, a multiple of volume.BlockSize and at least
	// the size of Root.
	Size    int64
	Store   *volume.Store
	Cache   *volume.Cache // composed blocks go here; nil: nowhere
	Fetcher *volume.Fetcher
	// OnError is called with each error that a reader or writer of the device
	// is given. It must not block. nil: nobody cares.
	OnError func(error)
	Log     *slog.Logger
}

// Device is a block device in memory and files. Offsets and lengths are bytes
// and lie within Size. Its methods may run concurrently; Seal, Upload and
// Committed wait for each other.
type Device struct {
	cfg    Config
	ctx    context.Context // ends with Close
	cancel context.CancelFunc

	// layers is replaced as a whole. mu is held for reading while a write
	// goes to the active overlay, and never while a block is fetched; who
	// swaps the active overlay holds it for writing, so that no write reaches
	// an overlay after it was sealed.
	layers atomic.Pointer[layers]
	mu     sync.RWMutex

	steps sync.Mutex // serialises Seal, Upload, Committed, Settle
	// state is replaced as a whole, under steps, and read without it: nobody
	// who asks for it waits for an upload.
	state atomic.Pointer[state]
	// uploaded is the manifest of the pending root, if this process stored it.
	uploaded *volume.Manifest // guarded by steps

	counters
}

// layers is one consistent view of the device. sealed and base may be nil.
type layers struct {
	active *overlay.Overlay
	worth  *worth // of the active overlay
	sealed *overlay.Overlay
	base   *volume.Manifest
}

type counters struct {
	reads, writes, flushes, fills, stalls atomic.Int64
	readBytes, writtenBytes               atomic.Int64
}

// Stats counts what happened since Open, and what is held now.
type Stats struct {
	Reads     int64 // calls of ReadAt
	Writes    int64 // of WriteAt and Zero
	Flushes   int64
	Fills     int64 // pages read from below because a write covered a part of one
	Stalls    int64 // times that a read waited for a store that did not answer
	ReadBytes int64 // of ReadAt
	// WrittenBytes are those of WriteAt: what is discarded is no bytes.
	WrittenBytes int64
	ActivePages  int64
	SealedPages  int64
}

// Open finds the device as it was last flushed, or makes it on top of
// cfg.Root. An upload that had been recorded, and that the ledger has
// committed meanwhile (cfg.Root is its root), is completed here. A directory
// that stands on another root than cfg.Root is errs.Stale.
func Open(ctx context.Context, cfg Config) (*Device, error) {
	d := &Device{cfg: cfg}
	d.ctx, d.cancel = context.WithCancel(context.WithoutCancel(ctx))
	base, err := d.loadBase(ctx)
	if err == nil {
		err = d.openLayers(base)
	}
	if err != nil {
		d.cancel()
		return nil, err
	}
	return d, nil
}

func (d *Device) loadBase(ctx context.Context) (*volume.Manifest, error) {
	if d.cfg.Root == "" {
		return nil, nil
	}
	base, err := d.cfg.Store.LoadManifest(ctx, d.cfg.Root)
	if err != nil {
		return nil, fmt.Errorf("load root %s: %w", d.cfg.Root.Short(), err)
	}
	if base.Size() > d.cfg.Size {
		return nil, errs.New(errs.Invalid, "device of %d bytes is smaller than its root, %d", d.cfg.Size, base.Size()).
			WithHint("a disk never shrinks: choose a tier with at least the disk of the snapshot")
	}
	if base.Meta().Writer == volume.WriterGuest {
		return nil, errs.New(errs.Unsupported, "root %s was written by a guest's kernel: the host does not mount it", d.cfg.Root.Short()).
			WithHint("place it on a driver whose guest mounts its own disk")
	}
	return base, nil
}

func (d *Device) openLayers(base *volume.Manifest) error {
	s, err := loadState(d.cfg.Dir)
	if errors.Is(err, os.ErrNotExist) {
		return d.create(base)
	}
	if err != nil {
		return err
	}
	switch {
	case s.Fresh: // whatever it stood on, nothing is in it
		return d.create(base)
	case s.Base == d.cfg.Root:
	case s.Pending != nil && s.Pending.Root == d.cfg.Root:
		// The commit was acknowledged to a node or process that is gone.
		s = s.committed()
		if err := s.save(d.cfg.Dir); err != nil {
			return err
		}
	default:
		return errs.New(errs.Stale, "volume stands on root %s, the subject's is %s", s.Base.Short(), d.cfg.Root.Short())
	}
	d.state.Store(&s)
	if err := removeOthers(d.cfg.Dir, s); err != nil {
		return err
	}
	l := &layers{base: base, worth: new(worth)}
	if l.active, err = overlay.Open(d.cfg.Dir, overlayName(s.Active), d.cfg.Size); err != nil {
		return err
	}
	l.worth.wrote.Store(true) // what is in it may be a guest's
	if s.Sealed != 0 {
		if l.sealed, err = overlay.Open(d.cfg.Dir, overlayName(s.Sealed), d.cfg.Size); err != nil {
			_ = l.active.Close()
			return err
		}
	}
	d.layers.Store(l)
	return nil
}

func (d *Device) create(base *volume.Manifest) error {
	s := state{Version: stateVersion, Base: d.cfg.Root, Active: 1, Fresh: true}
	active, err := overlay.Create(d.cfg.Dir, overlayName(s.Active), d.cfg.Size)
	if err != nil {
		return err
	}
	if err := s.save(d.cfg.Dir); err != nil {
		_ = active.Close()
		return err
	}
	d.state.Store(&s)
	d.layers.Store(&layers{active: active, worth: new(worth), base: base})
	return nil
}

// Fresh reports whether no guest has written to the device yet.
func (d *Device) Fresh() bool { return d.state.Load().Fresh }

// Close ends the reads that wait for the store and closes the files, without
// flushing: whoever wants that calls Flush first.
func (d *Device) Close() error {
	d.cancel()
	d.steps.Lock()
	defer d.steps.Unlock()
	l := d.layers.Load()
	err := l.active.Close()
	if l.sealed != nil {
		err = errors.Join(err, l.sealed.Close())
	}
	return err
}

// Size returns the size in bytes.
func (d *Device) Size() int64 { return d.cfg.Size }

// Root returns the root that the device stands on.
func (d *Device) Root() model.Root {
	if base := d.layers.Load().base; base != nil {
		return base.Root()
	}
	return ""
}

// Stats returns the counters.
func (d *Device) Stats() Stats {
	l := d.layers.Load()
	s := Stats{Reads: d.reads.Load(), Writes: d.writes.Load(), Flushes: d.flushes.Load(), Fills: d.fills.Load(), Stalls: d.stalls.Load(), ReadBytes: d.readBytes.Load(), WrittenBytes: d.writtenBytes.Load(), ActivePages: l.active.PageCount()}
	if l.sealed != nil {
		s.SealedPages = l.sealed.PageCount()
	}
	return s
}

// ReadAt fills p from off. A block that the store has lost or altered is a
// *volume.CorruptError. While the store does not answer, the read waits, for
// as long as the device is open: an error would make the guest's file system
// give up a disk that is whole.
func (d *Device) ReadAt(p []byte, off int64) error {
	d.reads.Add(1)
	d.readBytes.Add(int64(len(p)))
	return d.report(d.withLayers(func(l *layers) error { return d.readLayers(l, true, p, off) }))
}

// Flush makes every write that returned before the call durable.
func (d *Device) Flush() error {
	d.flushes.Add(1)
	return d.report(d.withLayers(func(l *layers) error { return l.active.Flush() }))
}

// withLayers runs fn on the present view, and again when an overlay of that
// view was dropped meanwhile.
func (d *Device) withLayers(fn func(*layers) error) error {
	for {
		l := d.layers.Load()
		err := fn(l)
		if !errors.Is(err, os.ErrClosed) || d.layers.Load() == l {
			return err
		}
	}
}

// readLayers reads a range that may span blocks; without active it reads what
// lies below the active overlay.
func (d *Device) readLayers(l *layers, active bool, p []byte, off int64) error {
	for len(p) > 0 {
		n := int(min(int64(len(p)), volume.BlockSize-off%volume.BlockSize))
		if err := d.readBlock(l, active, p[:n], off, d.fetch); err != nil {
			return err
		}
		p, off = p[n:], off+int64(n)
	}
	return nil
}

// source says where a page is read from.
type source uint8

const (
	fromBase source = iota
	fromSealed
	fromActive
	fromNothing // zeros
)

// fetcher reads a part of a block of the base.
type fetcher func(base *volume.Manifest, block int64, p []byte, in int) error

// readBlock reads a range within one block, in runs of pages of one source.
func (d *Device) readBlock(l *layers, active bool, p []byte, off int64, fetch fetcher) error {
	block, in := off/volume.BlockSize, int(off%volume.BlockSize)
	var a, s overlay.Block
	if active {
		a = l.active.Block(block)
	}
	if l.sealed != nil {
		s = l.sealed.Block(block)
	}
	for len(p) > 0 {
		page := in / volume.PageSize
		src := pageSource(&a, &s, page)
		end := page + 1
		for end*volume.PageSize < in+len(p) && pageSource(&a, &s, end) == src {
			end++
		}
		n := min(end*volume.PageSize-in, len(p))
		if err := readRun(l, src, block, p[:n], in, fetch); err != nil {
			return err
		}
		p, in = p[n:], in+n
	}
	return nil
}

func pageSource(active, sealed *overlay.Block, page int) source {
	switch {
	case active.Held.Has(page):
		return fromActive
	case active.Zero.Has(page):
		return fromNothing
	case sealed.Held.Has(page):
		return fromSealed
	case sealed.Zero.Has(page):
		return fromNothing
	}
	return fromBase
}

func readRun(l *layers, src source, block int64, p []byte, in int, fetch fetcher) error {
	var err error
	switch src {
	case fromNothing:
		clear(p)
	case fromActive:
		_, err = l.active.ReadAt(p, block*volume.BlockSize+int64(in))
	case fromSealed:
		_, err = l.sealed.ReadAt(p, block*volume.BlockSize+int64(in))
	case fromBase:
		if l.base.Entry(block).IsZero() {
			clear(p)
			return nil
		}
		err = fetch(l.base, block, p, in)
	}
	return err
}

// The pause between two tries of a read whose store does not answer, beside
// the store's own patience.
const (
	stallFirst = 100 * time.Millisecond
	stallMost  = 5 * time.Second
)

// fetch reads for the guest. It only gives up on an error that another try
// would not change.
func (d *Device) fetch(base *volume.Manifest, block int64, p []byte, in int) error {
	for pause := stallFirst; ; pause = min(2*pause, stallMost) {
		err := d.cfg.Fetcher.Read(d.ctx, base, block, p, in, volume.Guest)
		if !errs.Is(err, errs.Unavailable) {
			return err
		}
		d.stalls.Add(1)
		d.cfg.Log.Warn("block is not to be had, trying again", "block", block, "error", err)
		if err := clock.Sleep(d.ctx, clock.Jitter(pause)); err != nil {
			return err
		}
	}
}

// report tells OnError about err and returns it.
func (d *Device) report(err error) error {
	if err != nil && d.cfg.OnError != nil {
		d.cfg.OnError(err)
	}
	return err
}

// IsFull reports whether err says that the host's disk is full.
func IsFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}
