package control

import (
	"sync"
	"time"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/model"
)

// nodeView is what control remembers of one node between its syncs. There is
// one for each node that the ledger knows, and for each sync that is held.
type nodeView struct {
	seeing sync.Mutex // held while a report is taken in, which is one at a time
	life   string     // whose the newest report is, and its number; of seeing
	report uint64

	syncing    int       // syncs that are held open now
	machine    string    // fingerprint: whose memory the node can restore
	heard      time.Time // when the newest one began or ended
	recorded   time.Time // when SeeNode was last written
	node       model.Node
	observed   map[model.InstanceID]observed // of its newest report
	generation model.Generation
	answer     [32]byte // hash of the newest answer
}

// maxObserved bounds what one node may report at once: each entry is kept, and
// may be a transaction. It is far beyond the guests that a host can run together
// with the remains of ended ones, which the next answer removes.
const maxObserved = 4096

// observed is what a node has said of one instance.
type observed struct {
	volatile
	hash [32]byte  // of what is worth a record
	at   time.Time // when that was recorded
}

// volatile is the part of an observation that only the present needs.
type volatile struct {
	unsaved    int64
	durableAt  time.Time // by our clock
	flushed    uint64    // the newest flushWish that was met
	flushError string
}

// keep forgets what the node does not report any more: a report names all that
// it has.
func (v *nodeView) keep(report []api.ObservedInstance) {
	kept := make(map[model.InstanceID]observed, len(report))
	for _, o := range report {
		if last, ok := v.observed[o.ID]; ok {
			kept[o.ID] = last
		}
	}
	v.observed = kept
}

// seen returns what the node of an instance last said of it; heard is false
// while this server has not heard of it from that node.
func (c *Control) seen(in model.Instance) (v volatile, heard bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.seenLocked(in)
}

func (c *Control) seenLocked(in model.Instance) (v volatile, heard bool) {
	if view := c.nodes[in.Node]; view != nil {
		o, ok := view.observed[in.ID]
		return o.volatile, ok
	}
	return v, false
}

// silentAfter is how long a node may be without a held sync and still be
// placed on: between two syncs there is a moment, and a lost one is retried
// within seconds.
const silentAfter = 8 * time.Second

// hear notes that the node is there, and that it is while its sync is held.
func (c *Control) hear(id model.NodeID) (view *nodeView, done func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if view = c.nodes[id]; view == nil {
		view = &nodeView{}
		c.nodes[id] = view
	}
	view.syncing++
	view.heard = c.cfg.Clock.Now()
	return view, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		view.syncing--
		view.heard = c.cfg.Clock.Now()
		c.letGo(id)
	}
}

// letGo drops the view of a node that the ledger does not know: one that was
// refused, or has been removed. c.mu is held.
func (c *Control) letGo(id model.NodeID) {
	if v := c.nodes[id]; v != nil && v.syncing == 0 && v.recorded.IsZero() {
		delete(c.nodes, id)
	}
}

// silent reports whether a node cannot be placed on: this server holds no sync
// of it and has not for a while. A node of an earlier life of this server
// counts once it has called.
func (c *Control) silent(id model.NodeID, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	v := c.nodes[id]
	return v == nil || v.syncing == 0 && now.Sub(v.heard) > silentAfter
}

// forget makes a node that calls again a new one.
func (c *Control) forget(id model.NodeID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.expected, id)
	if v := c.nodes[id]; v != nil {
		v.node, v.recorded, v.observed = model.Node{}, time.Time{}, nil
		c.letGo(id)
	}
}
