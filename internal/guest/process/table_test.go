package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	pb "github.com/billethq/billet/internal/guest/processpb"
)

// ended puts a process into t as if it had run and ended.
func ended(t *testing.T, tab *table, pid uint32, tag string, bytes int) *proc {
	t.Helper()
	p := &proc{pid: pid, tag: tag, ready: make(chan struct{}), table: tab, in: newInput(nil)}
	p.out = newOutput(func() { tab.saw(p) })
	if err := tab.reserve(p, true); err != nil {
		t.Fatal(err)
	}
	tab.add(p)
	p.out.append(stdout, make([]byte, bytes))
	p.out.finish(&pb.ProcessEvent_EndEvent{})
	tab.end(p)
	tab.release()
	return p
}

func TestTable_RemembersEndsForAWhile(t *testing.T) {
	now := time.Unix(0, 0)
	tab := newTable(func() time.Time { return now })
	first := ended(t, tab, 7, "first", 1)
	now = now.Add(endedFor)
	ended(t, tab, 8, "second", 1)
	if tab.byTag("first") != first || tab.byPID(7) != first {
		t.Error("forgotten too early")
	}
	if err := tab.reserve(&proc{tag: "first"}, true); !errors.Is(err, errTag) {
		t.Errorf("a used tag: %v, want a refusal", err)
	}
	now = now.Add(time.Second)
	if tab.byTag("first") != nil || tab.byPID(7) != nil || tab.byTag("second") == nil {
		t.Error("remembered too long, or the wrong one")
	}
}

func TestTable_BoundsWhatItRemembers(t *testing.T) {
	tab := newTable(time.Now)
	const size = 1 << 20
	for i := range maxEnded + 10 {
		bytes := 0
		if i >= maxEnded-10 {
			bytes = size
		}
		ended(t, tab, uint32(i+1), fmt.Sprint("tag", i), bytes)
	}
	if len(tab.ended) != maxEnded || len(tab.tags) != maxEnded || tab.byTag("tag9") != nil || tab.byTag("tag10") == nil {
		t.Errorf("%d ended, %d tags; want %d, and the oldest gone", len(tab.ended), len(tab.tags), maxEnded)
	}
	kept := 0
	for _, p := range tab.ended {
		kept += p.out.size()
	}
	if kept != maxEndedBytes || tab.bytes != kept {
		t.Errorf("%d bytes of output kept, counted as %d; want %d", kept, tab.bytes, maxEndedBytes)
	}
	// The newest keeps its output, the oldest that had some says that it is gone.
	if _, err := tab.ended[maxEnded-1].out.attach("", 0); err != nil {
		t.Errorf("the newest: %v", err)
	}
	if _, err := tab.ended[maxEnded-20].out.attach("", 0); !errors.Is(err, errGap) {
		t.Errorf("the oldest: %v, want a gap", err)
	}
	tab.saw(tab.ended[maxEnded-1])
	if tab.bytes != maxEndedBytes-size {
		t.Errorf("%d bytes counted after one end was seen", tab.bytes)
	}
}

func TestTable_BoundsWhatRuns(t *testing.T) {
	tab := newTable(time.Now)
	for range maxProcesses {
		if err := tab.reserve(&proc{ready: make(chan struct{})}, false); err != nil {
			t.Fatal(err)
		}
	}
	p := &proc{ready: make(chan struct{})}
	if err := tab.reserve(p, false); !errors.Is(err, errFull) {
		t.Errorf("one too many: %v", err)
	}
	tab.release()
	if err := tab.reserve(p, false); err != nil {
		t.Errorf("after a release: %v", err)
	}
	tab.refuse()
	tab.release()
	if err := tab.reserve(p, false); !errors.Is(err, errEnding) {
		t.Errorf("when the guest ends: %v", err)
	}
}

func TestTable_FailedStartFreesItsTag(t *testing.T) {
	tab := newTable(time.Now)
	p := &proc{tag: "x", ready: make(chan struct{})}
	if err := tab.reserve(p, true); err != nil {
		t.Fatal(err)
	}
	tab.fail(p)
	<-p.ready
	if !p.failed || tab.byTag("x") != nil || tab.tracked != 0 {
		t.Error("a failed start left something")
	}
}

func TestInput_RepeatedCallsFeedOnce(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	in := newInput(w)
	ctx := context.Background()
	for _, c := range []struct {
		at   int64
		data string
		err  error
	}{{0, "abc", nil}, {0, "abc", nil}, {1, "bcd", nil}, {2, "", nil}, {5, "x", errInputSkip}, {-1, "e", nil}, {5, "f", nil}} {
		if err := in.write(ctx, c.at, []byte(c.data)); !errors.Is(err, c.err) {
			t.Errorf("%q at %d: %v, want %v", c.data, c.at, err, c.err)
		}
	}
	if err := in.end(ctx); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 10)
	n, _ := r.Read(got)
	if string(got[:n]) != "abcdef" {
		t.Errorf("the process got %q", got[:n])
	}
	if err := in.write(ctx, 5, []byte("f")); err != nil {
		t.Errorf("a repeated call after the end: %v", err)
	}
	if err := in.write(ctx, -1, []byte("g")); !errors.Is(err, errNoInput) {
		t.Errorf("input after the end: %v", err)
	}
}

func TestInput_GivenUpWriteCountsWhatWasTaken(t *testing.T) {
	fd, w, err := pipe("stdin", true)
	if err != nil {
		t.Fatal(err)
	}
	r := os.NewFile(uintptr(fd), "child")
	defer r.Close()
	in := newInput(w)
	data := make([]byte, 1<<20) // more than a pipe holds
	for i := range data {
		data[i] = byte(i / 4096)
	}
	ctx, cancel := context.WithCancel(context.Background())
	got := make([]byte, 1, len(data))
	go func() { _, _ = r.Read(got); cancel() }() // once the write is under way
	if err := in.write(ctx, 0, data); !errors.Is(err, context.Canceled) {
		t.Fatalf("a write that nobody reads: %v", err)
	}
	if in.offset == 0 || in.offset >= int64(len(data)) {
		t.Fatalf("%d bytes counted as taken", in.offset)
	}
	go func() { _ = in.write(context.Background(), 0, data); _ = in.end(context.Background()) }()
	buf := make([]byte, 64<<10)
	for {
		n, err := r.Read(buf)
		got = append(got, buf[:n]...)
		if err != nil {
			break
		}
	}
	if string(got) != string(data) {
		t.Errorf("the process got %d bytes, not the %d once", len(got), len(data))
	}
}
