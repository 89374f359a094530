package control

import (
	"context"
	"fmt"
	"time"

	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/model"
)

// nodesReturn is how long after its start a server refuses nothing for want of a
// node that was there before: twice the longest pause between two calls of a
// node that finds no server.
const nodesReturn = 10 * time.Second

// errNodesAway is why a wait for nodes ended without them.
var errNodesAway = errs.New(errs.Unavailable, "nodes that were there before the server started have not called within %s", nodesReturn)

// expect returns the nodes that should call soon: those that were heard until
// the last server ended, and its end is at least when the last of them was
// heard. Who had been silent by then is not waited for.
func expect(nodes []model.Node) map[model.NodeID]bool {
	var end time.Time
	for _, n := range nodes {
		if n.LastSeen.After(end) {
			end = n.LastSeen
		}
	}
	out := map[model.NodeID]bool{}
	for _, n := range nodes {
		if end.Sub(n.LastSeen) < leasePeriod {
			out[n.ID] = true
		}
	}
	return out
}

// arrived notes that a node is there, and wakes who waited for it.
func (c *Control) arrived(id model.NodeID) {
	c.mu.Lock()
	delete(c.expected, id)
	c.mu.Unlock()
	c.changed.broadcast()
}

// away is how many nodes are still expected.
func (c *Control) away() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.expected)
}

// awaitNodes tries until it succeeds, is refused for something that no node can
// change, or every node that is expected has called. Only for want of time it
// is refused while some are away, and says so.
func (c *Control) awaitNodes(ctx context.Context, try func() error) error {
	left := c.began.Add(nodesReturn).Sub(c.cfg.Clock.Now())
	wait, cancel := context.WithTimeoutCause(ctx, max(left, 0), errNodesAway)
	defer cancel()
	for {
		next := c.changed.next()
		away := c.away()
		err := try()
		if !errs.Is(err, errs.Unavailable) && !errs.Is(err, errs.Exhausted) || away == 0 || left <= 0 {
			return err
		}
		select {
		case <-next:
		case <-wait.Done():
			if ctx.Err() != nil {
				return errs.Wrap(errs.Unavailable, context.Cause(ctx), "wait for nodes")
			}
			return fmt.Errorf("%w (%d %w)", err, away, context.Cause(wait))
		}
	}
}
