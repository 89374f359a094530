package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/billethq/billet/internal/clock"
	"github.com/billethq/billet/internal/failpoint"
	"github.com/billethq/billet/internal/model"
	"github.com/billethq/billet/internal/volume"
	"github.com/billethq/billet/internal/volume/device"
	"github.com/billethq/billet/internal/volume/fusedev"
	"github.com/billethq/billet/internal/volume/mount"
	"github.com/billethq/billet/internal/volume/protocol"
)

// stack is what a volume is made of, in the order of opening. close undoes it
// in reverse.
type stack struct{ undo []func() error }

func (s *stack) push(fn func() error) { s.undo = append(s.undo, fn) }

func (s *stack) close() error {
	var err error
	for i := len(s.undo) - 1; i >= 0; i-- {
		err = errors.Join(err, s.undo[i]())
	}
	s.undo = nil
	return err
}

// start opens, serves and mounts the volume. When it fails nothing is left but
// the overlay, as it was last flushed.
func start(ctx context.Context, cfg protocol.Config, open OpenBucket, mounter *mount.Mounting, log *slog.Logger) (*server, []protocol.Step, error) {
	s := &server{cfg: cfg, place: protocol.Place(cfg.Dir), mounter: mounter, log: log, faults: newFaults(), closed: make(chan struct{})}
	steps := &stepper{watch: clock.Start()}
	if err := s.open(ctx, open, steps); err != nil {
		if damaged := s.damaged.Load(); damaged != nil {
			err = fmt.Errorf("%w: %w", err, damaged) // why the kernel could not mount what it read
		}
		return nil, nil, errors.Join(err, s.parts.close())
	}
	return s, steps.steps, nil
}

// stepper takes the time of each step.
type stepper struct {
	watch *clock.Stopwatch
	steps []protocol.Step
}

func (s *stepper) done(name string) { s.add(name, s.watch.Lap()) }

func (s *stepper) add(name string, took time.Duration) {
	s.steps = append(s.steps, protocol.Step{Name: name, Took: took})
}

func (s *server) open(ctx context.Context, bucket OpenBucket, steps *stepper) error {
	if err := s.place.Make(); err != nil {
		return err
	}
	lock, err := s.place.Lock()
	if err != nil {
		return err
	}
	s.parts.push(lock.Close)
	// A process that served this volume before may have been killed.
	if err := s.mounter.Recover(ctx, protocol.Tag(s.cfg.Instance)); err != nil {
		return fmt.Errorf("recover what a former process left: %w", err)
	}
	steps.done("prepare")
	if err := s.openDevice(ctx, bucket); err != nil {
		return err
	}
	steps.done("open")
	if err := s.mount(ctx, steps); err != nil {
		return err
	}
	return s.identify()
}

func (s *server) openDevice(ctx context.Context, open OpenBucket) error {
	bucket, err := open(s.cfg.Store)
	if err != nil {
		return err
	}
	s.parts.push(bucket.Close)
	domains, err := s.domains()
	if err != nil {
		return err
	}
	if s.store, err = volume.NewStore(volume.StoreConfig{Bucket: bucket, Domains: domains}); err != nil {
		return err
	}
	s.cache, err = volume.OpenCache(volume.CacheConfig{
		Dir: s.cfg.Cache.Dir, MaxBytes: s.cfg.Cache.MaxBytes, KeepFree: s.cfg.Cache.KeepFree, Domains: domains, Log: s.log,
	})
	if err != nil {
		return err
	}
	s.parts.push(s.cache.Close)
	if s.fetcher, err = volume.NewFetcher(volume.FetcherConfig{Store: s.store, Cache: s.cache}); err != nil {
		return err
	}
	s.parts.push(s.fetcher.Close)
	s.watch = newWatch(s)
	s.parts.push(s.watch.close)
	s.dev, err = device.Open(ctx, device.Config{
		Dir: s.place.OverlayDir(), Root: s.cfg.Root, Size: s.cfg.Size,
		Store: s.store, Cache: s.cache, Fetcher: s.fetcher, OnError: s.deviceError, Log: s.log,
	})
	if err != nil {
		return err
	}
	s.parts.push(s.dev.Close)
	return nil
}

func (s *server) domains() (*volume.Domains, error) {
	var tenant, deployment model.DomainKey
	for _, k := range s.cfg.DomainKeys {
		switch k.Domain {
		case string(s.cfg.Tenant):
			tenant = k
		case model.DeploymentDomain:
			deployment = k
		}
	}
	return volume.NewDomains(tenant, deployment)
}

func (s *server) mount(ctx context.Context, steps *stepper) error {
	s.room = newRoom(s.dev)
	file, err := fusedev.Serve(s.place.DeviceDir(), s.room, s.log)
	if err != nil {
		return err
	}
	s.parts.push(file.Close)
	idle := s.dev.Clean()
	steps.done("serve")
	failpoint.Reach(failpoint.CreateVolume)
	ns, made, err := s.mounter.Mount(ctx, mount.MountRequest{
		Disk: file.Path(), Dir: s.place.RootFS(), Tag: protocol.Tag(s.cfg.Instance), Size: s.cfg.Size,
		Grow: s.dev.Fresh(),
	})
	if err != nil {
		return err
	}
	s.parts.push(ns.Close)
	s.ns.Store(ns)
	s.parts.push(func() error {
		s.room.end()
		return s.unmountDisk(context.Background())
	})
	steps.add("attach", made.Attach)
	steps.add("grow", made.Grow)
	steps.add("mount", made.Mount)
	steps.watch.Lap()
	s.process.Loop = made.Loop
	switch {
	case s.dev.Fresh():
		if err := s.dev.Begin(); err != nil {
			return err
		}
		steps.done("begin")
	case idle: // opened again before anything was written
		s.dev.Settle()
	}
	s.room.guest.Store(true)
	failpoint.Reach(failpoint.CreateMounted)
	return nil
}

// identify says who this process is, for the node that adopts it.
func (s *server) identify() error {
	start, err := protocol.ProcessStart(os.Getpid())
	if err != nil {
		return err
	}
	boot, err := protocol.BootID()
	if err != nil {
		return err
	}
	s.process = protocol.Process{
		Version: protocol.Version, Instance: s.cfg.Instance, PID: os.Getpid(), Start: start, BootID: boot,
		Loop: s.process.Loop, MountNS: s.ns.Load().Path(), RootFS: s.place.RootFS(),
	}
	return s.place.Record(s.process)
}
