package control

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"slices"
	"time"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/failpoint"
	"github.com/billethq/billet/internal/ledger"
	"github.com/billethq/billet/internal/model"
	"github.com/billethq/billet/internal/road"
)

// flushIntentTTL is how long an upload may take (storage.md: far below the
// garbage collector's grace).
const flushIntentTTL = 2 * time.Hour

// sessionTicketTTL outlives long outages of the control plane: a node with its
// last answer can still open sessions with a gateway.
const sessionTicketTTL = 7 * 24 * time.Hour

// Sync implements api.Plane.
func (c *Control) Sync(ctx context.Context, req api.SyncRequest) (api.SyncResponse, error) {
	if !model.IsID(string(req.Node)) {
		return api.SyncResponse{}, errs.New(errs.Invalid, "node id %q is not an id", req.Node)
	}
	if n := len(req.Observed); n > maxObserved {
		return api.SyncResponse{}, errs.New(errs.Invalid, "a node reports %d instances, at most %d are taken", n, maxObserved).
			WithHint("look at that node: its state directory has the remains of more instances than a host can run")
	}
	view, done := c.hear(req.Node)
	defer done()
	if err := c.see(ctx, view, req); err != nil {
		return api.SyncResponse{}, err
	}
	hold := min(time.Duration(req.WaitMilli)*time.Millisecond, syncHold)
	timer := time.NewTimer(max(hold, 0))
	defer timer.Stop()
	for {
		next := c.changed.next()
		resp, fresh, err := c.answer(ctx, view, req)
		if err != nil || fresh || hold <= 0 {
			return resp, err
		}
		select {
		case <-next:
		case <-timer.C:
			hold = 0
		case <-ctx.Done():
			return api.SyncResponse{}, errs.Wrap(errs.Unavailable, context.Cause(ctx), "sync")
		}
	}
}

// answer computes what the node should be told; fresh says that it differs
// from what the node has.
func (c *Control) answer(ctx context.Context, view *nodeView, req api.SyncRequest) (api.SyncResponse, bool, error) {
	instances, err := c.desired(ctx, req)
	if err != nil {
		return api.SyncResponse{}, false, err
	}
	keys, err := c.cfg.Secrets.DomainKeys(model.DefaultTenant)
	if err != nil {
		return api.SyncResponse{}, false, err
	}
	resp := api.SyncResponse{Instances: instances, Projection: api.Projection{
		Deployment: c.deployment.ID, DomainKeys: keys, Gateways: c.cfg.Gateways,
		TicketKey: c.TicketKey(), FlushEvery: c.cfg.FlushEvery, StopGrace: c.cfg.StopGrace,
	}}
	fresh := c.number(view, req, &resp)
	now := c.cfg.Clock.Now()
	resp.Projection.SessionTicket, err = road.Sign(c.signer, road.Ticket{
		Deployment: c.deployment.ID, Node: req.Node, Target: road.TargetSession, Expires: now.Add(sessionTicketTTL),
	})
	return resp, fresh, err
}

// number gives the answer its generation: a new one whenever its content
// changes or the node has another than the newest.
func (c *Control) number(view *nodeView, req api.SyncRequest, resp *api.SyncResponse) (fresh bool) {
	hash := hashOf(resp)
	now := c.cfg.Clock.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if view.generation == 0 || view.answer != hash || req.Have > view.generation {
		// Microseconds since 1970 keep generations rising over restarts of
		// the server, and a clock that was set back cannot lower them.
		view.generation = max(model.Generation(now.UnixMicro()), view.generation+1, req.Have+1)
		view.answer = hash
	}
	resp.Generation = view.generation
	return req.Have != view.generation
}

// desired lists what should be of the node's live instances, and of those that
// it reports beyond them.
func (c *Control) desired(ctx context.Context, req api.SyncRequest) ([]api.DesiredInstance, error) {
	live, err := c.cfg.Ledger.Instances(ctx, ledger.InstanceFilter{Tenant: ledger.AllTenants, Node: req.Node, Live: true})
	if err != nil {
		return nil, err
	}
	out := make([]api.DesiredInstance, 0, len(live))
	for _, in := range live {
		d, err := c.desiredOf(ctx, in)
		if err != nil {
			return nil, err
		}
		out = append(out, d)
	}
	for _, o := range req.Observed {
		if slices.ContainsFunc(live, func(in model.Instance) bool { return in.ID == o.ID }) {
			continue
		}
		d, err := c.remains(ctx, req.Node, o)
		if err != nil {
			return nil, err
		}
		out = append(out, d)
	}
	return out, nil
}

func (c *Control) desiredOf(ctx context.Context, in model.Instance) (api.DesiredInstance, error) {
	d := api.DesiredInstance{
		ID: in.ID, Desired: in.Desired, Epoch: in.Epoch, Tenant: in.Tenant, SubjectKind: in.SubjectKind,
		Subject: in.Subject, Shape: in.Shape,
	}
	ws, err := c.cfg.Ledger.Workspace(ctx, in.Tenant, string(in.Subject))
	if err != nil {
		return d, err
	}
	d.Name, d.Root, d.Seq = ws.Name, ws.Head, ws.HeadSeq
	if mem := ws.Memory; mem.Root != "" && mem.Until.After(c.cfg.Clock.Now()) {
		d.Memory, d.Fork = mem.Root, ws.HeadSeq == 0
	}
	c.mu.Lock()
	wish := c.flushes[in.ID]
	c.mu.Unlock()
	d.Flush, d.FlushMemory = wish.number, wish.memory
	return d, nil
}

