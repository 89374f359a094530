// Package blobtest is the conformance suite of blob.Bucket.
//
// An adapter's test calls Run. What is tested here may be relied on by every
// caller of the port; what is not may differ between stores.
package blobtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/billethq/billet/internal/blob"
	"github.com/billethq/billet/internal/errs"
)

// Store makes a fresh, empty store and returns a function that opens it: each
// call gives one more client of the same store, which the suite closes.
type Store func(t *testing.T) (open func(t *testing.T) blob.Bucket)

// Run checks that a store does what package blob says.
func Run(t *testing.T, store Store) {
	cases := []struct {
		name string
		run  func(t *testing.T, open func(t *testing.T) blob.Bucket)
	}{
		{"RoundTrip", roundTrip},
		{"Missing", missing},
		{"Sizes", sizes},
		{"Replace", replace},
		{"PutIfAbsent", putIfAbsent},
		{"ConcurrentPutIfAbsent", concurrentPutIfAbsent},
		{"ConcurrentPutIsWhole", concurrentPutIsWhole},
		{"Keys", keys},
		{"Prefixes", prefixes},
		{"ListOrder", listOrder},
		{"ListStops", listStops},
		{"Delete", deletes},
		{"Reopen", reopen},
		{"BodyIsCopied", bodyIsCopied},
		{"EndedContext", endedContext},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			open := store(t)
			c.run(t, func(t *testing.T) blob.Bucket {
				b := open(t)
				t.Cleanup(func() { _ = b.Close() })
				return b
			})
		})
	}
}

func roundTrip(t *testing.T, open func(t *testing.T) blob.Bucket) {
	b := open(t)
	before := time.Now().Add(-time.Minute)
	put(t, b, "a/b/c", "hello")
	want(t, b, "a/b/c", "hello")
	info, err := b.Stat(t.Context(), "a/b/c")
	if err != nil {
		t.Fatal(err)
	}
	if info.Key != "a/b/c" || info.Size != 5 || info.Modified.Before(before) || info.Modified.After(time.Now().Add(time.Minute)) {
		t.Errorf("stat = %+v, want key a/b/c, size 5, modified about now", info)
	}
}

func missing(t *testing.T, open func(t *testing.T) blob.Bucket) {
	b := open(t)
	put(t, b, "dir/object", "x")
	for _, key := range []string{"none", "dir/none", "dir", "dir/object/below", "no/such/dir"} {
		_, err := b.Get(t.Context(), key)
		wantKind(t, "get "+key, err, errs.NotFound)
		_, err = b.Stat(t.Context(), key)
		wantKind(t, "stat "+key, err, errs.NotFound)
	}
}

func sizes(t *testing.T, open func(t *testing.T) blob.Bucket) {
	b := open(t)
	large := bytes.Repeat([]byte("0123456789abcdef"), blob.MaxObjectBytes/16)
	for _, size := range []int{0, 1, 4095, blob.MaxObjectBytes} {
		key := fmt.Sprintf("size/%d", size)
		put(t, b, key, string(large[:size]))
		want(t, b, key, string(large[:size]))
		if info, err := b.Stat(t.Context(), key); err != nil || info.Size != int64(size) {
			t.Errorf("stat %s = %+v, %v; want size %d", key, info, err, size)
		}
	}
	tooLarge := append(large, 'x')
	wantKind(t, "put too large", b.Put(t.Context(), "large", tooLarge), errs.Invalid)
	wantKind(t, "put too large if absent", b.PutIfAbsent(t.Context(), "large", tooLarge), errs.Invalid)
	_, err := b.Get(t.Context(), "large")
	wantKind(t, "get after refused put", err, errs.NotFound)
}

func replace(t *testing.T, open func(t *testing.T) blob.Bucket) {
	b := open(t)
	put(t, b, "k", "first and longer")
	put(t, b, "k", "second")
	want(t, b, "k", "second")
}

func putIfAbsent(t *testing.T, open func(t *testing.T) blob.Bucket) {
	b := open(t)
	if err := b.PutIfAbsent(t.Context(), "roots/x/1", []byte("one")); err != nil {
		t.Fatal(err)
	}
	wantKind(t, "same content", b.PutIfAbsent(t.Context(), "roots/x/1", []byte("one")), errs.Conflict)
	wantKind(t, "other content", b.PutIfAbsent(t.Context(), "roots/x/1", []byte("two")), errs.Conflict)
	want(t, b, "roots/x/1", "one")
	put(t, b, "roots/x/2", "put")
	wantKind(t, "after a put", b.PutIfAbsent(t.Context(), "roots/x/2", []byte("two")), errs.Conflict)
	want(t, b, "roots/x/2", "put")
}

