package overlay

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"testing"
)

var errPower = errors.New("power is gone")

// power is shared by the files of one machine. It fails after some operations.
type power struct {
	rng  *rand.Rand
	left int // operations until the power fails; negative: never
}

func (p *power) use() error {
	if p.left == 0 {
		return errPower
	}
	if p.left > 0 {
		p.left--
	}
	return nil
}

// simFile is a file whose unsynced writes may each reach the disk, in any
// order, wholly, in part or not at all.
type simFile struct {
	*power
	tear    bool // a write may reach the disk in part, at any byte
	size    int64
	now     map[int64][]byte // pages as they read
	disk    map[int64][]byte // pages as they are on the disk
	pending []simWrite
	synced  func() // called at the end of the next Sync
}

type simWrite struct {
	page int64
	data []byte
}

func newSimFile(p *power, tear bool) *simFile {
	return &simFile{power: p, tear: tear, now: map[int64][]byte{}, disk: map[int64][]byte{}}
}

func (f *simFile) Close() error           { return nil }
func (f *simFile) Length() (int64, error) { return f.size, nil }

func (f *simFile) Resize(n int64) error {
	f.size = n
	return f.use()
}

func (f *simFile) ReadAt(p []byte, off int64) (int, error) {
	for n := 0; n < len(p); {
		at := off + int64(n)
		if at >= f.size {
			return n, io.EOF
		}
		page := make([]byte, PageSize)
		copy(page, f.now[at/PageSize])
		n += copy(p[n:], page[at%PageSize:])
	}
	return len(p), nil
}

func (f *simFile) WriteAt(p []byte, off int64) (int, error) {
	for n := 0; n < len(p); {
		if err := f.use(); err != nil {
			return n, err
		}
		at := off + int64(n)
		page := make([]byte, PageSize)
		copy(page, f.now[at/PageSize])
		n += copy(page[at%PageSize:], p[n:])
		f.put(at/PageSize, page)
	}
	return len(p), nil
}

func (f *simFile) put(page int64, data []byte) {
	f.now[page] = data
	f.pending = append(f.pending, simWrite{page, data})
}

func (f *simFile) Punch(off, n int64) error {
	for at := off; at < off+n; at += PageSize {
		if err := f.use(); err != nil {
			return err
		}
		f.put(at/PageSize, make([]byte, PageSize))
	}
	return nil
}

func (f *simFile) Sync() error {
	if err := f.use(); err != nil {
		return err
	}
	for _, w := range f.pending {
		f.disk[w.page] = w.data
	}
	f.pending = nil
	if fn := f.synced; fn != nil {
		f.synced = nil
		fn()
	}
	return nil
}

func (f *simFile) NextData(off int64) (int64, error) {
	for page := off / PageSize; page*PageSize < f.size; page++ {
		if _, ok := f.now[page]; ok {
			return max(off, page*PageSize), nil
		}
	}
	return 0, io.EOF
}

// cut loses power: some of the pending writes reach the disk.
func (f *simFile) cut() {
	f.rng.Shuffle(len(f.pending), func(i, j int) { f.pending[i], f.pending[j] = f.pending[j], f.pending[i] })
	for _, w := range f.pending {
		switch f.rng.IntN(3) {
		case 0: // lost
		case 1:
			f.disk[w.page] = w.data
		case 2:
			data := w.data
			if f.tear {
				data = make([]byte, PageSize)
				copy(data, f.disk[w.page])
				k := f.rng.IntN(PageSize + 1)
				copy(data[:k], w.data)
			}
			f.disk[w.page] = data
		}
	}
	f.pending, f.now = nil, map[int64][]byte{}
	for page, data := range f.disk {
		f.now[page] = bytes.Clone(data)
	}
}

// machine is an overlay together with what a page may read as.
type machine struct {
	power       *power
	data, table *simFile
	o           *Overlay
	// allowed has, for each page, the value that was flushed last and those
	// written since; "" is absent. The last one is the present one.
	allowed map[int64][]string
}

