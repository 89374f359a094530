package device

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/billethq/billet/internal/blob"
	"github.com/billethq/billet/internal/blob/dir"
	"github.com/billethq/billet/internal/blob/faulty"
	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/model"
	"github.com/billethq/billet/internal/volume"
)

// recorder is a bucket that remembers the order of what is stored.
type recorder struct {
	blob.Bucket
	mu   sync.Mutex
	puts []string
}

func (r *recorder) Put(ctx context.Context, key string, body []byte) error {
	r.mu.Lock()
	r.puts = append(r.puts, key)
	r.mu.Unlock()
	return r.Bucket.Put(ctx, key, body)
}

// blocks returns how many block objects were stored.
func (r *recorder) blocks() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for _, key := range r.puts {
		if strings.HasPrefix(key, "blk/") {
			n++
		}
	}
	return n
}

type rig struct {
	t       *testing.T
	bucket  *recorder
	store   *volume.Store
	fetcher *volume.Fetcher
	dir     string
	size    int64
	stalled chan struct{} // a read waits for the store
}

const blocks = 6

func newRig(t *testing.T) *rig { return newRigPatient(t, 5*time.Second) }

func newRigPatient(t *testing.T, patience time.Duration) *rig {
	t.Helper()
	bucket, err := dir.Create(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = bucket.Close() })
	r := &rig{t: t, bucket: &recorder{Bucket: faulty.New(bucket, faulty.Config{})}, dir: t.TempDir(), size: blocks * volume.BlockSize, stalled: make(chan struct{}, 1)}
	domains, err := volume.NewDomains(
		model.DomainKey{Domain: "default", Key: bytes.Repeat([]byte{1}, 32)},
		model.DomainKey{Domain: model.DeploymentDomain, Key: bytes.Repeat([]byte{2}, 32)})
	r.check(err)
	r.store, err = volume.NewStore(volume.StoreConfig{Bucket: r.bucket, Domains: domains, Patience: patience})
	r.check(err)
	r.fetcher, err = volume.NewFetcher(volume.FetcherConfig{Store: r.store})
	r.check(err)
	t.Cleanup(func() { _ = r.fetcher.Close() })
	return r
}

