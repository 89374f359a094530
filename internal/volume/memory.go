package volume

import (
	"encoding/binary"
	"fmt"
	"regexp"
	"time"

	"github.com/zeebo/blake3"

	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/model"
)

// A memory image is the files in which a driver took a guest's memory, as a
// chain of blocks like a disk's, and what it is bound to. Its object is written
// as a root is (root.go), field by field:
//
//	magic "SM1\0"          the 1 is the version
//	hash u8, codec u8      as in a root
//	block size u32, entries of a leaf u32
//	size of the chain u64
//	created i64            microseconds since 1970
//	domain text            the tenant's: memory is never shared
//	disk digest            the content of the disk at that instant (Manifest.DiskRoot)
//	driver, binary, CPU model, host kernel, guest kernel texts
//	CPU features long text (behind its length in two bytes)
//	files u8, and for each: name text, size u64
//	leaves u32, and for each: kind u8 and, unless it is 0, a digest
//
// Each file begins at the block after the last of the one before it. The id is
// the plain BLAKE3-256 of the object. A memory image is no part of a disk's
// root: it may be dropped any day, and the disk is what it was.
const (
	memoryMagic = "SM1\x00"

	// maxMemoryFiles bounds what a driver writes; gVisor writes three files.
	maxMemoryFiles = 16
	// maxMemorySize bounds the chain of a memory image.
	maxMemorySize = 1 << 40
	// maxLongText bounds the names of a processor's features, about 1.5 KiB.
	maxLongText = 16 << 10

	maxMemoryObject = maxMemorySize/(BlockSize*LeafEntries)*33 + maxLongText + 8<<10
)

// MemoryMeta is what a memory image says of itself beside its content.
type MemoryMeta struct {
	Disk    Digest        // the disk that it may be restored on
	Machine model.Machine // where it was taken
	Created time.Time     // kept to the microsecond
	Files   []MemoryFile
	Domain  string // PutMemory fills it
}

// MemoryFile is one file of a memory image.
type MemoryFile struct {
	Name string
	Size int64
}

// Memory is a memory image in the store: its content is read through a Fetcher
// as that of a disk is.
type Memory struct {
	root  model.Root
	meta  MemoryMeta
	chain *Manifest
}

// Root returns the id of the image.
func (m *Memory) Root() model.Root { return m.root }

// Meta returns what the image says of itself.
func (m *Memory) Meta() MemoryMeta { return m.meta }

// Chain returns the content, file after file, each from a block of its own.
func (m *Memory) Chain() *Manifest { return m.chain }

// fileNamePattern keeps a file's name a plain one: it is made in a directory.
var fileNamePattern = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,62}$`)

// size is the bytes of the chain.
func (m MemoryMeta) size() int64 {
	var n int64
	for _, f := range m.Files {
		n += f.blocks() * BlockSize
	}
	return n
}

func (f MemoryFile) blocks() int64 { return (f.Size + BlockSize - 1) / BlockSize }

func (m MemoryMeta) check() error {
	seen := make(map[string]bool)
	for _, f := range m.Files {
		if !fileNamePattern.MatchString(f.Name) || seen[f.Name] || f.Size <= 0 || f.Size > maxMemorySize {
			return errs.New(errs.Invalid, "file %q of %d bytes is no part of a memory image", f.Name, f.Size)
		}
		seen[f.Name] = true
	}
	switch n := m.size(); {
	case n <= 0 || n > maxMemorySize || len(m.Files) > maxMemoryFiles:
		return errs.New(errs.Invalid, "memory image of %d files and %d bytes", len(m.Files), n)
	case m.Disk.IsZero():
		return errs.New(errs.Invalid, "memory image of no disk")
	case !domainPattern.MatchString(m.Domain):
		return errs.New(errs.Invalid, "memory image of domain %q", m.Domain)
	}
	return nil
}

// chainMeta is the geometry of the chain, as a disk's.
func (m MemoryMeta) chainMeta() Meta {
	return Meta{Home: SlotTenant, Size: m.size(), Consistency: Frozen, Writer: WriterHost, Domains: [MaxDomains]string{SlotTenant: m.Domain}}
}

// memoryID names a memory image's object.
func memoryID(object []byte) model.Root { return Digest(blake3.Sum256(object)).root() }

func encodeMemory(meta MemoryMeta, names []Entry) ([]byte, error) {
	if err := meta.check(); err != nil {
		return nil, err
	}
	chain := meta.chainMeta()
	if len(names) != chain.Leaves() {
		return nil, fmt.Errorf("memory image of %d leaves, want %d", len(names), chain.Leaves())
	}
	w := &rootWriter{}
	w.bytes([]byte(memoryMagic)...)
	w.bytes(hashBLAKE3Keyed, codecSB1)
	w.geometry(chain)
	w.u64(uint64(micros(meta.Created)))
	w.text(meta.Domain)
	w.bytes(meta.Disk[:]...)
	machine := meta.Machine
	for _, s := range []string{string(machine.Driver), machine.Binary, machine.CPUModel, machine.HostKernel, machine.GuestKernel} {
		w.text(s)
	}
	w.longText(machine.CPUFeatures)
	w.bytes(byte(len(meta.Files)))
	for _, f := range meta.Files {
		w.text(f.Name)
		w.u64(uint64(f.Size))
	}
	w.u32(uint32(len(names)))
	w.names(names)
	return w.buf, w.err
}

// decodeMemory refuses everything that encodeMemory could not have written.
func decodeMemory(object []byte) (MemoryMeta, []Entry, error) {
	r := &rootReader{buf: object}
	if len(object) > maxMemoryObject {
		r.fail("it has %d bytes, at most %d are possible", len(object), maxMemoryObject)
	}
	if magic := r.take(len(memoryMagic)); string(magic) != memoryMagic {
		r.fail("it begins with %q, want %q", magic, memoryMagic)
	}
	r.want("hash", hashBLAKE3Keyed)
	r.want("codec", codecSB1)
	size := r.geometry()
	meta := MemoryMeta{Created: fromMicros(int64(r.u64())), Domain: r.text(), Disk: r.digest()}
	m := &meta.Machine
	m.Driver = model.DriverName(r.text())
	for _, s := range []*string{&m.Binary, &m.CPUModel, &m.HostKernel, &m.GuestKernel} {
		*s = r.text()
	}
	m.CPUFeatures = r.longText()
	for range r.u8() {
		meta.Files = append(meta.Files, MemoryFile{Name: r.text(), Size: int64(r.u64())})
	}
	if r.err == nil {
		r.err = meta.check()
	}
	if r.err == nil && size != meta.size() {
		r.fail("its chain has %d bytes, its files take %d", size, meta.size())
	}
	names := r.names(meta.chainMeta())
	if r.err == nil && len(r.buf) != 0 {
		r.fail("%d bytes follow its end", len(r.buf))
	}
	if r.err != nil {
		return MemoryMeta{}, nil, fmt.Errorf("memory object: %w", r.err)
	}
	return meta, names, nil
}

func (w *rootWriter) longText(s string) {
	if len(s) > maxLongText {
		w.err = fmt.Errorf("text of %d bytes, at most %d are allowed", len(s), maxLongText)
		return
	}
	w.buf = binary.LittleEndian.AppendUint16(w.buf, uint16(len(s)))
	w.buf = append(w.buf, s...)
}

func (r *rootReader) longText() string {
	n := int(binary.LittleEndian.Uint16(r.take(2)))
	if n > maxLongText {
		r.fail("a text has %d bytes, at most %d are possible", n, maxLongText)
	}
	return string(r.take(n))
}
