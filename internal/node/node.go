// Package node is the agent on a host: it tells the control plane what runs,
// is told what should, and walks each instance there with a supervisor.
//
// A node holds no authority. Whatever it needs to go on after a restart is in
// its directory or in the kernel: the last answer, one record per instance,
// the volume processes and the sandboxes, which outlive it and are adopted.
package node

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/clock"
	"github.com/billethq/billet/internal/driver"
	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/model"
)

// Config is what a node needs.
type Config struct {
	Dir         string // the node's directory
	Name        string
	Version     string
	Plane       api.Plane
	Driver      driver.Driver
	Volumes     Volumes
	Images      ImageBuilder
	GuestBinary string // host path of billet-guest
	Capacity    model.Capacity
	Machine     model.Machine // what memory images of this host are bound to
	Clock       clock.Clock
	Log         *slog.Logger
}

// Node is the agent.
type Node struct {
	cfg    Config
	id     model.NodeID
	bootID string
	life   string        // names this process to control
	wake   chan struct{} // capacity 1: something observed has changed
	// projected has capacity 1: the projection has changed
	projected chan struct{}

	mu          sync.Mutex
	supervisors map[model.InstanceID]*supervisor
	answer      api.SyncResponse // the newest
	heard       bool             // an answer came since this process began
	news        bool             // a held sync was given up for what is to be told now
	reports     uint64           // how many were made
	kept        bool             // the newest answer is on the disk; the sync loop's own
	lastErr     error            // of the newest sync
	ready       chan struct{}    // closed after the first answer
	work        sync.WaitGroup
	images      *imageDoor

	attachWithin time.Duration // attachTimeout, but in tests
}

// New opens the node's directory; Run does the work.
func New(cfg Config) (*Node, error) {
	if cfg.Plane == nil || cfg.Driver == nil || cfg.Volumes == nil || cfg.Clock == nil || cfg.Log == nil {
		return nil, errs.New(errs.Internal, "node: plane, driver, volumes, clock and log are needed")
	}
	for _, d := range []string{"instances", "aside"} {
		if err := os.MkdirAll(filepath.Join(cfg.Dir, d), 0o700); err != nil {
			return nil, errs.Wrap(errs.Internal, err, "create the node's directory")
		}
	}
	id, err := loadIdentity(cfg.Dir)
	if err != nil {
		return nil, err
	}
	boot, err := hostBootID()
	if err != nil {
		return nil, err
	}
	n := &Node{
		cfg: cfg, id: id, bootID: boot, life: model.NewID(), wake: make(chan struct{}, 1), projected: make(chan struct{}, 1), ready: make(chan struct{}),
		supervisors: map[model.InstanceID]*supervisor{}, attachWithin: attachTimeout,
	}
	n.images = newImageDoor(n)
	return n, nil
}

// ID is the node's id, made at its first start.
func (n *Node) ID() model.NodeID { return n.id }

// Ready is closed once the control plane has answered.
func (n *Node) Ready() <-chan struct{} { return n.ready }

// Run works until ctx ends. Guests and volumes run on when it returns.
func (n *Node) Run(ctx context.Context) error {
	if err := n.adopt(ctx); err != nil {
		return err
	}
	n.work.Go(func() { n.images.serve(ctx) })
	n.work.Go(func() { n.keepRoads(ctx) })
	n.syncLoop(ctx)
	n.work.Wait()
	return nil
}

// adopt starts a supervisor for each instance that has a record here, with the
// last answer where it still holds. After a reboot of the host nothing is
// started from that answer: a record of the earlier boot ends as host_rebooted.
func (n *Node) adopt(ctx context.Context) error {
	answer, err := loadAnswer(n.cfg.Dir)
	if err != nil {
		return err
	}
	n.mu.Lock()
	if answer.BootID == n.bootID {
		n.answer = answer.SyncResponse
	} else {
		n.answer.Projection = answer.Projection // policy holds over a reboot; instances do not
	}
	n.mu.Unlock()
	records, err := loadRecords(filepath.Join(n.cfg.Dir, "instances"), n.cfg.Log)
	if err != nil {
		return err
	}
	adopted := make([]*supervisor, 0, len(records))
	for _, r := range records {
		adopted = append(adopted, n.add(r))
	}
	// Told before they run: one that was on its way down would take the guest
	// that it has stopped for one that ended by itself.
	n.apply(ctx, n.answer)
	for _, s := range adopted {
		n.supervise(ctx, s)
	}
	return nil
}

// add makes the supervisor of a record.
func (n *Node) add(r record) *supervisor {
	s := newSupervisor(n, r)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.supervisors[s.id] = s
	return s
}

// supervise runs a supervisor until ctx ends or its instance is removed.
func (n *Node) supervise(ctx context.Context, s *supervisor) {
	n.work.Go(func() {
		s.run(ctx)
		if s.removed {
			n.mu.Lock()
			delete(n.supervisors, s.id)
			n.mu.Unlock()
			n.poke()
		}
	})
}

// apply hands each instance its part of an answer.
func (n *Node) apply(ctx context.Context, a api.SyncResponse) {
	for _, d := range a.Instances {
		n.mu.Lock()
		s := n.supervisors[d.ID]
		n.mu.Unlock()
		switch {
		case s != nil:
			s.tell(d)
		case d.Subject == "": // remains of something that is no longer here
		default:
			n.supervise(ctx, n.add(record{Desired: d, BootID: n.bootID}))
		}
	}
}

// poke makes the sync loop post what is observed now.
func (n *Node) poke() {
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

// observed is the node's whole view.
func (n *Node) observed() []api.ObservedInstance {
	n.mu.Lock()
	all := slices.Collect(maps.Values(n.supervisors))
	n.mu.Unlock()
	out := make([]api.ObservedInstance, 0, len(all))
	for _, s := range all {
		out = append(out, s.observed())
	}
	slices.SortFunc(out, func(a, b api.ObservedInstance) int { return cmp.Compare(a.ID, b.ID) })
	return out
}

// projection returns the newest policy.
func (n *Node) projection() api.Projection {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.answer.Projection
}

// find returns the supervisor of an instance under an epoch.
func (n *Node) find(id model.InstanceID, epoch model.Epoch) (*supervisor, error) {
	n.mu.Lock()
	s := n.supervisors[id]
	n.mu.Unlock()
	if s == nil {
		return nil, errs.New(errs.NotFound, "instance %s is not on node %s", id, n.cfg.Name).WithHint("ask for a new attachment")
	}
	if got := s.epoch(); got != epoch {
		return nil, errs.New(errs.Stale, "instance %s is under epoch %d, not %d", id, got, epoch).WithHint("ask for a new attachment")
	}
	return s, nil
}

// LastError is why the newest sync failed, nil when it went well.
func (n *Node) LastError() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.lastErr
}

// Times of the sync loop.
const (
	syncWait    = 20 * time.Second // how long the server may hold a sync
	syncMargin  = 10 * time.Second // beyond that the connection counts as lost
	syncBackoff = 100 * time.Millisecond
	syncMaxWait = 5 * time.Second
)
