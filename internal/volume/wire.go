package volume

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/billethq/billet/internal/model"
)

// rootWriter appends fields; the first error stays.
type rootWriter struct {
	buf []byte
	err error
}

func (w *rootWriter) bytes(b ...byte) { w.buf = append(w.buf, b...) }
func (w *rootWriter) u32(v uint32)    { w.buf = binary.LittleEndian.AppendUint32(w.buf, v) }
func (w *rootWriter) u64(v uint64)    { w.buf = binary.LittleEndian.AppendUint64(w.buf, v) }

func (w *rootWriter) geometry(meta Meta) {
	w.u32(BlockSize)
	w.u32(LeafEntries)
	w.u64(uint64(meta.Size))
}

func (w *rootWriter) text(s string) {
	if len(s) > maxText {
		w.err = errors.Join(w.err, fmt.Errorf("text of %d bytes, at most %d are allowed", len(s), maxText))
		return
	}
	w.bytes(byte(len(s)))
	w.buf = append(w.buf, s...)
}

func (w *rootWriter) root(root model.Root) {
	if root == "" {
		w.optional(Digest{})
		return
	}
	d, err := ParseDigest(string(root))
	w.err = errors.Join(w.err, err)
	w.optional(d)
}

func (w *rootWriter) optional(d Digest) {
	if d.IsZero() {
		w.bytes(0)
		return
	}
	w.bytes(1)
	w.bytes(d[:]...)
}

func (w *rootWriter) names(names []Entry) {
	for _, n := range names {
		w.bytes(byte(n.Kind))
		if !n.IsZero() {
			w.bytes(n.Digest[:]...)
		}
	}
}

// rootReader takes fields; after the first error every field is zero.
type rootReader struct {
	buf []byte
	err error
}

func (r *rootReader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf(format, args...)
	}
}

func (r *rootReader) take(n int) []byte {
	if r.err == nil && len(r.buf) < n {
		r.fail("it ends early")
	}
	if r.err != nil {
		return make([]byte, n)
	}
	out := r.buf[:n]
	r.buf = r.buf[n:]
	return out
}

func (r *rootReader) u8() byte    { return r.take(1)[0] }
func (r *rootReader) u32() uint32 { return binary.LittleEndian.Uint32(r.take(4)) }
func (r *rootReader) u64() uint64 { return binary.LittleEndian.Uint64(r.take(8)) }

func (r *rootReader) text() string { return string(r.take(int(r.u8()))) }

func (r *rootReader) want(what string, value byte) {
	if got := r.u8(); got != value {
		r.fail("its %s is %d, want %d", what, got, value)
	}
}

// pick takes a byte that is 0 for the first value and 1 for the second.
func pick[T any](r *rootReader, what string, zero, one T) T {
	switch v := r.u8(); v {
	case 0:
		return zero
	case 1:
		return one
	default:
		r.fail("its %s is %d, want 0 or 1", what, v)
		return zero
	}
}

func (r *rootReader) geometry() (size int64) {
	if block, entries := r.u32(), r.u32(); block != BlockSize || entries != LeafEntries {
		r.fail("its geometry is %d × %d, want %d × %d", block, entries, BlockSize, LeafEntries)
	}
	return int64(r.u64())
}

func (r *rootReader) digest() (d Digest) {
	copy(d[:], r.take(len(d)))
	if d.IsZero() {
		r.fail("it names a zero digest")
	}
	return d
}

func (r *rootReader) optional() (d Digest) {
	if pick(r, "mark of a digest", false, true) {
		d = r.digest()
	}
	return d
}

func (r *rootReader) names(meta Meta) []Entry {
	if n := r.u32(); r.err == nil && int64(n) != int64(meta.Leaves()) {
		r.fail("it has %d leaves, its size takes %d", n, meta.Leaves())
	}
	if r.err != nil {
		return nil
	}
	names := make([]Entry, meta.Leaves())
	for i := range names {
		names[i].Kind = EntryKind(r.u8())
		if names[i].IsZero() {
			continue
		}
		names[i].Digest = r.digest()
		if !meta.allows(names[i]) {
			r.fail("leaf %d has kind %d, which is not in use here", i, names[i].Kind)
		}
	}
	return names
}
