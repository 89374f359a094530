package volume

import (
	"fmt"
	"time"

	"github.com/zeebo/blake3"

	"github.com/billethq/billet/internal/model"
)

// A root object is written field by field, in this order, numbers
// little-endian, text behind its length in one byte, an optional digest behind
// a byte that is 0 (none follows) or 1.
//
//	magic "SR1\0"          the 1 is the version
//	hash u8, codec u8      1: keyed BLAKE3-256; 1: block objects SB1
//	home u8, writer u8     slot of the home domain; 0 host, 1 guest
//	consistency u8         0 crash, 1 frozen
//	block size u32, entries of a leaf u32
//	device size u64
//	epoch u64, seq u64, created i64 (microseconds since 1970; 0: none)
//	subject text
//	parent, prebuild, boot trace: optional digests
//	domains u8 (4), and that many texts
//	leaves u32, and for each: kind u8 and, unless it is 0, a digest
//
// One value has one encoding. A root's id is the plain BLAKE3-256 of its
// object, so that roots can be verified without any domain's key; what it says
// about content are digests under such keys.
const (
	rootMagic = "SR1\x00"

	hashBLAKE3Keyed = 1
	codecSB1        = 1

	maxText = 255

	// maxRootObject bounds a root: 16 Ki leaves and 2 KiB of metadata.
	maxRootObject = MaxDeviceSize/(BlockSize*LeafEntries)*33 + 2048
)

// rootID names a root object.
func rootID(object []byte) model.Root { return Digest(blake3.Sum256(object)).root() }

func encodeRoot(meta Meta, names []Entry) ([]byte, error) {
	if err := meta.check(); err != nil {
		return nil, err
	}
	if len(names) != meta.Leaves() {
		return nil, fmt.Errorf("root of %d leaves, want %d", len(names), meta.Leaves())
	}
	w := &rootWriter{}
	w.bytes([]byte(rootMagic)...)
	w.bytes(hashBLAKE3Keyed, codecSB1, byte(meta.Home), bit(meta.Writer == WriterGuest), bit(meta.Consistency == Frozen))
	w.geometry(meta)
	w.u64(uint64(meta.Epoch))
	w.u64(uint64(meta.Seq))
	w.u64(uint64(micros(meta.Created)))
	w.text(string(meta.Subject))
	w.root(meta.Parent)
	w.root(meta.Prebuild)
	w.optional(meta.BootTrace)
	w.bytes(MaxDomains)
	for _, name := range meta.Domains {
		w.text(name)
	}
	w.u32(uint32(len(names)))
	w.names(names)
	return w.buf, w.err
}

// decodeRoot refuses everything that encodeRoot could not have written.
func decodeRoot(object []byte) (Meta, []Entry, error) {
	r := &rootReader{buf: object}
	if len(object) > maxRootObject {
		r.fail("it has %d bytes, at most %d are possible", len(object), maxRootObject)
	}
	if magic := r.take(len(rootMagic)); string(magic) != rootMagic {
		r.fail("it begins with %q, want %q", magic, rootMagic)
	}
	r.want("hash", hashBLAKE3Keyed)
	r.want("codec", codecSB1)
	var meta Meta
	meta.Home = Slot(r.u8())
	meta.Writer = pick(r, "writer", WriterHost, WriterGuest)
	meta.Consistency = pick(r, "consistency", Crash, Frozen)
	meta.Size = r.geometry()
	meta.Epoch = model.Epoch(r.u64())
	meta.Seq = model.Seq(r.u64())
	meta.Created = fromMicros(int64(r.u64()))
	meta.Subject = model.SubjectID(r.text())
	meta.Parent = r.optional().root()
	meta.Prebuild = r.optional().root()
	meta.BootTrace = r.optional()
	r.want("number of domains", MaxDomains)
	for i := range meta.Domains {
		meta.Domains[i] = r.text()
	}
	if r.err == nil {
		r.err = meta.check()
	}
	names := r.names(meta)
	if r.err == nil && len(r.buf) != 0 {
		r.fail("%d bytes follow its end", len(r.buf))
	}
	if r.err != nil {
		return Meta{}, nil, fmt.Errorf("root object: %w", r.err)
	}
	return meta, names, nil
}

// diskRoot names the content of the device alone: geometry and leaves.
func diskRoot(meta Meta, names []Entry) Digest {
	w := &rootWriter{}
	w.bytes([]byte("SD1\x00")...) // so that no root object can be taken for it
	w.geometry(meta)
	w.names(names)
	return blake3.Sum256(w.buf)
}

func micros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

func fromMicros(us int64) time.Time {
	if us == 0 {
		return time.Time{}
	}
	return time.UnixMicro(us).UTC()
}

func bit(set bool) byte {
	if set {
		return 1
	}
	return 0
}
