package drivertest

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/billethq/billet/internal/driver"
	"github.com/billethq/billet/internal/errs"
)

var prepare = map[string]func(*testing.T, Harness){
	"WaitsForTheRoot":    prepareWaits,
	"DroppedLeavesNone":  prepareDropped,
	"EndsWithContext":    prepareEnds,
	"NotWhatRuns":        prepareRunning,
	"NotWithoutItsPaths": prepareMissing,
}

// prepared begins the fixture's guest.
func (f *fixture) prepared(ctx context.Context) driver.Prepared {
	f.Helper()
	d, ok := f.d.(driver.Preparer)
	if !ok {
		f.Skip("the driver prepares nothing")
	}
	p, err := d.Prepare(ctx, f.spec)
	if err != nil {
		f.Fatalf("prepare: %v", err)
	}
	return p
}

// The content of the root file system comes after Prepare and before Start.
func prepareWaits(t *testing.T, h Harness) {
	f := newFixture(t, h)
	away := t.TempDir()
	move := func(from, to string) {
		t.Helper()
		entries, err := os.ReadDir(from)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if err := os.Rename(filepath.Join(from, e.Name()), filepath.Join(to, e.Name())); err != nil {
				t.Fatal(err)
			}
		}
	}
	move(f.spec.RootFS, away)
	p := f.prepared(f.ctx())
	move(away, f.spec.RootFS)
	if err := p.Start(f.ctx()); err != nil {
		t.Fatalf("start: %v", err)
	}
	f.accept()
	f.wantState(driver.Running)
	if got := f.ask(request{Op: "ping"}); got != "pong" {
		t.Errorf("ping: got %q", got)
	}
}

func prepareDropped(t *testing.T, h Harness) {
	f := newFixture(t, h)
	f.prepared(f.ctx()).Drop()
	f.wantState(driver.Absent)
	f.start()
	if got := f.ask(request{Op: "ping"}); got != "pong" {
		t.Errorf("ping after a start that was given up: got %q", got)
	}
}

// What ends while it waits, and what is started too late, runs no more.
func prepareEnds(t *testing.T, h Harness) {
	f := newFixture(t, h)
	ctx, cancel := context.WithCancel(f.ctx())
	p := f.prepared(ctx)
	cancel()
	if err := p.Start(f.ctx()); err == nil {
		t.Error("a start that ended before it was let through: got no error")
	}
	f.wantState(driver.Absent)
}

func prepareRunning(t *testing.T, h Harness) {
	f := newFixture(t, h)
	d, ok := f.d.(driver.Preparer)
	if !ok {
		t.Skip("the driver prepares nothing")
	}
	f.start()
	if _, err := d.Prepare(f.ctx(), f.spec); !errs.Is(err, errs.Conflict) {
		t.Errorf("prepare of what runs: got %v, want conflict", err)
	}
	if got := f.ask(request{Op: "ping"}); got != "pong" {
		t.Errorf("ping: got %q", got)
	}
}

func prepareMissing(t *testing.T, h Harness) {
	f := newFixture(t, h)
	f.spec.GuestBinary = filepath.Join(t.TempDir(), "none")
	if err := f.prepared(f.ctx()).Start(f.ctx()); !errs.Is(err, errs.NotFound) {
		t.Errorf("start without a guest agent: got %v, want not_found", err)
	}
	f.wantState(driver.Absent)
}