// remains decides over an instance that a node reports and that is not live:
// ended ones are removed, overtaken and unknown ones are fenced, and removed
// once their guest is gone and their overlay is aside.
func (c *Control) remains(ctx context.Context, node model.NodeID, o api.ObservedInstance) (api.DesiredInstance, error) {
	d := api.DesiredInstance{ID: o.ID, Epoch: o.Epoch, Desired: model.InstanceFence}
	in, err := c.cfg.Ledger.Instance(ctx, o.ID)
	switch {
	case errs.Is(err, errs.NotFound):
	case err != nil:
		return d, err
	case in.Cause == model.CauseFenced || in.Cause == model.CauseHostGone: // not its node that proved it gone
	case in.Node == node && in.Epoch == o.Epoch && in.State == model.StateEnded:
		d.Desired = model.InstanceDestroy
		return d, nil
	}
	if o.State == model.StateEnded {
		d.Desired = model.InstanceDestroy
	}
	return d, nil
}

// BeginFlush implements api.Plane.
func (c *Control) BeginFlush(ctx context.Context, req api.BeginFlushRequest) (api.BeginFlushResponse, error) {
	m := c.meta("")
	in, err := c.own(ctx, req.Node, req.Instance, req.Epoch)
	if err != nil {
		return api.BeginFlushResponse{}, err
	}
	if req.Pending != "" {
		ws, err := c.cfg.Ledger.Workspace(ctx, in.Tenant, string(in.Subject))
		if err != nil {
			return api.BeginFlushResponse{}, err
		}
		if ws.Head == req.Pending && ws.Epoch == req.Epoch {
			return api.BeginFlushResponse{Committed: true, Seq: ws.HeadSeq}, nil
		}
	}
	got, err := c.cfg.Ledger.BeginFlush(ctx, m, model.FlushIntent{
		ID: model.IntentID(model.NewID()), Tenant: in.Tenant, Region: in.Region, Instance: in.ID, Subject: in.Subject,
		Epoch: req.Epoch, Base: req.Base, Started: m.Now, Expires: m.Now.Add(flushIntentTTL),
	})
	if err != nil {
		return api.BeginFlushResponse{}, err
	}
	return api.BeginFlushResponse{Intent: got.ID, Seq: got.Seq, Started: got.Started, Expires: got.Expires}, nil
}

// own refuses a node that speaks of an instance which is not its own, or
// under another epoch.
func (c *Control) own(ctx context.Context, node model.NodeID, id model.InstanceID, epoch model.Epoch) (model.Instance, error) {
	in, err := c.cfg.Ledger.Instance(ctx, id)
	if errs.Is(err, errs.NotFound) {
		return in, errs.New(errs.Stale, "instance %s is not known", id)
	}
	if err != nil {
		return in, err
	}
	if in.Node != node || in.Epoch != epoch {
		return in, errs.New(errs.Stale, "instance %s is not node %s's under epoch %d", id, node, epoch)
	}
	return in, nil
}

// CommitFlush implements api.Plane: the commit point of all durable state.
func (c *Control) CommitFlush(ctx context.Context, req api.CommitFlushRequest) (api.CommitFlushResponse, error) {
	m := c.meta("")
	in, err := c.own(ctx, req.Node, req.Instance, req.Epoch)
	if err != nil {
		return api.CommitFlushResponse{}, err
	}
	if err := req.Root.Check(); err != nil {
		return api.CommitFlushResponse{}, err
	}
	memory, err := c.keptMemory(ctx, m.Now, in, req.Memory)
	if err != nil {
		return api.CommitFlushResponse{}, err
	}
	snap, err := c.cfg.Ledger.CommitFlush(ctx, m, req.Intent, req.Instance, model.Snapshot{
		ID: model.SnapshotID(model.NewID()), Tenant: in.Tenant, Region: in.Region, Workspace: model.WorkspaceID(in.Subject),
		Root: req.Root, Parent: req.Base, Epoch: req.Epoch, Seq: req.Seq, Consistency: req.Consistency,
		StoredBytes: req.StoredBytes, WrittenBytes: req.WrittenBytes, Created: m.Now,
		Memory: memory,
	})
	if err != nil {
		return api.CommitFlushResponse{}, err
	}
	failpoint.Reach(failpoint.FlushCommitted)
	c.changed.broadcast()
	return api.CommitFlushResponse{Snapshot: snap.ID}, nil
}

// CommitGeneration implements api.Plane.
func (c *Control) CommitGeneration(ctx context.Context, req api.CommitGenerationRequest) (api.Image, error) {
	if err := model.CheckName("image", req.Image); err != nil {
		return api.Image{}, err
	}
	if err := req.Root.Check(); err != nil {
		return api.Image{}, err
	}
	m := c.meta(req.Principal)
	img := model.Image{
		ID: model.ImageID(model.NewID()), Tenant: model.DefaultTenant, Region: model.DefaultRegion, Owner: req.Owner, Name: req.Image,
		Created: m.Now, Updated: m.Now,
	}
	rec, err := c.cfg.Ledger.CommitGeneration(ctx, m, img, model.ImageGeneration{
		ID: model.GenerationID(model.NewID()), Tenant: img.Tenant, Region: img.Region, Image: img.ID, Root: req.Root, Source: req.Source,
		DiskBytes: req.DiskBytes, UsedBytes: req.UsedBytes, StoredBytes: req.StoredBytes, Created: m.Now,
	})
	if err != nil {
		return api.Image{}, err
	}
	c.changed.broadcast()
	return imageView(rec), nil
}

// hashOf fingerprints a value by its JSON.
func hashOf(v any) [32]byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic("control: value without JSON: " + err.Error()) // our own wire types only
	}
	return sha256.Sum256(b)
}
