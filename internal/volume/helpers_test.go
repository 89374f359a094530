package volume

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/billethq/billet/internal/blob"
	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/model"
)

// memory is an object store in a map, quick enough to damage byte by byte.
type memory struct {
	mu      sync.Mutex
	objects map[string][]byte
	puts    []string // keys, in order
}

func newMemory() *memory { return &memory{objects: map[string][]byte{}} }

func (b *memory) Get(ctx context.Context, key string) ([]byte, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if body, ok := b.objects[key]; ok {
		return bytes.Clone(body), ctx.Err()
	}
	return nil, errs.New(errs.NotFound, "no object %s", key)
}

func (b *memory) Put(ctx context.Context, key string, body []byte) error {
	if err := blob.CheckKey(key); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.puts = append(b.puts, key)
	b.objects[key] = bytes.Clone(body)
	return ctx.Err()
}

func (b *memory) PutIfAbsent(ctx context.Context, key string, body []byte) error {
	b.mu.Lock()
	_, exists := b.objects[key]
	b.mu.Unlock()
	if exists {
		return errs.New(errs.Conflict, "%s exists", key)
	}
	return b.Put(ctx, key, body)
}

func (b *memory) Stat(ctx context.Context, key string) (blob.Info, error) {
	body, err := b.Get(ctx, key)
	return blob.Info{Key: key, Size: int64(len(body))}, err
}

func (b *memory) Delete(_ context.Context, key string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.objects, key)
	return nil
}

func (b *memory) List(_ context.Context, prefix string, fn func(blob.Info) error) error {
	b.mu.Lock()
	keys := slices.Sorted(maps.Keys(b.objects))
	b.mu.Unlock()
	for _, key := range keys {
		if strings.HasPrefix(key, prefix) {
			if err := fn(blob.Info{Key: key}); err != nil {
				return err
			}
		}
	}
	return nil
}

func (b *memory) Close() error { return nil }

// takePuts returns the keys written since the last call.
func (b *memory) takePuts() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	puts := b.puts
	b.puts = nil
	return puts
}

// only returns the one key with the prefix.
func (b *memory) only(t testing.TB, prefix string) string {
	t.Helper()
	var found []string
	_ = b.List(t.Context(), prefix, func(i blob.Info) error { found = append(found, i.Key); return nil })
	if len(found) != 1 {
		t.Fatalf("objects under %s = %v, want one", prefix, found)
	}
	return found[0]
}

const (
	testTenant  = "tenantaaaaaaaaaaaaaa"
	testSubject = model.SubjectID("workspaceaaaaaaaaaaa")
)

func testKey(domain string, fill byte) model.DomainKey {
	return model.DomainKey{Domain: domain, Key: bytes.Repeat([]byte{fill}, 32)}
}

func testDomains(t testing.TB) *Domains {
	t.Helper()
	d, err := NewDomains(testKey(testTenant, 1), testKey(model.DeploymentDomain, 2))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func testStore(t testing.TB, b blob.Bucket) *Store {
	t.Helper()
	s, err := NewStore(StoreConfig{Bucket: b, Domains: testDomains(t)})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func testCache(t testing.TB, dir string, maxBytes int64) *Cache {
	t.Helper()
	c, err := OpenCache(CacheConfig{Dir: dir, MaxBytes: maxBytes, Domains: testDomains(t), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func testFetcher(t testing.TB, s *Store, c *Cache) *Fetcher {
	t.Helper()
	f, err := NewFetcher(FetcherConfig{Store: s, Cache: c})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// testBlock is a block that compresses well and differs for each n.
func testBlock(n int) []byte {
	return bytes.Repeat(fmt.Appendf(nil, "block %09d\n", n), BlockSize/16)
}

// testMeta is a workspace's metadata.
func testMeta(size int64, seq model.Seq) Meta {
	return Meta{
		Home: SlotTenant, Subject: testSubject, Epoch: 3, Seq: seq, Size: size, Consistency: Frozen, Writer: WriterHost,
		Created: time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC),
	}
}

func imageMeta(size int64) Meta {
	return Meta{Home: SlotDeployment, Size: size, Consistency: Frozen, Writer: WriterHost}
}

// putBlocks stores test blocks at the given places and returns the changes.
func putBlocks(t testing.TB, s *Store, home Slot, at map[int64]int) map[int64]Entry {
	t.Helper()
	changed := map[int64]Entry{}
	for i, n := range at {
		raw := testBlock(n)
		changed[i] = s.Domains().Identify(home, raw)
		if _, err := s.PutBlock(t.Context(), changed[i], raw); err != nil {
			t.Fatal(err)
		}
	}
	return changed
}

// putVolume stores a volume of test blocks.
func putVolume(t testing.TB, s *Store, meta Meta, at map[int64]int) *Manifest {
	t.Helper()
	m, _, err := s.PutManifest(t.Context(), nil, putBlocks(t, s, meta.Home, at), meta)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func wantKind(t testing.TB, what string, err error, kind errs.Kind) {
	t.Helper()
	if !errs.Is(err, kind) {
		t.Errorf("%s: error = %v (kind %q), want kind %q", what, err, errs.KindOf(err), kind)
	}
}
