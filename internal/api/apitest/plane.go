package apitest

import (
	"context"
	"time"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/model"
)

// Sync implements api.Plane: it answers at once, unless the node has generation
// 1 and may wait; then when ctx ends or something changes.
func (f *Fake) Sync(ctx context.Context, req api.SyncRequest) (api.SyncResponse, error) {
	err := f.enter("Sync", req.Node, req.Have)
	next := f.changed
	f.mu.Unlock()
	if err != nil {
		return api.SyncResponse{}, err
	}
	if req.Have == 1 && req.WaitMilli > 0 {
		select {
		case <-next:
		case <-ctx.Done():
			return api.SyncResponse{}, errs.Wrap(errs.Unavailable, context.Cause(ctx), "sync")
		}
	}
	res := api.SyncResponse{Generation: 1, Projection: api.Projection{
		Deployment: ID("d"), TicketKey: make([]byte, 32), FlushEvery: 5 * time.Minute, StopGrace: 10 * time.Second,
	}}
	for _, o := range req.Observed {
		res.Instances = append(res.Instances, api.DesiredInstance{ID: o.ID, Epoch: o.Epoch, Desired: model.InstanceFence})
	}
	return res, nil
}

// BeginFlush implements api.Plane; an epoch of 1 has been overtaken.
func (f *Fake) BeginFlush(_ context.Context, req api.BeginFlushRequest) (api.BeginFlushResponse, error) {
	defer f.mu.Unlock()
	if err := f.enter("BeginFlush", req.Instance); err != nil {
		return api.BeginFlushResponse{}, err
	}
	if req.Epoch == 1 {
		return api.BeginFlushResponse{}, errs.New(errs.Stale, "instance %s is overtaken", req.Instance)
	}
	return api.BeginFlushResponse{Intent: model.IntentID(ID("f")), Seq: 3, Started: now, Expires: now.Add(time.Hour)}, nil
}

// CommitFlush implements api.Plane.
func (f *Fake) CommitFlush(_ context.Context, req api.CommitFlushRequest) (api.CommitFlushResponse, error) {
	defer f.mu.Unlock()
	return api.CommitFlushResponse{Snapshot: model.SnapshotID(ID("s"))}, f.enter("CommitFlush", req.Intent)
}

// CommitGeneration implements api.Plane.
func (f *Fake) CommitGeneration(_ context.Context, req api.CommitGenerationRequest) (api.Image, error) {
	defer f.mu.Unlock()
	if err := f.enter("CommitGeneration", req.Image); err != nil {
		return api.Image{}, err
	}
	i := image(req.Image, req.Source)
	f.images = append(f.images, i)
	return i, nil
}