// concurrentPutIfAbsent has clients of their own, as two hosts would.
func concurrentPutIfAbsent(t *testing.T, open func(t *testing.T) blob.Bucket) {
	const rounds, clients = 8, 6
	buckets := make([]blob.Bucket, clients)
	for i := range buckets {
		buckets[i] = open(t)
	}
	for round := range rounds {
		key := fmt.Sprintf("race/%d", round)
		results := make([]error, clients)
		var wg sync.WaitGroup
		start := make(chan struct{})
		for i, b := range buckets {
			wg.Go(func() {
				<-start
				results[i] = b.PutIfAbsent(t.Context(), key, fmt.Appendf(nil, "client %d", i))
			})
		}
		close(start)
		wg.Wait()
		winner := slices.Index(results, nil)
		if winner < 0 {
			t.Fatalf("round %d: nobody won: %v", round, results)
		}
		for i, err := range results {
			if i != winner {
				wantKind(t, fmt.Sprintf("round %d client %d", round, i), err, errs.Conflict)
			}
		}
		want(t, buckets[(winner+1)%clients], key, fmt.Sprintf("client %d", winner))
	}
}

// concurrentPutIsWhole reads while writers replace: a reader sees one of the
// contents, never a part or a mixture.
func concurrentPutIsWhole(t *testing.T, open func(t *testing.T) blob.Bucket) {
	b, reader := open(t), open(t)
	const size, writes = 256 << 10, 10
	put(t, b, "k", strings.Repeat("0", size))
	var wg sync.WaitGroup
	for i := range 2 {
		wg.Go(func() {
			body := bytes.Repeat([]byte{byte('1' + i)}, size)
			for range writes {
				if err := b.Put(t.Context(), "k", body); err != nil {
					t.Error(err)
				}
			}
		})
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	for running := true; running; {
		select {
		case <-done:
			running = false
		default:
		}
		body, err := reader.Get(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		if len(body) != size || bytes.Count(body, body[:1]) != size {
			t.Fatalf("read %d bytes that no writer wrote", len(body))
		}
	}
}

func keys(t *testing.T, open func(t *testing.T) blob.Bucket) {
	b := open(t)
	long := strings.Repeat(strings.Repeat("k", 127)+"/", 4)[:blob.MaxKeyBytes-1] + "z"
	for _, key := range []string{"A", "a.b_c-D9", "...", "a/..b/c.", long} {
		put(t, b, key, "body of "+key)
		want(t, b, key, "body of "+key)
	}
	for _, key := range []string{
		"", "/", "/a", "a/", "a//b", ".", "..", "a/../b", "../a", "a/.", "./a", "a b", "a\x00b", "a\\b", "a~", "ä", "a\nb", long + "z",
	} {
		_, err := b.Get(t.Context(), key)
		wantKind(t, fmt.Sprintf("get %q", key), err, errs.Invalid)
		_, err = b.Stat(t.Context(), key)
		wantKind(t, fmt.Sprintf("stat %q", key), err, errs.Invalid)
		wantKind(t, fmt.Sprintf("put %q", key), b.Put(t.Context(), key, nil), errs.Invalid)
		wantKind(t, fmt.Sprintf("put if absent %q", key), b.PutIfAbsent(t.Context(), key, nil), errs.Invalid)
		wantKind(t, fmt.Sprintf("delete %q", key), b.Delete(t.Context(), key), errs.Invalid)
	}
}

func prefixes(t *testing.T, open func(t *testing.T) blob.Bucket) {
	b := open(t)
	for _, key := range []string{"roots/ws1/1", "roots/ws1/2", "roots/ws10/1", "roots/x", "blk/a"} {
		put(t, b, key, key)
	}
	for prefix, count := range map[string]int{
		"": 5, "roots": 4, "roots/": 4, "roots/ws1": 3, "roots/ws1/": 2, "roots/ws1/2": 1, "roots/ws1/2/": 0, "r": 4, "z": 0, "none/": 0, "blk/a/b/c": 0,
	} {
		if got := list(t, b, prefix); len(got) != count {
			t.Errorf("list %q = %v, want %d objects", prefix, got, count)
		}
	}
	for _, prefix := range []string{"../", "a/../b", "/", "a//", "a b", "./x"} {
		err := b.List(t.Context(), prefix, func(blob.Info) error { return nil })
		wantKind(t, fmt.Sprintf("list %q", prefix), err, errs.Invalid)
	}
}

func listOrder(t *testing.T, open func(t *testing.T) blob.Bucket) {
	b := open(t)
	// Where a directory sorts differently from its name with a slash.
	all := []string{"a-b", "a.b", "a/c", "a/b/z", "a/b-", "a0", "A/z", "a_", "b", "B/1/2/3", "a/b.c"}
	for _, key := range all {
		put(t, b, key, key)
	}
	slices.Sort(all)
	if got := list(t, b, ""); !slices.Equal(got, all) {
		t.Errorf("list = %v\nwant   %v", got, all)
	}
	err := b.List(t.Context(), "a", func(i blob.Info) error {
		if i.Size != int64(len(i.Key)) || i.Modified.IsZero() {
			t.Errorf("listed %+v, want size %d and a time", i, len(i.Key))
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

func listStops(t *testing.T, open func(t *testing.T) blob.Bucket) {
	b := open(t)
	for _, key := range []string{"a", "b", "c"} {
		put(t, b, key, key)
	}
	stop := errors.New("enough")
	seen := 0
	err := b.List(t.Context(), "", func(blob.Info) error {
		seen++
		if seen == 2 {
			return stop
		}
		return nil
	})
	if !errors.Is(err, stop) || seen != 2 {
		t.Errorf("list = %v after %d objects, want %v after 2", err, seen, stop)
	}
}

func deletes(t *testing.T, open func(t *testing.T) blob.Bucket) {
	b := open(t)
	put(t, b, "d/a", "a")
	put(t, b, "d/b", "b")
	for range 2 { // the second finds nothing, and that is no error
		if err := b.Delete(t.Context(), "d/a"); err != nil {
			t.Fatal(err)
		}
	}
	for _, key := range []string{"d", "none/of/these"} { // a prefix is no object
		if err := b.Delete(t.Context(), key); err != nil {
			t.Errorf("delete %s: %v", key, err)
		}
	}
	if got := list(t, b, ""); !slices.Equal(got, []string{"d/b"}) {
		t.Errorf("left = %v, want d/b", got)
	}
	if err := b.PutIfAbsent(t.Context(), "d/a", []byte("again")); err != nil {
		t.Errorf("put if absent after delete: %v", err)
	}
	want(t, b, "d/a", "again")
}

func reopen(t *testing.T, open func(t *testing.T) blob.Bucket) {
	first := open(t)
	put(t, first, "r/1", "one")
	if err := first.PutIfAbsent(t.Context(), "r/2", []byte("two")); err != nil {
		t.Fatal(err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	second := open(t)
	want(t, second, "r/1", "one")
	want(t, second, "r/2", "two")
	wantKind(t, "put if absent after reopening", second.PutIfAbsent(t.Context(), "r/2", nil), errs.Conflict)
}

// bodyIsCopied guards callers that pool their buffers.
func bodyIsCopied(t *testing.T, open func(t *testing.T) blob.Bucket) {
	b := open(t)
	body := []byte("before")
	if err := b.Put(t.Context(), "k", body); err != nil {
		t.Fatal(err)
	}
	copy(body, "after!")
	want(t, b, "k", "before")
	got, err := b.Get(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	copy(got, "mine!!")
	want(t, b, "k", "before")
}

func endedContext(t *testing.T, open func(t *testing.T) blob.Bucket) {
	b := open(t)
	put(t, b, "k", "x")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := b.Get(ctx, "k"); !errors.Is(err, context.Canceled) {
		t.Errorf("get with an ended context = %v, want %v", err, context.Canceled)
	}
	if err := b.Put(ctx, "k2", nil); !errors.Is(err, context.Canceled) {
		t.Errorf("put with an ended context = %v, want %v", err, context.Canceled)
	}
}

func put(t *testing.T, b blob.Bucket, key, body string) {
	t.Helper()
	if err := b.Put(t.Context(), key, []byte(body)); err != nil {
		t.Fatalf("put %s: %v", key, err)
	}
}

func want(t *testing.T, b blob.Bucket, key, body string) {
	t.Helper()
	got, err := b.Get(t.Context(), key)
	if err != nil {
		t.Fatalf("get %s: %v", key, err)
	}
	if string(got) != body {
		t.Fatalf("get %s gave %d bytes that differ from the %d stored", key, len(got), len(body))
	}
}

func wantKind(t *testing.T, what string, err error, kind errs.Kind) {
	t.Helper()
	if !errs.Is(err, kind) {
		t.Errorf("%s: error = %v (kind %q), want kind %q", what, err, errs.KindOf(err), kind)
	}
}

func list(t *testing.T, b blob.Bucket, prefix string) []string {
	t.Helper()
	var keys []string
	if err := b.List(t.Context(), prefix, func(i blob.Info) error { keys = append(keys, i.Key); return nil }); err != nil {
		t.Fatalf("list %q: %v", prefix, err)
	}
	return keys
}
