package volume

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/billethq/billet/internal/blob/faulty"
	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/model"
)

func wantCorrupt(t testing.TB, err error, block int64, key string) {
	t.Helper()
	var c *CorruptError
	if !errors.As(err, &c) {
		t.Errorf("error = %v, want a CorruptError", err)
		return
	}
	if c.Block != block || c.Key != key || c.Why == "" {
		t.Errorf("error = %+v, want block %d, key %s and a reason", *c, block, key)
	}
	wantKind(t, "corrupt", err, errs.Internal)
	if errs.HintOf(err) == "" {
		t.Error("a corrupt object has no hint")
	}
}

// invariant 8: each changed byte of each object that a root needs, as somebody with access
// to the store could change it: found on load or on read, and named.
func TestStore_DetectsEveryChangeOfEveryObject(t *testing.T) {
	b := newMemory()
	s := testStore(t, b)
	m := putVolume(t, s, testMeta(4*BlockSize, 1), map[int64]int{0: 1})
	dst := make([]byte, BlockSize)
	read := func() error {
		got, err := s.LoadManifest(t.Context(), m.Root())
		if err != nil {
			return err
		}
		return s.GetBlock(t.Context(), got.Entry(0), dst)
	}
	if err := read(); err != nil {
		t.Fatal(err)
	}
	for _, prefix := range []string{"blk/", "leaf/", "root/"} {
		key := b.only(t, prefix)
		sound := b.objects[key]
		for at := range sound {
			changed := bytes.Clone(sound)
			changed[at] ^= 1 << (at % 8)
			b.objects[key] = changed
			if err := read(); err == nil {
				t.Fatalf("%s: byte %d changed and not detected", key, at)
			} else if at == 0 {
				wantCorrupt(t, err, NoBlock, key)
			}
		}
		for _, length := range []int{0, 1, len(sound) / 2, len(sound) - 1} {
			b.objects[key] = sound[:length]
			wantCorrupt(t, read(), NoBlock, key)
		}
		delete(b.objects, key)
		if err := read(); !strings.Contains(err.Error(), "missing") {
			t.Errorf("%s missing: error = %v, want one that says so", key, err)
		}
		b.objects[key] = sound
	}
}

// Damage on the way heals with one more fetch; damage that stays does not turn
// into endless fetches.
func TestStore_FetchesOnceMore(t *testing.T) {
	for _, effect := range []faulty.Effect{faulty.Flip, faulty.Truncate, faulty.Missing} {
		for _, prefix := range []string{"blk", "leaf", "root"} {
			t.Run(string(effect)+" "+prefix, func(t *testing.T) {
				inner := newMemory()
				m := putVolume(t, testStore(t, inner), testMeta(BlockSize, 1), map[int64]int{0: 1})
				b := faulty.New(inner, faulty.Config{Seed: 1})
				s := testStore(t, b)
				key := inner.only(t, prefix+"/")
				read := func() error {
					got, err := s.LoadManifest(t.Context(), m.Root())
					if err != nil {
						return err
					}
					return s.GetBlock(t.Context(), got.Entry(0), make([]byte, BlockSize))
				}
				once := b.Arm(t, faulty.Fault{Op: faulty.Get, Key: key, Effect: effect, Count: 1})
				if err := read(); err != nil {
					t.Errorf("after one damaged fetch: %v", err)
				}
				once.Disarm()
				always := b.Arm(t, faulty.Fault{Op: faulty.Get, Key: key, Effect: effect})
				wantCorrupt(t, read(), NoBlock, key)
				if always.Fired() != fetchTries {
					t.Errorf("fetched %d times, want %d", always.Fired(), fetchTries)
				}
			})
		}
	}
}

func TestStore_WaitsForTheBucket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := faulty.New(newMemory(), faulty.Config{})
		s := testStore(t, b)
		raw := testBlock(1)
		e := s.Domains().Identify(SlotTenant, raw)
		b.Arm(t, faulty.Fault{Op: faulty.Put, Effect: faulty.Refuse, Count: 5})
		b.Arm(t, faulty.Fault{Op: faulty.Get, Effect: faulty.Refuse, Count: 5})
		if _, err := s.PutBlock(t.Context(), e, raw); err != nil {
			t.Errorf("put: %v", err)
		}
		if err := s.GetBlock(t.Context(), e, make([]byte, BlockSize)); err != nil {
			t.Errorf("get: %v", err)
		}
	})
}

