package device

import (
	"bytes"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/billethq/billet/internal/blob"
	"github.com/billethq/billet/internal/blob/faulty"
	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/volume"
)

// invariant 8
func TestDevice_CorruptBlockIsAnErrorAndNoZeros(t *testing.T) {
	r := newRig(t)
	root := r.image(noise(1, volume.BlockSize))
	m, err := r.store.LoadManifest(t.Context(), root)
	r.check(err)
	for _, key := range r.keys("blk/") {
		r.check(r.bucket.Delete(t.Context(), key))
	}
	var told error
	d, err := Open(t.Context(), Config{
		Dir: r.dir, Root: root, Size: r.size, Store: r.store, Fetcher: r.fetcher,
		OnError: func(err error) { told = err }, Log: slog.New(slog.DiscardHandler),
	})
	r.check(err)
	defer d.Close()
	var corrupt *volume.CorruptError
	if err := d.ReadAt(make([]byte, 10), 0); !errors.As(err, &corrupt) || corrupt.Block != 0 || told == nil {
		t.Errorf("read of a lost block: %v, want a CorruptError about block 0 (entry %v)", err, m.Entry(0))
	}
}

func (r *rig) keys(prefix string) []string {
	r.t.Helper()
	var out []string
	r.check(r.bucket.List(r.t.Context(), prefix, func(i blob.Info) error {
		out = append(out, i.Key)
		return nil
	}))
	return out
}

// hostile gives the bucket in which faults can be armed.
func (r *rig) hostile() *faulty.Bucket { return r.bucket.Bucket.(*faulty.Bucket) }

func TestDevice_ReadWaitsForTheStore(t *testing.T) {
	r := newRigPatient(t, 20*time.Millisecond)
	base := noise(1, volume.BlockSize)
	d := r.open(r.image(base))
	down := r.hostile().Arm(t, faulty.Fault{Op: faulty.Get, Effect: faulty.Refuse})
	read := make(chan error)
	got := make([]byte, volume.PageSize)
	go func() { read <- d.ReadAt(got, 0) }()
	select {
	case <-r.stalled:
	case err := <-read:
		t.Fatalf("read returned while the store was down: %v", err)
	}
	down.Disarm()
	if err := <-read; err != nil || !bytes.Equal(got, base[:volume.PageSize]) {
		t.Errorf("read after the store came back: %v", err)
	}
}

func TestDevice_CloseEndsAReadThatWaits(t *testing.T) {
	r := newRigPatient(t, 20*time.Millisecond)
	d := r.open(r.image(noise(1, volume.BlockSize)))
	r.hostile().Arm(t, faulty.Fault{Op: faulty.Get, Effect: faulty.Refuse})
	read := make(chan error)
	go func() { read <- d.ReadAt(make([]byte, 1), 0) }()
	<-r.stalled
	r.check(d.Close())
	if err := <-read; err == nil {
		t.Error("the read succeeded without a store")
	}
}

func TestDevice_FullStoreKeepsTheSeal(t *testing.T) {
	r := newRig(t)
	d := r.open(r.image(noise(1, volume.BlockSize)))
	r.check(d.WriteAt(page(2), 0))
	_, err := d.Seal(volume.Frozen)
	r.check(err)
	full := r.hostile().Arm(t, faulty.Fault{Op: faulty.Put, Effect: faulty.Full})
	in := Intent{ID: "i", Subject: "s", Epoch: 1, Seq: 1, Started: time.Unix(1, 0)}
	if _, err := d.Upload(t.Context(), in); !errs.Is(err, errs.Exhausted) {
		t.Fatalf("upload into a full store: %v, want exhausted", err)
	}
	if !d.Sealed() || d.Pending() != nil {
		t.Fatal("a failed upload changed the device")
	}
	full.Disarm()
	up, err := d.Upload(t.Context(), in)
	r.check(err)
	r.check(d.Committed(up.Root))
}

func TestDevice_UploadDoesNotWaitForTheStore(t *testing.T) {
	r := newRigPatient(t, 20*time.Millisecond)
	d := r.open(r.image(noise(1, volume.BlockSize)))
	r.check(d.WriteAt(page(2), 0))
	_, err := d.Seal(volume.Frozen)
	r.check(err)
	r.hostile().Arm(t, faulty.Fault{Effect: faulty.Refuse})
	in := Intent{ID: "i", Subject: "s", Epoch: 1, Seq: 1, Started: time.Unix(1, 0)}
	if _, err := d.Upload(t.Context(), in); !errs.Is(err, errs.Unavailable) {
		t.Errorf("upload without a store: %v, want unavailable", err)
	}
	if !d.Sealed() {
		t.Error("the seal is gone")
	}
}
