package node

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"time"

	"github.com/hashicorp/yamux"

	"github.com/billethq/billet/internal/driver"
	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/guest"
	"github.com/billethq/billet/internal/guest/guestpath"
	"github.com/billethq/billet/internal/model"
)

// fakeGuest is a guest in memory, which outlives the node that started it.
type fakeGuest struct {
	running bool
	paused  bool
	ram     string // what its memory holds
	exit    driver.Exit
	ended   chan struct{}
	ns      string // of the volume process it stands on
	mute    bool   // its agent never calls
	there   bool   // not yet deleted
	starts  int    // how often it came up
	stops   []time.Duration
	onStart func() error // refuses a start
	onStop  func() error // refuses a stop

	onCheckpoint, onRestore func() error // refuse those
}

// guest returns the guest of an instance; the caller holds mu.
func (w *world) guest(id model.InstanceID) *fakeGuest {
	g := w.guests[id]
	if g == nil {
		g = &fakeGuest{}
		w.guests[id] = g
	}
	return g
}

// driverView is the driver as one life of the node sees it.
type driverView struct{ l *life }

func (v driverView) Name() model.DriverName { return model.DriverGVisor }

func (v driverView) Probe(context.Context) (driver.Boundary, error) { return driver.Boundary{}, nil }

// Start implements driver.Driver.
func (v driverView) Start(ctx context.Context, spec driver.Spec) error {
	return v.start(ctx, "Start", spec, func() (string, error) { return "", nil })
}

// start brings the guest up with what memory gives for its own.
func (v driverView) start(ctx context.Context, call string, spec driver.Spec, memory func() (string, error)) error {
	w := v.l.w
	return v.l.call(ctx, call, func() error {
		g, vol := w.guest(spec.ID), w.volumes[spec.ID]
		if g.onStart != nil {
			if err := g.onStart(); err != nil {
				return err
			}
		}
		if g.running {
			return nil
		}
		if vol == nil || !vol.mounted || vol.ns() != spec.MountNS {
			return errs.New(errs.Internal, "no root file system in %s", spec.MountNS)
		}
		if g.there {
			w.violate("start over the remains of a guest")
		}
		ram, err := memory()
		if err != nil {
			return err
		}
		g.running, g.there, g.ns, g.exit, g.ended = true, true, spec.MountNS, driver.Exit{}, make(chan struct{})
		g.ram, g.paused = ram, false
		g.starts++
		if !g.mute {
			id, ended := spec.ID, g.ended
			w.running.Go(func() { w.agent(id, ended) })
		}
		return nil
	})
}

// agent dials the node as the guest agent does, for ever.
func (w *world) agent(id model.InstanceID, ended <-chan struct{}) {
	again := time.NewTicker(2 * time.Millisecond)
	defer again.Stop()
	for {
		select {
		case <-ended:
			return
		case <-again.C:
		}
		conn, err := net.Dial("unix", filepath.Join(w.instanceDir(id), "side", guestpath.AgentSocket))
		if err != nil {
			continue
		}
		cfg := yamux.DefaultConfig()
		cfg.LogOutput = io.Discard
		s, err := yamux.Server(conn, cfg)
		if err != nil {
			panic(err) // our own configuration
		}
		go w.serveAgent(s)
		select {
		case <-ended:
		case <-s.CloseChan():
		}
		_ = s.Close()
	}
}

// serveAgent answers what a node asks a guest, until the session ends.
func (w *world) serveAgent(s *yamux.Session) {
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+guest.SyncPath, func(r http.ResponseWriter, _ *http.Request) { r.WriteHeader(http.StatusNoContent) })
	mux.HandleFunc("POST "+guest.ResumedPath, func(r http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(r).Encode(guest.ResumeReport{Now: time.Now()})
	})
	_ = http.Serve(s, mux)
}

// Inspect implements driver.Driver.
func (v driverView) Inspect(ctx context.Context, ref driver.Ref) (st driver.Status, err error) {
	err = v.l.call(ctx, "Inspect", func() error {
		g := v.l.w.guest(ref.ID)
		switch {
		case g.running:
			st.State = driver.Running
		case g.there:
			st = driver.Status{State: driver.Exited, Exit: g.exit}
		default:
			st.State = driver.Absent
		}
		return nil
	})
	return st, err
}

// Wait implements driver.Driver.
func (v driverView) Wait(ctx context.Context, ref driver.Ref) (exit driver.Exit, err error) {
	w := v.l.w
	if err := w.hold(ctx, func() bool { return v.l.dead || !w.guest(ref.ID).running }); err != nil {
		return exit, err
	}
	err = v.l.call(ctx, "Wait", func() error { exit = w.guest(ref.ID).exit; return nil })
	return exit, err
}

// Stop implements driver.Driver.
func (v driverView) Stop(ctx context.Context, ref driver.Ref, grace time.Duration) error {
	w := v.l.w
	return v.l.call(ctx, "Stop", func() error {
		g := w.guest(ref.ID)
		if g.onStop != nil {
			if err := g.onStop(); err != nil {
				return err
			}
		}
		g.stops = append(g.stops, grace)
		g.end(driver.Exit{Cause: model.CauseKilled})
		return nil
	})
}

// Delete implements driver.Driver.
func (v driverView) Delete(ctx context.Context, ref driver.Ref) error {
	return v.l.call(ctx, "Delete", func() error {
		g := v.l.w.guest(ref.ID)
		g.end(driver.Exit{Cause: model.CauseKilled})
		g.there = false
		return nil
	})
}

func (g *fakeGuest) end(exit driver.Exit) {
	if g.running {
		g.running, g.exit = false, exit
		close(g.ended)
	}
}

// exitGuest ends the guest by itself.
func (w *world) exitGuest(id model.InstanceID, exit driver.Exit) {
	w.change(func() { w.guest(id).end(exit) })
}

func (w *world) endGuests() {
	w.change(func() {
		for _, g := range w.guests {
			g.end(driver.Exit{})
		}
	})
}

func (w *world) starts(id model.InstanceID) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.guest(id).starts
}
