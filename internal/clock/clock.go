// Package clock is the one source of time.
//
// Code that waits or stamps takes a Clock, so that a test can own time; tests
// of goroutines use testing/synctest, which makes Real virtual.
package clock

import (
	"context"
	"math/rand/v2"
	"time"
)

// Clock tells the time.
type Clock interface {
	Now() time.Time
}

// Real is the machine's clock, in UTC and without a monotonic reading, so that
// what is stored equals what is read back.
type Real struct{}

// Now returns the present time in UTC, truncated to microseconds: the
// precision that every ledger keeps.
func (Real) Now() time.Time { return time.Now().UTC().Truncate(time.Microsecond) }

// Stopwatch measures how long something takes, by the machine's monotonic
// clock: setting the time of day does not change what it shows. It is not safe
// for concurrent use.
type Stopwatch struct{ began, lap time.Time }

// Start starts a stopwatch.
func Start() *Stopwatch {
	now := time.Now()
	return &Stopwatch{began: now, lap: now}
}

// Elapsed returns the time since the start.
func (s *Stopwatch) Elapsed() time.Duration { return time.Since(s.began) }

// Lap returns the time since the start or the lap before, and begins the next.
func (s *Stopwatch) Lap() time.Duration {
	now := time.Now()
	took := now.Sub(s.lap)
	s.lap = now
	return took
}

// Jitter returns d varied by up to a fifth in each direction, so that loops
// which started together do not stay together.
func Jitter(d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	return d - d/5 + rand.N(2*(d/5)+1)
}

// Sleep waits for d or until ctx ends, and reports ctx's cause in that case.
func Sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}
