package faulty_test

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"

	"github.com/billethq/billet/internal/blob"
	"github.com/billethq/billet/internal/blob/blobtest"
	"github.com/billethq/billet/internal/blob/dir"
	"github.com/billethq/billet/internal/blob/faulty"
	"github.com/billethq/billet/internal/errs"
)

func behind(t *testing.T) *dir.Bucket {
	t.Helper()
	b, err := dir.Create(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b
}

func TestBucket_WithoutFaultsConforms(t *testing.T) {
	blobtest.Run(t, func(t *testing.T) func(t *testing.T) blob.Bucket {
		name := t.TempDir()
		return func(t *testing.T) blob.Bucket {
			b, err := dir.Create(name)
			if err != nil {
				t.Fatal(err)
			}
			return faulty.New(b, faulty.Config{})
		}
	})
}

func TestArm_EachEffect(t *testing.T) {
	body := bytes.Repeat([]byte("content"), 100)
	cases := []struct {
		fault faulty.Fault
		check func(t *testing.T, b *faulty.Bucket, inner blob.Bucket)
	}{
		{faulty.Fault{Op: faulty.Get, Effect: faulty.Refuse}, getFails(errs.Unavailable)},
		{faulty.Fault{Op: faulty.Get, Effect: faulty.Missing, Key: "dir/*"}, getFails(errs.NotFound)},
		{faulty.Fault{Effect: faulty.Full, Key: "dir/new"}, func(t *testing.T, b *faulty.Bucket, inner blob.Bucket) {
			if err := b.Put(t.Context(), "dir/new", nil); !errs.Is(err, errs.Exhausted) {
				t.Errorf("put = %v, want exhausted", err)
			}
			if _, err := inner.Get(t.Context(), "dir/new"); !errs.Is(err, errs.NotFound) {
				t.Errorf("a refused put stored: %v", err)
			}
		}},
		{faulty.Fault{Op: faulty.PutIfAbsent, Effect: faulty.LoseReply}, func(t *testing.T, b *faulty.Bucket, inner blob.Bucket) {
			if err := b.PutIfAbsent(t.Context(), "dir/new", body); !errs.Is(err, errs.Unavailable) {
				t.Errorf("put if absent = %v, want unavailable", err)
			}
			if got, err := inner.Get(t.Context(), "dir/new"); err != nil || !bytes.Equal(got, body) {
				t.Errorf("behind a lost reply is %d bytes, %v; want the object", len(got), err)
			}
		}},
		{faulty.Fault{Op: faulty.Get, Effect: faulty.Flip}, func(t *testing.T, b *faulty.Bucket, _ blob.Bucket) {
			got, err := b.Get(t.Context(), "dir/k")
			if err != nil || len(got) != len(body) || differing(got, body) != 1 {
				t.Errorf("get = %d bytes, %d wrong, %v; want one wrong byte", len(got), differing(got, body), err)
			}
		}},
		{faulty.Fault{Op: faulty.Get, Effect: faulty.Truncate}, func(t *testing.T, b *faulty.Bucket, _ blob.Bucket) {
			got, err := b.Get(t.Context(), "dir/k")
			if err != nil || len(got) >= len(body) || !bytes.HasPrefix(body, got) {
				t.Errorf("get = %d bytes, %v; want fewer than %d", len(got), err, len(body))
			}
		}},
	}
	for _, c := range cases {
		t.Run(string(c.fault.Effect), func(t *testing.T) {
			inner := behind(t)
			if err := inner.Put(t.Context(), "dir/k", body); err != nil {
				t.Fatal(err)
			}
			b := faulty.New(inner, faulty.Config{Seed: 7})
			b.Arm(t, c.fault)
			c.check(t, b, inner)
		})
	}
}

func getFails(kind errs.Kind) func(*testing.T, *faulty.Bucket, blob.Bucket) {
	return func(t *testing.T, b *faulty.Bucket, _ blob.Bucket) {
		if _, err := b.Get(t.Context(), "dir/k"); !errs.Is(err, kind) {
			t.Errorf("get = %v, want kind %s", err, kind)
		}
	}
}

func differing(a, b []byte) int {
	n := 0
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			n++
		}
	}
	return n
}

func TestArm_AfterAndCount(t *testing.T) {
	b := faulty.New(behind(t), faulty.Config{})
	a := b.Arm(t, faulty.Fault{Op: faulty.Put, Effect: faulty.Refuse, After: 1, Count: 2})
	var failed []bool
	for range 5 {
		failed = append(failed, b.Put(t.Context(), "k", nil) != nil)
	}
	want := []bool{false, true, true, false, false}
	for i := range want {
		if failed[i] != want[i] {
			t.Fatalf("failed = %v, want %v", failed, want)
		}
	}
	if a.Fired() != 2 || b.Calls(faulty.Put) != 5 {
		t.Errorf("fired %d of %d calls, want 2 of 5", a.Fired(), b.Calls(faulty.Put))
	}
}

func TestArm_DelayTakesItsTime(t *testing.T) {
	inner := behind(t)
	synctest.Test(t, func(t *testing.T) {
		b := faulty.New(inner, faulty.Config{})
		b.Arm(t, faulty.Fault{Effect: faulty.Delay, Delay: time.Minute})
		start := time.Now()
		_, _ = b.Stat(t.Context(), "k")
		if took := time.Since(start); took != time.Minute {
			t.Errorf("took %v, want a minute", took)
		}
	})
}

func TestTrouble_IsTheSameForOneSeed(t *testing.T) {
	run := func() (failures []int) {
		b := faulty.New(behind(t), faulty.Config{Seed: 3, Trouble: 50})
		for i := range 60 {
			if b.Put(t.Context(), "k", nil) != nil {
				failures = append(failures, i)
			}
		}
		return failures
	}
	first, second := run(), run()
	if len(first) == 0 || len(first) == 60 {
		t.Fatalf("%d of 60 calls failed, want some", len(first))
	}
	if len(first) != len(second) {
		t.Fatalf("failures %v, then %v", first, second)
	}
	for i := range first {
		if first[i] != second[i] {
			t.Fatalf("failures %v, then %v", first, second)
		}
	}
}