func TestStore_PatienceEnds(t *testing.T) {
	for _, f := range []faulty.Fault{
		{Op: faulty.Get, Effect: faulty.Refuse},
		{Op: faulty.Get, Effect: faulty.Delay, Delay: 24 * time.Hour},
	} {
		t.Run(string(f.Effect), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := faulty.New(newMemory(), faulty.Config{})
				s := testStore(t, b)
				b.Arm(t, f)
				start := time.Now()
				err := s.GetBlock(t.Context(), Entry{KindTenant, Digest{1}}, make([]byte, BlockSize))
				wantKind(t, "get", err, errs.Unavailable)
				if took := time.Since(start); took < DefaultPatience-longestPause*2 || took > DefaultPatience {
					t.Errorf("gave up after %v, want about %v", took, DefaultPatience)
				}
			})
		})
	}
}

func TestStore_CallerEndsTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := faulty.New(newMemory(), faulty.Config{})
		s := testStore(t, b)
		b.Arm(t, faulty.Fault{Op: faulty.Get, Effect: faulty.Refuse})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := s.GetBlock(ctx, Entry{KindTenant, Digest{1}}, make([]byte, BlockSize))
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error = %v, want %v", err, context.DeadlineExceeded)
		}
	})
}

func TestStore_FullBucketIsNotRetried(t *testing.T) {
	b := faulty.New(newMemory(), faulty.Config{})
	s := testStore(t, b)
	full := b.Arm(t, faulty.Fault{Op: faulty.Put, Effect: faulty.Full})
	raw := testBlock(1)
	_, err := s.PutBlock(t.Context(), s.Domains().Identify(SlotTenant, raw), raw)
	wantKind(t, "put", err, errs.Exhausted)
	if full.Fired() != 1 {
		t.Errorf("tried %d times, want once", full.Fired())
	}
}

// A block that changed between being named and being stored must not be stored
// under a name that nobody could read it by.
func TestPutBlock_RefusesWhatIsNotItsName(t *testing.T) {
	b := newMemory()
	s := testStore(t, b)
	raw := testBlock(1)
	e := s.Domains().Identify(SlotTenant, raw)
	raw[77]++
	_, err := s.PutBlock(t.Context(), e, raw)
	wantKind(t, "put", err, errs.Internal)
	if puts := b.takePuts(); len(puts) != 0 {
		t.Errorf("stored %v", puts)
	}
}

func TestPutBlock_ZerosAreNotStored(t *testing.T) {
	b := newMemory()
	s := testStore(t, b)
	raw := make([]byte, BlockSize)
	e := s.Domains().Identify(SlotTenant, raw)
	if stored, err := s.PutBlock(t.Context(), e, raw); stored != 0 || err != nil || e != (Entry{}) {
		t.Errorf("stored %d bytes as %+v, %v; want none as the zero entry", stored, e, err)
	}
	copy(raw, "x")
	if err := s.GetBlock(t.Context(), e, raw); err != nil || !isZero(raw) {
		t.Errorf("a zero entry reads as %q…, %v; want zeros", raw[:1], err)
	}
	if len(b.objects) != 0 {
		t.Errorf("objects = %v, want none", b.takePuts())
	}
}

// invariant 11: blocks of different tenants never share a name.
func TestDomains_SameContentHasOtherNames(t *testing.T) {
	d := testDomains(t)
	other, err := NewDomains(testKey("othertenant", 9), testKey(model.DeploymentDomain, 2))
	if err != nil {
		t.Fatal(err)
	}
	raw := testBlock(1)
	tenant, image := d.Identify(SlotTenant, raw), d.Identify(SlotDeployment, raw)
	if tenant.Digest == image.Digest || tenant.Digest == other.Identify(SlotTenant, raw).Digest {
		t.Error("content has the same name in two domains")
	}
	if image != other.Identify(SlotDeployment, raw) {
		t.Error("an image's block has two names in one deployment")
	}
}

func TestNewDomains_Refuses(t *testing.T) {
	good := testKey("tenant", 1)
	for what, pair := range map[string][2]model.DomainKey{
		"none":       {},
		"short key":  {{Domain: "tenant", Key: make([]byte, 31)}},
		"no key":     {{Domain: "tenant"}},
		"no name":    {{Key: make([]byte, 32)}},
		"climbs":     {{Domain: "..", Key: make([]byte, 32)}},
		"slash":      {{Domain: "a/b", Key: make([]byte, 32)}},
		"same twice": {good, good},
	} {
		_, err := NewDomains(pair[0], pair[1])
		wantKind(t, what, err, errs.Invalid)
	}
}

func TestParseDigest(t *testing.T) {
	d := Digest{1, 2, 31: 0xff}
	if got, err := ParseDigest(d.String()); err != nil || got != d {
		t.Errorf("parse %s = %s, %v", d, got, err)
	}
	hex := d.hex()
	for _, s := range []string{"", "b3:", hex, "b3:" + hex[1:], "b3:" + hex + "0", "B3:" + hex, "b3:" + strings.ToUpper(hex), "b3:" + hex[:63] + "g"} {
		_, err := ParseDigest(s)
		wantKind(t, s, err, errs.Invalid)
	}
}
