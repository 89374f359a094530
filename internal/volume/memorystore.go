package volume

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sync/errgroup"

	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/model"
)

// PutMemory stores the files of dir that meta.Files names (their sizes are
// filled in) as a memory image, and keeps the raw blocks in cache, if there is
// one. Blocks come first, then leaves, then the image, each confirmed before
// the next. Nothing else names what it stores.
func PutMemory(ctx context.Context, s *Store, cache *Cache, dir string, meta MemoryMeta) (*Memory, ImportStats, error) {
	src, err := openMemoryFiles(dir, meta.Files)
	if err != nil {
		return nil, ImportStats{}, fmt.Errorf("store memory: %w", err)
	}
	defer src.close()
	meta.Files = src.files
	meta.Created = fromMicros(micros(meta.Created))
	meta.Domain = s.domains.Name(SlotTenant)
	if err := meta.check(); err != nil {
		return nil, ImportStats{}, fmt.Errorf("store memory: %w", err)
	}
	i := newImporter(s, Import{Source: src, Size: meta.size(), Meta: meta.chainMeta()})
	i.cache = cache
	if err := i.run(ctx); err != nil {
		return nil, ImportStats{}, fmt.Errorf("store memory: %w", err)
	}
	m := &Memory{meta: meta, chain: &Manifest{meta: meta.chainMeta(), leaves: i.leaves}}
	stored, err := s.putLeaves(ctx, nil, m.chain)
	if err != nil {
		return nil, ImportStats{}, fmt.Errorf("store memory: %w", err)
	}
	object, err := encodeMemory(meta, m.chain.names)
	if err != nil {
		return nil, ImportStats{}, errs.Wrap(errs.Invalid, err, "store memory")
	}
	m.root = memoryID(object)
	if err := s.put(ctx, memoryKey(meta.Domain, m.root), object); err != nil {
		return nil, ImportStats{}, fmt.Errorf("store memory: %w", err)
	}
	i.stats.StoredBytes += stored + int64(len(object))
	return m, i.stats, nil
}

// memoryKey is of a root that was made here or checked.
func memoryKey(domain string, root model.Root) string {
	return "mem/" + domain + "/" + string(root[len(digestPrefix):])
}

// LoadMemory fetches a memory image's object and its leaves. Errors are those
// of LoadManifest.
func (s *Store) LoadMemory(ctx context.Context, root model.Root) (*Memory, error) {
	if err := root.Check(); err != nil {
		return nil, err
	}
	domain := s.domains.Name(SlotTenant)
	if domain == "" {
		return nil, errs.New(errs.Denied, "load memory %s: there is no tenant's key", root.Short())
	}
	m := &Memory{root: root}
	var names []Entry
	err := s.fetch(ctx, memoryKey(domain, root), func(object []byte) (err error) {
		if memoryID(object) != root {
			return errOtherName
		}
		m.meta, names, err = decodeMemory(object)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("load memory %s: %w", root.Short(), err)
	}
	if m.meta.Domain != domain {
		return nil, errs.New(errs.Denied, "load memory %s: it is of domain %s", root.Short(), m.meta.Domain)
	}
	m.chain = &Manifest{meta: m.meta.chainMeta(), names: names}
	if err := s.fetchLeaves(ctx, m.chain); err != nil {
		return nil, fmt.Errorf("load memory %s: %w", root.Short(), err)
	}
	return m, nil
}

// writeWorkers write blocks side by side: as many as are fetched at once.
const writeWorkers = resumeSlots

// WriteMemory writes the image's files into dir, which must be there and hold
// none of them, each block verified on its way. The files are not synced. After
// an error they hold nothing of use.
func (f *Fetcher) WriteMemory(ctx context.Context, m *Memory, dir string) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(writeWorkers)
	first := int64(0)
	for _, file := range m.meta.Files {
		out, err := os.OpenFile(filepath.Join(dir, file.Name), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if err != nil {
			return fmt.Errorf("write memory: %w", err)
		}
		defer out.Close()
		if err := out.Truncate(file.Size); err != nil {
			return fmt.Errorf("write memory: %w", err)
		}
		for b := range file.blocks() {
			block := first + b
			if m.chain.Entry(block).IsZero() {
				continue // the hole reads as zeros
			}
			group.Go(func() error { return f.writeBlock(ctx, m, block, out, b*BlockSize, file.Size) })
		}
		first += file.blocks()
	}
	if err := group.Wait(); err != nil {
		return fmt.Errorf("write memory: %w", err)
	}
	return nil
}

func (f *Fetcher) writeBlock(ctx context.Context, m *Memory, block int64, out *os.File, at, size int64) error {
	buf := f.buffers.Get().(*[]byte)
	defer f.buffers.Put(buf)
	if err := f.Read(ctx, m.chain, block, *buf, 0, Resume); err != nil {
		return err
	}
	_, err := out.WriteAt((*buf)[:min(BlockSize, size-at)], at)
	return err
}

// memoryFiles reads the files one behind the other, each padded to whole
// blocks. A read lies within one block.
type memoryFiles struct {
	files []MemoryFile
	open  []*os.File
}

func openMemoryFiles(dir string, files []MemoryFile) (*memoryFiles, error) {
	m := &memoryFiles{}
	for _, f := range files {
		file, err := os.Open(filepath.Join(dir, f.Name))
		if err != nil {
			m.close()
			return nil, err
		}
		m.open = append(m.open, file)
		info, err := file.Stat()
		if err != nil {
			m.close()
			return nil, err
		}
		m.files = append(m.files, MemoryFile{Name: f.Name, Size: info.Size()})
	}
	return m, nil
}

func (m *memoryFiles) close() {
	for _, f := range m.open {
		_ = f.Close()
	}
}

// ReadAt implements io.ReaderAt for whole blocks.
func (m *memoryFiles) ReadAt(p []byte, off int64) (int, error) {
	for i, f := range m.files {
		length := f.blocks() * BlockSize
		if off >= length {
			off -= length
			continue
		}
		n, err := m.open[i].ReadAt(p[:min(int64(len(p)), f.Size-off)], off)
		if err != nil && n < len(p) && off+int64(n) < f.Size {
			return n, err
		}
		clear(p[n:])
		return len(p), nil
	}
	return 0, io.EOF
}
