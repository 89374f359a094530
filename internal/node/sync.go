package node

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/clock"
	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/failpoint"
	"github.com/billethq/billet/internal/model"
)

// syncLoop posts what is observed and applies what is answered, until ctx
// ends. A request is held open by the server; it is given up and posted anew
// as soon as something observed changes. Losing the server stops nothing.
func (n *Node) syncLoop(ctx context.Context) {
	wait := syncBackoff
	for ctx.Err() == nil {
		err := n.syncOnce(ctx)
		n.mu.Lock()
		n.lastErr = err
		n.mu.Unlock()
		if err == nil {
			wait = syncBackoff
			continue
		}
		if ctx.Err() != nil {
			return
		}
		n.tellLost(err)
		if clock.Sleep(ctx, clock.Jitter(wait)) != nil {
			return
		}
		wait = min(2*wait, syncMaxWait)
	}
}

// tellLost says that there is no answer, and whether waiting will do.
func (n *Node) tellLost(err error) {
	switch errs.KindOf(err) {
	case errs.Unauthenticated, errs.Denied, errs.Invalid:
		n.cfg.Log.Error("the control plane refuses this node, running on", "err", err, "hint", errs.HintOf(err))
	case errs.NotFound, errs.Conflict, errs.Stale, errs.Exhausted, errs.Unavailable, errs.Unsupported, errs.Internal:
		n.cfg.Log.Warn("control plane unreachable, running on", "err", err)
	}
}

// errPoked says that a held request was given up because there is news.
var errPoked = errs.New(errs.Conflict, "there is something newer to report")

func (n *Node) syncOnce(ctx context.Context) error {
	select {
	case <-n.wake: // what it announced is in the view that is taken now
	default:
	}
	n.mu.Lock()
	have, held := n.answer.Generation, n.heard && !n.news
	n.news = false
	n.reports++
	number := n.reports
	n.mu.Unlock()
	req := api.SyncRequest{
		Node: n.id, Name: n.cfg.Name, BootID: n.bootID, Version: n.cfg.Version, Driver: n.cfg.Driver.Name(),
		Capacity: n.cfg.Capacity, Machine: n.cfg.Machine.Fingerprint(), Observed: n.observed(), Have: have, WaitMilli: syncWait.Milliseconds(),
		Life: n.life, Report: number,
	}
	if !held {
		// Learn at once whether anybody is there; and what is news is told in
		// a request that no later news ends, or a busy node would be heard
		// and never hear.
		req.WaitMilli = 0
	}
	resp, err := n.post(ctx, req)
	if ctx.Err() == nil && err == error(errPoked) {
		n.mu.Lock()
		n.news = true
		n.mu.Unlock()
		return nil
	}
	if err != nil {
		return err
	}
	return n.accept(ctx, named(resp, req), have)
}

// named adds what was reported and the answer does not name: unknown is never
// absent, so it is fenced and its overlay kept.
func named(resp api.SyncResponse, req api.SyncRequest) api.SyncResponse {
	for _, o := range req.Observed {
		if !slices.ContainsFunc(resp.Instances, func(d api.DesiredInstance) bool { return d.ID == o.ID }) {
			resp.Instances = append(resp.Instances, api.DesiredInstance{ID: o.ID, Epoch: o.Epoch, Desired: model.InstanceFence})
		}
	}
	return resp
}

// post sends one sync, and gives one that is held up when there is news.
func (n *Node) post(ctx context.Context, req api.SyncRequest) (api.SyncResponse, error) {
	limit := time.Duration(req.WaitMilli)*time.Millisecond + syncMargin
	ctx, cancel := context.WithTimeoutCause(ctx, limit, errs.New(errs.Unavailable, "no answer within %s", limit))
	defer cancel()
	ctx, giveUp := context.WithCancelCause(ctx)
	done := make(chan struct{})
	defer func() { giveUp(nil); <-done }()
	go func() {
		defer close(done)
		wake := n.wake
		if req.WaitMilli == 0 {
			wake = nil
		}
		select {
		case <-wake:
			giveUp(errPoked)
			n.poke() // for the next round
		case <-ctx.Done():
		}
	}()
	resp, err := n.cfg.Plane.Sync(ctx, req)
	if err != nil && context.Cause(ctx) == error(errPoked) {
		return resp, errPoked
	}
	return resp, err
}

// accept takes an answer: to the disk first, so that a node that restarts
// continues from what it was told, then to the supervisors.
func (n *Node) accept(ctx context.Context, resp api.SyncResponse, have model.Generation) error {
	if resp.Generation < have {
		// An error, so that the next request waits a little: whoever gives it
		// may give it without end.
		return errs.New(errs.Stale, "answer of generation %d ignored, the node has %d", resp.Generation, have)
	}
	n.mu.Lock()
	old := n.answer
	n.mu.Unlock()
	if !n.kept || resp.Generation != old.Generation {
		// A disk too full for the answer is no reason not to obey it: it may
		// order what makes room.
		err := saveAnswer(n.cfg.Dir, answerFile{BootID: n.bootID, SyncResponse: resp})
		if err != nil {
			// An older one must not start again what has been removed since:
			// without any, a restart goes on from the instances' own records.
			_ = os.Remove(filepath.Join(n.cfg.Dir, desiredFile))
			n.cfg.Log.Error("answer not kept: a restart of the node goes on from its instances' records", "err", err)
		}
		n.kept = err == nil
	}
	n.mu.Lock()
	n.answer = resp
	first := !n.heard
	n.heard = true
	n.mu.Unlock()
	if first {
		close(n.ready)
	}
	select {
	case n.projected <- struct{}{}:
	default:
	}
	reachAccepted(old, resp)
	n.apply(ctx, resp)
	return nil
}

// reachAccepted tells the fault tests that an order is on the node's disk.
func reachAccepted(old, now api.SyncResponse) {
	before := map[model.InstanceID]model.InstanceDesired{}
	for _, d := range old.Instances {
		before[d.ID] = d.Desired
	}
	for _, d := range now.Instances {
		if before[d.ID] == d.Desired {
			continue
		}
		switch d.Desired {
		case model.InstanceRun:
			failpoint.Reach(failpoint.CreateAccepted)
		case model.InstanceStop, model.InstanceHibernate:
			failpoint.Reach(failpoint.StopAccepted)
		case model.InstanceDestroy, model.InstanceFence:
		}
	}
}
