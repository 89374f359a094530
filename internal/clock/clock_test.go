package clock_test

import (
	"context"
	"errors"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/billethq/billet/internal/clock"
)

func TestReal_ReadsBackAsItWasStored(t *testing.T) {
	now := clock.Real{}.Now()
	back, err := time.Parse(time.RFC3339Nano, now.Format(time.RFC3339Nano))
	if err != nil {
		t.Fatal(err)
	}
	// == and not Equal: a monotonic reading or a zone would make records differ.
	if back.UTC() != now {
		t.Errorf("stored %#v, read %#v", now, back)
	}
	if now != time.UnixMicro(now.UnixMicro()).UTC() {
		t.Errorf("%v is finer than a microsecond", now)
	}
}

func TestJitter_StaysWithinAFifth(t *testing.T) {
	for _, d := range []time.Duration{1, 4, 5, time.Second, time.Hour, math.MaxInt64 / 2} {
		for range 1000 {
			if got := clock.Jitter(d); got < d-d/5 || got > d+d/5 {
				t.Fatalf("Jitter(%d) = %d", d, got)
			}
		}
	}
	for _, d := range []time.Duration{0, -time.Second} {
		if got := clock.Jitter(d); got != 0 {
			t.Errorf("Jitter(%s) = %s, want 0", d, got)
		}
	}
}

func TestJitter_Varies(t *testing.T) {
	seen := map[time.Duration]bool{}
	for range 100 {
		seen[clock.Jitter(time.Hour)] = true
	}
	if len(seen) < 2 {
		t.Error("a hundred waits are the same: loops that start together stay together")
	}
}

func TestSleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		if err := clock.Sleep(t.Context(), time.Hour); err != nil || time.Since(start) != time.Hour {
			t.Errorf("slept %s with error %v, want an hour", time.Since(start), err)
		}
		why := errors.New("the node is draining")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Minute, func() { cancel(why) })
		start = time.Now()
		if err := clock.Sleep(ctx, time.Hour); !errors.Is(err, why) || time.Since(start) != time.Minute {
			t.Errorf("slept %s with error %v, want a minute and %v", time.Since(start), err, why)
		}
	})
}

func TestStopwatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		watch := clock.Start()
		for _, want := range []time.Duration{time.Minute, time.Second} {
			time.Sleep(want)
			if got := watch.Lap(); got != want {
				t.Errorf("lap %s, want %s", got, want)
			}
		}
		if got := watch.Elapsed(); got != time.Minute+time.Second {
			t.Errorf("elapsed %s, want a minute and a second", got)
		}
	})
}
