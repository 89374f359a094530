// Package faulty is a hostile object store for tests.
//
// It stands in front of a real bucket and does what stores do on bad days:
// answer late, refuse, lose the reply of a write that happened, and give back
// objects that are missing, cut short or altered. Faults are armed one by one
// and count how often they fired, so that a test can fail when its fault never
// did; and a seed alone makes a store that is hostile by itself, in ways that
// a correct caller survives.
package faulty

import (
	"bytes"
	"context"
	"math/rand/v2"
	"path"
	"sync"
	"testing"
	"time"

	"github.com/billethq/billet/internal/blob"
	"github.com/billethq/billet/internal/clock"
	"github.com/billethq/billet/internal/errs"
)

// Op is a call of blob.Bucket.
type Op string

// The calls that can be made to fail.
const (
	Get         Op = "get"
	Put         Op = "put"
	PutIfAbsent Op = "put_if_absent"
	Stat        Op = "stat"
	Delete      Op = "delete"
	List        Op = "list"
)

// Effect is what a fault does to a call.
type Effect string

// The effects. Flip, Truncate and Missing change what a read gives back, not
// what is stored: a second read of the same object may be sound.
const (
	Delay     Effect = "delay"      // answer after Fault.Delay
	Refuse    Effect = "refuse"     // errs.Unavailable, nothing done
	Full      Effect = "full"       // errs.Exhausted, nothing done
	LoseReply Effect = "lose_reply" // done, and then errs.Unavailable
	Flip      Effect = "flip"       // one bit of one byte, chosen by the seed, is wrong
	Truncate  Effect = "truncate"   // the object ends early
	Missing   Effect = "missing"    // errs.NotFound
)

// Fault says which calls suffer what.
type Fault struct {
	Op     Op     // "" for every call
	Key    string // pattern of path.Match over the whole key; "" for every key
	Effect Effect
	Delay  time.Duration // for Delay
	After  int           // calls that match and are let through first
	Count  int           // calls that suffer; 0 for all
}

// Armed is a fault in place.
type Armed struct {
	fault Fault
	b     *Bucket
	seen  int
	fired int
	off   bool
}

// Fired returns how many calls suffered.
func (a *Armed) Fired() int {
	a.b.mu.Lock()
	defer a.b.mu.Unlock()
	return a.fired
}

// Disarm ends the fault.
func (a *Armed) Disarm() {
	a.b.mu.Lock()
	defer a.b.mu.Unlock()
	a.off = true
}

// Config makes a Bucket hostile by itself. The zero value only does what is
// armed.
type Config struct {
	Seed uint64
	// Trouble is the share of calls, in percent, that are refused, delayed by
	// up to MaxDelay, or lose their reply.
	Trouble  int
	MaxDelay time.Duration
}

// Bucket is the hostile store; it implements blob.Bucket.
type Bucket struct {
	inner blob.Bucket
	cfg   Config

	mu    sync.Mutex
	rng   *rand.Rand
	armed []*Armed
	calls map[Op]int
}

var _ blob.Bucket = (*Bucket)(nil)

// New puts a hostile store in front of inner.
func New(inner blob.Bucket, cfg Config) *Bucket {
	return &Bucket{inner: inner, cfg: cfg, rng: rand.New(rand.NewPCG(cfg.Seed, 1)), calls: map[Op]int{}}
}

// Arm puts a fault in place. The test fails at its end when the fault never
// fired.
func (b *Bucket) Arm(t testing.TB, f Fault) *Armed {
	t.Helper()
	if _, err := path.Match(f.Key, ""); err != nil {
		t.Fatalf("fault %+v: %v", f, err)
	}
	a := &Armed{fault: f, b: b}
	b.mu.Lock()
	b.armed = append(b.armed, a)
	b.mu.Unlock()
	t.Cleanup(func() {
		if a.Fired() == 0 {
			t.Errorf("fault %+v never fired", f)
		}
	})
	return a
}

// Calls returns how many calls of op reached the store, faulty ones included.
func (b *Bucket) Calls(op Op) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.calls[op]
}