func (r *rig) check(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

// image stores content as an image.
func (r *rig) image(content []byte) model.Root {
	r.t.Helper()
	m, _, err := volume.ImportDisk(r.t.Context(), r.store, volume.Import{
		Source: bytes.NewReader(content), Size: int64(len(content)),
		Meta: volume.Meta{Home: volume.SlotDeployment, Consistency: volume.Frozen, Writer: volume.WriterHost},
	})
	r.check(err)
	r.bucket.puts = nil
	return m.Root()
}

func (r *rig) try(root model.Root) (*Device, error) {
	return Open(r.t.Context(), Config{
		Dir: r.dir, Root: root, Size: r.size, Store: r.store, Fetcher: r.fetcher,
		Log: slog.New(stallHandler{r.stalled}),
	})
}

// stallHandler tells of the first warning: the device warns of nothing but a
// store that does not answer.
type stallHandler struct{ stalled chan struct{} }

func (h stallHandler) Enabled(context.Context, slog.Level) bool { return true }
func (h stallHandler) WithAttrs([]slog.Attr) slog.Handler       { return h }
func (h stallHandler) WithGroup(string) slog.Handler            { return h }

func (h stallHandler) Handle(context.Context, slog.Record) error {
	select {
	case h.stalled <- struct{}{}:
	default:
	}
	return nil
}

// open opens a device that a guest may write.
func (r *rig) open(root model.Root) *Device {
	r.t.Helper()
	d, err := r.try(root)
	r.check(err)
	r.t.Cleanup(func() { _ = d.Close() })
	if d.Fresh() {
		r.check(d.Begin())
	}
	return d
}

func (r *rig) content(d *Device) []byte {
	r.t.Helper()
	out := make([]byte, d.Size())
	r.check(d.ReadAt(out, 0))
	return out
}

func (r *rig) upload(d *Device, seq model.Seq) Uploaded {
	r.t.Helper()
	up, err := d.Upload(r.t.Context(), Intent{ID: "i", Subject: "s", Epoch: 1, Seq: seq, Started: time.Unix(int64(seq), 0).UTC()})
	r.check(err)
	return up
}

func noise(seed byte, n int) []byte {
	out := make([]byte, n)
	rng := rand.NewChaCha8([32]byte{seed})
	_, _ = rng.Read(out)
	return out
}

func page(seed byte) []byte { return noise(seed, volume.PageSize) }

func TestDevice_BehavesAsAFlatDisk(t *testing.T) {
	for seed := range uint64(3) {
		r := newRig(t)
		base := noise(byte(seed), 4*volume.BlockSize) // smaller than the device
		clear(base[volume.BlockSize : 2*volume.BlockSize])
		root := r.image(base)
		want := make([]byte, r.size)
		copy(want, base)
		d := r.open(root)
		rng := rand.New(rand.NewPCG(seed, 1))
		seq, pending := model.Seq(0), model.Root("")
		for step := range 150 {
			off := rng.Int64N(r.size - 70000)
			n := 1 + rng.Int64N(69999)
			if rng.IntN(2) == 0 {
				off, n = off&^4095, (n+4095)&^4095
			}
			switch op := rng.IntN(12); op {
			case 0, 1, 2, 3:
				text := noise(byte(step), int(n))
				r.check(d.WriteAt(text, off))
				copy(want[off:], text)
			case 4, 5:
				r.check(d.Zero(off, n))
				clear(want[off : off+n])
			case 6:
				_, err := d.Seal(volume.Crash)
				r.check(err)
			case 7:
				if d.Sealed() {
					seq++
					pending = r.upload(d, seq).Root
				}
			case 8:
				if pending != "" {
					r.check(d.Committed(pending))
					root, pending = pending, ""
				}
			case 9: // the process ends and another one opens
				r.check(d.Flush())
				r.check(d.Close())
				if pending != "" && rng.IntN(2) == 0 {
					root, pending = pending, "" // committed while nobody knew
				}
				d = r.open(root)
			default:
				got := make([]byte, n)
				r.check(d.ReadAt(got, off))
				if !bytes.Equal(got, want[off:off+n]) {
					t.Fatalf("seed %d, step %d: read of %d bytes at %d differs", seed, step, n, off)
				}
			}
		}
		if !bytes.Equal(r.content(d), want) {
			t.Fatalf("seed %d: the disk differs at the end", seed)
		}
	}
}

func TestDevice_UploadStoresWhatChangedOnly(t *testing.T) {
	r := newRig(t)
	base := noise(1, 4*volume.BlockSize)
	root := r.image(base)
	d := r.open(root)
	r.check(d.WriteAt(base[:volume.PageSize], 0))                                     // as it was
	r.check(d.WriteAt(base[volume.BlockSize:2*volume.BlockSize], 4*volume.BlockSize)) // a block of the image, elsewhere
	r.check(d.WriteAt(make([]byte, volume.BlockSize), 2*volume.BlockSize))            // zeros
	r.check(d.WriteAt(page(9), 3*volume.BlockSize+5*volume.PageSize))                 // new
	if sealed, err := d.Seal(volume.Frozen); !sealed || err != nil {
		t.Fatal(sealed, err)
	}
	up := r.upload(d, 1)
	if up.Blocks != 1 || r.bucket.blocks() != 1 {
		t.Errorf("stored %d blocks in %d objects, want 1", up.Blocks, r.bucket.blocks())
	}
	m, err := r.store.LoadManifest(t.Context(), up.Root)
	r.check(err)
	old, err := r.store.LoadManifest(t.Context(), root)
	r.check(err)
	if m.Entry(0) != old.Entry(0) {
		t.Error("a block written as it was changed its name")
	}
	if m.Entry(4) != old.Entry(1) {
		t.Error("a block of the image in another place was not reused")
	}
	if !m.Entry(2).IsZero() {
		t.Error("a block of zeros has a name")
	}
	if meta := m.Meta(); meta.Parent != root || meta.Consistency != volume.Frozen || meta.Size != r.size || meta.Subject != "s" {
		t.Errorf("meta %+v", meta)
	}
	want := r.content(d)
	r.check(d.Committed(up.Root))
	if !bytes.Equal(r.content(d), want) {
		t.Error("the disk changed with the commit")
	}
	if st := d.Stats(); st.SealedPages != 0 || d.Root() != up.Root || !d.Clean() {
		t.Errorf("after the commit: %+v, root %s, clean %v", st, d.Root(), d.Clean())
	}
}

func TestDevice_ColdestBlocksGoFirst(t *testing.T) {
	r := newRig(t)
	d := r.open("")
	order := []int64{4, 2, 0, 5, 1}
	for _, b := range order {
		r.check(d.WriteAt(page(byte(b+1)), b*volume.BlockSize))
	}
	r.check(d.WriteAt(page(77), 4*volume.BlockSize)) // the first is now the last
	_, err := d.Seal(volume.Crash)
	r.check(err)
	w := newComposer(d, d.layers.Load())
	got := w.order()
	want := []int64{2, 0, 5, 1, 4}
	for i := range want {
		if got[i] != want[i] {
			t.Fatalf("order %v, want %v", got, want)
		}
	}
}

func TestDevice_RepeatedUploadGivesTheSameRoot(t *testing.T) {
	r := newRig(t)
	root := r.image(noise(1, volume.BlockSize))
	d := r.open(root)
	r.check(d.WriteAt(page(2), 0))
	_, err := d.Seal(volume.Frozen)
	r.check(err)
	first := r.upload(d, 1)
	r.check(d.WriteAt(page(3), 8*volume.PageSize)) // does not belong to the seal
	r.check(d.Flush())
	r.check(d.Close())

	d = r.open(root)
	if p := d.Pending(); p == nil || p.Root != first.Root {
		t.Fatalf("pending %+v, want %s", p, first.Root)
	}
	// The intent was issued anew: another id and time for the same number.
	again, err := d.Upload(t.Context(), Intent{ID: "j", Subject: "s", Epoch: 1, Seq: 1, Started: time.Unix(99, 0)})
	r.check(err)
	if again.Root != first.Root {
		t.Errorf("second upload gives %s, the first gave %s", again.Root, first.Root)
	}
	r.check(d.Committed(again.Root))
	r.check(d.Committed(again.Root))
	if err := d.Committed(root); !errs.Is(err, errs.Conflict) {
		t.Errorf("commit of a root that was never uploaded: %v, want conflict", err)
	}
	if d.Clean() {
		t.Error("what was written after the seal is gone")
	}
}

func TestDevice_CommitIsCompletedByReopen(t *testing.T) {
	r := newRig(t)
	root := r.image(noise(1, volume.BlockSize))
	d := r.open(root)
	r.check(d.WriteAt(page(2), 0))
	_, err := d.Seal(volume.Frozen)
	r.check(err)
	up := r.upload(d, 1)
	want := r.content(d)
	r.check(d.Close())
	d = r.open(up.Root)
	if d.Sealed() || d.Root() != up.Root || !bytes.Equal(r.content(d), want) {
		t.Error("reopening on the pending root did not complete the commit")
	}
}

// invariant 3
func TestDevice_OtherRootIsStale(t *testing.T) {
	r := newRig(t)
	d := r.open(r.image(noise(1, volume.BlockSize)))
	r.check(d.WriteAt(page(2), 0))
	r.check(d.Close())
	if _, err := r.try(r.image(noise(2, volume.BlockSize))); !errs.Is(err, errs.Stale) {
		t.Errorf("open on another root: %v, want stale", err)
	}
}

func TestDevice_UnpreparedOverlayIsThrownAway(t *testing.T) {
	r := newRig(t)
	root := r.image(noise(1, volume.BlockSize))
	d, err := r.try(root)
	r.check(err)
	r.check(errors.Join(d.WriteAt(page(2), 0), d.Flush(), d.Close()))
	d = r.open(root)
	if got := r.content(d)[:volume.PageSize]; !bytes.Equal(got, noise(1, volume.BlockSize)[:volume.PageSize]) {
		t.Error("what was written before Begin is still there")
	}
}

func TestDevice_QuietPagesAreClean(t *testing.T) {
	r := newRig(t)
	d, err := r.try("")
	r.check(err)
	defer d.Close()
	r.check(d.WriteAt(page(1), 0))
	r.check(d.WriteAt(page(2), 300*volume.PageSize))
	r.check(d.Begin())
	r.check(d.WriteAt(page(3), 0))
	if sealed, err := d.Seal(volume.Frozen); sealed || err != nil || !d.Clean() {
		t.Fatalf("a mount's pages alone: sealed %v, %v", sealed, err)
	}
	r.check(d.WriteAt(page(4), volume.PageSize))
	if d.Clean() {
		t.Fatal("another page was written, the device says clean")
	}
	if sealed, err := d.Seal(volume.Frozen); !sealed || err != nil {
		t.Fatalf("sealed %v, %v", sealed, err)
	}
	// The sealed pages include the mount's.
	if up := r.upload(d, 1); up.WrittenBytes != 3*volume.PageSize {
		t.Errorf("made %d bytes durable, want 3 pages", up.WrittenBytes)
	}
}

func TestDevice_FilledPageSurvivesSeal(t *testing.T) {
	r := newRig(t)
	d := r.open(r.image(noise(1, volume.BlockSize)))
	want := r.content(d)
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() { // parts of the same pages, while seals happen
			for n := range 64 {
				off := int64(n)*volume.PageSize + int64(i)*1024
				r.check(d.WriteAt(bytes.Repeat([]byte{byte(i)}, 1024), off))
			}
		})
	}
	wg.Go(func() {
		for seq := range model.Seq(3) {
			if sealed, err := d.Seal(volume.Crash); err != nil || !sealed {
				continue
			}
			r.check(d.Committed(r.upload(d, seq+1).Root))
		}
	})
	wg.Wait()
	for n := range 64 {
		for i := range 4 {
			copy(want[n*volume.PageSize+i*1024:], bytes.Repeat([]byte{byte(i)}, 1024))
		}
	}
	if !bytes.Equal(r.content(d), want) {
		t.Error("a part of a page was lost between two seals")
	}
	if d.Stats().Fills == 0 {
		t.Error("no page was completed from below: the test tests nothing")
	}
}

func TestDevice_SmallerThanItsRootIsInvalid(t *testing.T) {
	r := newRig(t)
	root := r.image(noise(1, 2*volume.BlockSize))
	r.size = volume.BlockSize
	if _, err := r.try(root); !errs.Is(err, errs.Invalid) {
		t.Errorf("open: %v, want invalid", err)
	}
}