const (
	simSize  = (groupBlocks + 2) * BlockSize // two groups
	simPages = 12                            // few, so that they are written again and again
)

// simPage spreads the pages over blocks and groups.
func simPage(i int) int64 {
	return []int64{0, 1, 2, 255, 256, 257, groupBlocks*BlockPages - 1, groupBlocks * BlockPages, groupBlocks*BlockPages + 1, 700, 701, 9000}[i]
}

func (m *machine) value(page int64) string {
	if v := m.allowed[page]; len(v) > 0 {
		return v[len(v)-1]
	}
	return ""
}

func (m *machine) read(page int64) string {
	b := m.o.Block(page / BlockPages)
	i := int(page % BlockPages)
	switch {
	case b.Zero.Has(i):
		return string(make([]byte, PageSize))
	case b.Held.Has(i):
		buf := make([]byte, PageSize)
		if _, err := m.o.ReadAt(buf, page*PageSize); err != nil {
			return err.Error()
		}
		return string(buf)
	}
	return ""
}

// step does one random thing. What fails may have happened or not.
func (m *machine) step(n int) error {
	page := simPage(m.power.rng.IntN(simPages))
	note := func(v string) {
		if len(m.allowed[page]) == 0 {
			m.allowed[page] = []string{""}
		}
		m.allowed[page] = append(m.allowed[page], v)
	}
	text := bytes.Repeat([]byte{byte(n), byte(n >> 8), 1, byte(page)}, PageSize/4)
	switch m.power.rng.IntN(8) {
	case 0, 1, 2:
		note(string(text))
		return m.o.Write(text, page*PageSize)
	case 3:
		note(string(make([]byte, PageSize)))
		return m.o.Zero(page*PageSize, PageSize, func(int64) bool { return false })
	case 4: // a part of a page that is known
		old := m.value(page)
		if old == "" {
			return nil
		}
		part := append([]byte(old[:100]), text[100:200]...)
		note(string(part) + old[200:])
		ok, err := m.o.WriteWithin(text[100:200], page*PageSize+100)
		if err == nil && !ok {
			return fmt.Errorf("page %d is not known, its value is", page)
		}
		return err
	case 5:
		ok, err := m.o.WriteAbsent(text, page*PageSize)
		if ok {
			note(string(text))
		}
		return err
	default:
		if err := m.o.Flush(); err != nil {
			return err
		}
		for page := range m.allowed {
			m.allowed[page] = []string{m.value(page)}
		}
		return nil
	}
}

// TestOverlay_PowerCut runs random writes on a machine that loses power at a
// random operation, and checks that every page is then as it was flushed last
// or as it was written since.
// invariant 12
func TestOverlay_PowerCut(t *testing.T) {
	runs, cuts := 1000, 0
	if testing.Short() {
		runs = 300
	}
	for seed := range uint64(runs) {
		p := &power{rng: rand.New(rand.NewPCG(seed, 7)), left: -1}
		m := &machine{power: p, data: newSimFile(p, false), table: newSimFile(p, true), allowed: map[int64][]string{}}
		var err error
		if m.o, err = create(m.data, m.table, simSize); err != nil {
			t.Fatal(err)
		}
		for life := range 3 {
			p.left = 1 + p.rng.IntN(60)
			for n := 0; err == nil; n++ {
				err = m.step(life*1000 + n)
			}
			if !errors.Is(err, errPower) {
				t.Fatalf("seed %d, life %d: %v", seed, life, err)
			}
			cuts++
			m.data.cut()
			m.table.cut()
			p.left = -1
			if m.o, err = open(m.data, m.table, simSize); err != nil {
				t.Fatalf("seed %d, life %d: reopen: %v", seed, life, err)
			}
			m.verify(t, seed, life)
		}
	}
	if cuts == 0 {
		t.Error("no power cut happened")
	}
}

