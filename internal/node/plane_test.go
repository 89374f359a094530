package node

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/model"
)

// instance is what the fake control plane records of one.
type instance struct {
	want   api.DesiredInstance
	live   bool
	cause  model.Cause
	seq    model.Seq
	head   model.Root
	ended  int        // how often the report ended was the first
	memory model.Root // taken at head
}

// plane is a control plane in memory that can be scripted to misbehave. The
// world's lock guards it.
type plane struct {
	generation model.Generation
	instances  map[model.InstanceID]*instance
	observed   []api.ObservedInstance // of the newest sync
	requests   []api.SyncRequest
	commits    []api.CommitFlushRequest
	begins     []api.BeginFlushRequest
	images     []api.CommitGenerationRequest
	intents    map[model.IntentID]api.BeginFlushRequest
	flushEvery time.Duration
	gateways   []api.Gateway

	down     bool                                               // nobody answers
	bend     func(*api.SyncResponse)                            // alters an answer
	onSync   func(api.SyncRequest) error                        // refuses one
	onBegin  func(*api.BeginFlushResponse) error                // alters or refuses one
	onCommit func(api.CommitFlushRequest) (before, after error) // refuses a commit, or loses its answer
}

var errDown = errs.New(errs.Unavailable, "connection refused")

// planeView is the plane as one life of the node sees it.
type planeView struct{ l *life }

// Sync implements api.Plane as control does: it records, and holds the answer
// until there is another than the node has.
func (v planeView) Sync(ctx context.Context, req api.SyncRequest) (api.SyncResponse, error) {
	w, p := v.l.w, &v.l.w.plane
	err := v.l.call(ctx, "Sync", func() error {
		if p.down {
			return errDown
		}
		if p.onSync != nil {
			if err := p.onSync(req); err != nil {
				return err
			}
		}
		p.observe(req)
		return nil
	})
	if err != nil {
		return api.SyncResponse{}, err
	}
	hold, stop := context.WithTimeoutCause(ctx, time.Duration(req.WaitMilli)*time.Millisecond, errHeld)
	defer stop()
	var resp api.SyncResponse
	err = w.hold(hold, func() bool {
		if v.l.dead || p.down {
			return true
		}
		resp = p.answer(req)
		return resp.Generation != req.Have || req.WaitMilli == 0
	})
	if err != nil && !errors.Is(err, errHeld) {
		return api.SyncResponse{}, errs.Wrap(errs.Unavailable, err, "sync")
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case v.l.dead:
		return resp, errCut
	case p.down:
		return resp, errDown
	case p.bend != nil:
		p.bend(&resp)
	}
	return resp, nil
}

var errHeld = errors.New("held as long as was asked")

// observe records what a node reports; the first report of an end is final.
func (p *plane) observe(req api.SyncRequest) {
	p.requests = append(p.requests, req)
	p.observed = req.Observed
	for _, o := range req.Observed {
		in := p.instances[o.ID]
		if in == nil || !in.live || o.Epoch != in.want.Epoch || o.State != model.StateEnded {
			continue
		}
		in.live, in.cause = false, o.Cause
		in.ended++
		p.generation++
	}
}

func (p *plane) answer(req api.SyncRequest) api.SyncResponse {
	resp := api.SyncResponse{Generation: p.generation, Projection: api.Projection{
		Deployment: "d1", FlushEvery: p.flushEvery, StopGrace: time.Second, Gateways: p.gateways,
	}}
	for _, in := range p.instances {
		if in.live {
			d := in.want
			d.Root, d.Seq, d.Memory = in.head, in.seq, in.memory
			resp.Instances = append(resp.Instances, d)
		}
	}
	for _, o := range req.Observed {
		if slices.ContainsFunc(resp.Instances, func(d api.DesiredInstance) bool { return d.ID == o.ID }) {
			continue
		}
		d := api.DesiredInstance{ID: o.ID, Epoch: o.Epoch, Desired: model.InstanceFence}
		if o.State == model.StateEnded {
			d.Desired = model.InstanceDestroy
		}
		if o.State != model.StateEnded || req.Have != 0 {
			resp.Instances = append(resp.Instances, d)
		}
	}
	return resp
}