// Get reads through the faults.
func (b *Bucket) Get(ctx context.Context, key string) ([]byte, error) {
	var body []byte
	err := b.do(ctx, Get, key, func(e effects) error {
		var err error
		if body, err = b.inner.Get(ctx, key); err != nil {
			return err
		}
		body = e.damage(body)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return body, nil
}

// Put writes through the faults.
func (b *Bucket) Put(ctx context.Context, key string, body []byte) error {
	return b.do(ctx, Put, key, func(effects) error { return b.inner.Put(ctx, key, body) })
}

// PutIfAbsent writes through the faults.
func (b *Bucket) PutIfAbsent(ctx context.Context, key string, body []byte) error {
	return b.do(ctx, PutIfAbsent, key, func(effects) error { return b.inner.PutIfAbsent(ctx, key, body) })
}

// Stat asks through the faults.
func (b *Bucket) Stat(ctx context.Context, key string) (blob.Info, error) {
	var info blob.Info
	err := b.do(ctx, Stat, key, func(effects) (err error) { info, err = b.inner.Stat(ctx, key); return err })
	return info, err
}

// Delete removes through the faults.
func (b *Bucket) Delete(ctx context.Context, key string) error {
	return b.do(ctx, Delete, key, func(effects) error { return b.inner.Delete(ctx, key) })
}

// List lists through the faults, which match its prefix.
func (b *Bucket) List(ctx context.Context, prefix string, fn func(blob.Info) error) error {
	return b.do(ctx, List, prefix, func(effects) error { return b.inner.List(ctx, prefix, fn) })
}

// Close closes the store behind.
func (b *Bucket) Close() error { return b.inner.Close() }

// do lets one call suffer what is its lot.
func (b *Bucket) do(ctx context.Context, op Op, key string, call func(effects) error) error {
	e := b.choose(op, key)
	if e.delay > 0 {
		if err := clock.Sleep(ctx, e.delay); err != nil {
			return err
		}
	}
	switch {
	case e.has[Refuse]:
		return errs.New(errs.Unavailable, "%s %s: refused by the test", op, key)
	case e.has[Full]:
		return errs.New(errs.Exhausted, "%s %s: full by the test", op, key)
	case e.has[Missing]:
		return errs.New(errs.NotFound, "%s %s: missing by the test", op, key)
	}
	if err := call(e); err != nil {
		return err
	}
	if e.has[LoseReply] {
		return errs.New(errs.Unavailable, "%s %s: reply lost by the test", op, key)
	}
	return nil
}

// effects is what one call suffers.
type effects struct {
	has    map[Effect]bool
	delay  time.Duration
	random uint64
}

func (e effects) damage(body []byte) []byte {
	if len(body) == 0 {
		return body
	}
	at := int(e.random>>3) % len(body)
	if e.has[Flip] {
		body = bytes.Clone(body)
		body[at] ^= 1 << (e.random & 7)
	}
	if e.has[Truncate] {
		body = body[:at]
	}
	return body
}

func (b *Bucket) choose(op Op, key string) effects {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.calls[op]++
	e := effects{has: map[Effect]bool{}, random: b.rng.Uint64() >> 1}
	for _, a := range b.armed {
		if !a.strikes(op, key) {
			continue
		}
		e.has[a.fault.Effect] = true
		if a.fault.Effect == Delay {
			e.delay += a.fault.Delay
		}
	}
	if b.rng.IntN(100) < b.cfg.Trouble {
		b.trouble(op, &e)
	}
	return e
}

// strikes counts the call and says whether it suffers; b.mu is held.
func (a *Armed) strikes(op Op, key string) bool {
	f := a.fault
	if a.off || f.Op != "" && f.Op != op {
		return false
	}
	if f.Key != "" {
		if ok, _ := path.Match(f.Key, key); !ok {
			return false
		}
	}
	a.seen++
	if a.seen <= f.After || f.Count > 0 && a.fired >= f.Count {
		return false
	}
	a.fired++
	return true
}

func (b *Bucket) trouble(op Op, e *effects) {
	switch b.rng.IntN(3) {
	case 0:
		e.has[Refuse] = true
	case 1:
		if op != List { // fn has been called: a caller cannot repeat that
			e.has[LoseReply] = true
		}
	case 2:
		if b.cfg.MaxDelay > 0 {
			e.delay += time.Duration(b.rng.Int64N(int64(b.cfg.MaxDelay)))
		}
	}
}