// TestFlush_MarksOnlyWhatWasSynced writes a page at the worst moment: after the
// data was synced, before the marks are written. A mark for it would hide the
// base under a page that the disk never got.
func TestFlush_MarksOnlyWhatWasSynced(t *testing.T) {
	p := &power{rng: rand.New(rand.NewPCG(1, 1)), left: -1}
	data, table := newSimFile(p, false), newSimFile(p, false)
	o, err := create(data, table, simSize)
	if err != nil {
		t.Fatal(err)
	}
	text := bytes.Repeat([]byte{1}, PageSize)
	late := errors.New("not written")
	data.synced = func() { late = o.Write(text, PageSize) }
	if err := errors.Join(o.Write(text, 0), o.Flush(), late); err != nil {
		t.Fatal(err)
	}
	data.pending, table.pending = nil, nil // none of it reaches the disk
	data.cut()
	table.cut()
	if o, err = open(data, table, simSize); err != nil {
		t.Fatal(err)
	}
	if b := o.Block(0); !b.Held.Has(0) || b.Held.Has(1) {
		t.Errorf("held pages %b, want the first alone", b.Held[0])
	}
}

func (m *machine) verify(t *testing.T, seed uint64, life int) {
	t.Helper()
	for page, allowed := range m.allowed {
		got := m.read(page)
		if !contains(allowed, got) {
			t.Fatalf("seed %d, life %d: page %d reads %.8q, want one of %.8q", seed, life, page, got, allowed)
		}
		m.allowed[page] = []string{got} // what is read now was on the disk
	}
}

func contains(list []string, s string) bool {
	for _, l := range list {
		if l == s {
			return true
		}
	}
	return false
}

// FuzzOpen_CutMap cuts a map file anywhere: it is refused, or reads as it was.
func FuzzOpen_CutMap(f *testing.F) {
	for _, n := range []uint32{0, 1, 8, 4095, 4096, 4097, 8192, 12288, 20479} {
		f.Add(n)
	}
	f.Fuzz(func(t *testing.T, n uint32) {
		dir := t.TempDir()
		o, err := Create(dir, "o", simSize)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(o.Write(make([]byte, PageSize), 0), o.Flush(), o.Close()); err != nil {
			t.Fatal(err)
		}
		path := Files(dir, "o")[1]
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(path, min(int64(n), info.Size())); err != nil {
			t.Fatal(err)
		}
		o, err = Open(dir, "o", simSize)
		if int64(n) < info.Size() {
			if err == nil {
				t.Fatalf("a map cut at %d of %d bytes was opened", n, info.Size())
			}
			return
		}
		if err != nil || o.PageCount() != 1 {
			t.Fatalf("whole map: %v", err)
		}
		_ = o.Close()
	})
}

// FuzzOpen_AlteredMap changes bytes: a page is never read from a slot that
// fails its sum.
func FuzzOpen_AlteredMap(f *testing.F) {
	f.Add(uint32(4100), byte(1))
	f.Add(uint32(8200), byte(0xff))
	f.Add(uint32(9), byte(1))
	f.Fuzz(func(t *testing.T, at uint32, flip byte) {
		p := &power{rng: rand.New(rand.NewPCG(1, 1)), left: -1}
		data, table := newSimFile(p, false), newSimFile(p, true)
		o, err := create(data, table, simSize)
		if err != nil {
			t.Fatal(err)
		}
		for i := range 2 { // both slots of group 0
			if err := errors.Join(o.Write(make([]byte, PageSize), int64(i)*PageSize), o.Flush()); err != nil {
				t.Fatal(err)
			}
		}
		at %= 3 * PageSize
		page := bytes.Clone(table.now[int64(at/PageSize)])
		page[at%PageSize] ^= flip
		table.now[int64(at/PageSize)] = page
		o, err = open(data, table, simSize)
		if err != nil {
			return // refused
		}
		if n := o.PageCount(); n != 1 && n != 2 {
			t.Fatalf("byte %d flipped by %#x: %d pages, want the older or the newer state", at, flip, n)
		}
	})
}