// BeginFlush implements api.Plane.
func (v planeView) BeginFlush(ctx context.Context, req api.BeginFlushRequest) (resp api.BeginFlushResponse, err error) {
	p := &v.l.w.plane
	err = v.l.call(ctx, "BeginFlush", func() error {
		p.begins = append(p.begins, req)
		in, err := p.own(req.Instance, req.Epoch)
		if err != nil {
			return err
		}
		if req.Pending != "" && req.Pending == in.head {
			resp = api.BeginFlushResponse{Committed: true, Seq: in.seq}
			return nil
		}
		if req.Base != in.head {
			return errs.New(errs.Stale, "the head is %s", in.head.Short())
		}
		resp = api.BeginFlushResponse{Intent: model.IntentID(model.NewID()), Seq: in.seq + 1, Started: time.Now()}
		if p.onBegin != nil {
			if err := p.onBegin(&resp); err != nil {
				return err
			}
		}
		if p.intents == nil {
			p.intents = map[model.IntentID]api.BeginFlushRequest{}
		}
		p.intents[resp.Intent] = req
		return nil
	})
	return resp, err
}

func (p *plane) own(id model.InstanceID, epoch model.Epoch) (*instance, error) {
	if p.down {
		return nil, errDown
	}
	in := p.instances[id]
	if in == nil || !in.live || in.want.Epoch != epoch {
		return nil, errs.New(errs.Stale, "instance %s is not under epoch %d", id, epoch)
	}
	return in, nil
}

// CommitFlush implements api.Plane.
func (v planeView) CommitFlush(ctx context.Context, req api.CommitFlushRequest) (resp api.CommitFlushResponse, err error) {
	w, p := v.l.w, &v.l.w.plane
	err = v.l.call(ctx, "CommitFlush", func() error {
		var before, after error
		if p.onCommit != nil {
			before, after = p.onCommit(req)
		}
		if before != nil {
			return before
		}
		in, err := p.own(req.Instance, req.Epoch)
		switch {
		case err != nil:
			return err
		case in.head == req.Root && in.seq == req.Seq:
			return after // repeated
		case in.head != req.Base:
			return errs.New(errs.Stale, "the head is %s", in.head.Short())
		case p.intents[req.Intent].Instance != req.Instance:
			return errs.New(errs.Stale, "no intent %s", req.Intent)
		case w.objects[req.Root] == nil:
			w.violate("a head that is not stored")
		}
		delete(p.intents, req.Intent)
		in.head, in.seq, in.memory = req.Root, req.Seq, ""
		if req.Memory != nil {
			in.memory = req.Memory.Root
			if w.memories[in.memory].disk != req.Root {
				w.violate("memory committed with another disk")
			}
		}
		p.generation++
		p.commits = append(p.commits, req)
		return after
	})
	return resp, err
}

// CommitGeneration implements api.Plane.
func (v planeView) CommitGeneration(ctx context.Context, req api.CommitGenerationRequest) (img api.Image, err error) {
	p := &v.l.w.plane
	err = v.l.call(ctx, "CommitGeneration", func() error {
		p.images = append(p.images, req)
		img.Name = req.Image
		return nil
	})
	return img, err
}

// create records an instance that should run, and returns its id.
func (w *world) create() model.InstanceID {
	id := model.InstanceID(model.NewID())
	w.change(func() {
		root := rootOf("base", string(id))
		w.objects[root] = []string{}
		w.plane.instances[id] = &instance{live: true, head: root, want: api.DesiredInstance{
			ID: id, Desired: model.InstanceRun, Epoch: 7, Tenant: model.DefaultTenant, SubjectKind: model.SubjectWorkspace,
			Subject: model.SubjectID("w" + id), Name: "ws", Shape: model.Shape{VCPUs: 1, Memory: 1 << 20, Disk: 1 << 30},
		}}
		w.plane.generation++
	})
	return id
}

// want changes what should be of an instance.
func (w *world) want(id model.InstanceID, d model.InstanceDesired) {
	w.change(func() {
		w.plane.instances[id].want.Desired = d
		w.plane.generation++
	})
}

// askFlush asks for a flush of what has been written until now.
func (w *world) askFlush(id model.InstanceID) {
	w.change(func() {
		w.plane.instances[id].want.Flush++
		w.plane.generation++
	})
}

// saved is what the newest head of an instance holds.
func (w *world) saved(id model.InstanceID) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.objects[w.plane.instances[id].head])
}
