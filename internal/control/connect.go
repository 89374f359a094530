package control

import (
	"context"
	"time"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/clock"
	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/model"
)

// connectDeadline is how long a connection is held open unless its client says
// otherwise: several times a cold boot, less than a person waits for nothing.
// maxConnectDeadline bounds what a client may say.
const (
	connectDeadline    = time.Minute
	maxConnectDeadline = 10 * time.Minute
)

// Connect implements api.Service. Connecting to a hibernated workspace is the
// request to resume it: whoever may enter it has it started, once, and waits
// here. One that was stopped cold, or has failed, is started by a person.
func (c *Control) Connect(ctx context.Context, who model.Principal, ref string, req api.ConnectRequest, tell func(api.ConnectPhase) error) (api.Attachment, error) {
	if req.DeadlineMilli < 0 || req.DeadlineMilli > maxConnectDeadline.Milliseconds() {
		return api.Attachment{}, errs.New(errs.Invalid, "a deadline of %d ms", req.DeadlineMilli).WithHint("choose at most %d ms, or leave it away for %d", maxConnectDeadline.Milliseconds(), connectDeadline.Milliseconds())
	}
	deadline := connectDeadline
	if req.DeadlineMilli > 0 {
		deadline = time.Duration(req.DeadlineMilli) * time.Millisecond
	}
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	ws, err := c.find(ctx, who, ref)
	if err != nil {
		return api.Attachment{}, err
	}
	k := &connection{c: c, who: who, id: ws.ID, name: ws.Name, took: clock.Start(), tell: tell, deadline: deadline}
	if err := k.reach(api.PhaseAuthorised); err != nil {
		return api.Attachment{}, err
	}
	return k.wait(ctx)
}

// connection is one client that waits to get into a workspace.
type connection struct {
	c        *Control
	who      model.Principal
	id       model.WorkspaceID
	name     string // for people
	took     *clock.Stopwatch
	tell     func(api.ConnectPhase) error
	deadline time.Duration
	last     api.ConnectPhaseName
}

// reach tells of a phase, once.
func (k *connection) reach(name api.ConnectPhaseName) error {
	if k.last == name {
		return nil
	}
	k.last = name
	return k.tell(api.ConnectPhase{Name: name, ElapsedMilli: k.took.Elapsed().Milliseconds()})
}

// wait has the workspace started and returns the road to it. When ctx ends the
// workspace goes on to where it was going, and can be connected to again.
func (k *connection) wait(ctx context.Context) (api.Attachment, error) {
	for {
		next := k.c.changed.next()
		v, err := k.c.Workspace(ctx, k.who, string(k.id))
		if err != nil {
			return api.Attachment{}, k.late(ctx, v, err)
		}
		if v.State == api.WorkspaceRunning || v.State == api.WorkspaceUnproven {
			a, err := k.c.Attach(ctx, k.who, string(k.id))
			if err == nil {
				return a, k.reach(api.PhaseAttached)
			}
			if !errs.Is(err, errs.Conflict) {
				return a, k.late(ctx, v, err)
			}
		}
		if err := k.step(ctx, v); err != nil {
			return api.Attachment{}, k.late(ctx, v, err)
		}
		select {
		case <-next:
		case <-ctx.Done():
			return api.Attachment{}, k.late(ctx, v, ctx.Err())
		}
	}
}

// step starts what sleeps, refuses what does not start by being connected to,
// and tells how far the rest is.
func (k *connection) step(ctx context.Context, v api.Workspace) error {
	switch {
	case v.State == api.WorkspaceDeleting, v.State == api.WorkspaceFailed:
		return notRunning(v)
	case v.Desired == model.DesiredStopped:
		return notRunning(v)
	case v.Desired == model.DesiredHibernated:
		_, err := k.c.StartWorkspace(ctx, k.who, string(k.id), api.StartWorkspaceRequest{})
		return err
	case v.Instance == nil || v.Instance.State == model.StateStopping:
		return nil // not placed yet; the reason is shown when it is too late
	}
	return k.reach(phaseOf(v))
}

// phaseOf names what an instance on its way up is in the middle of.
func phaseOf(v api.Workspace) api.ConnectPhaseName {
	if len(v.Phases) == 0 {
		return api.PhasePlaced
	}
	memory := v.NextResume != nil && v.NextResume.How == api.ResumeMemory
	switch v.Phases[len(v.Phases)-1].Name {
	case "memory":
		return api.PhaseRestoringMemory
	case "volume":
		if memory {
			return api.PhaseFetchingBlocks // of the memory
		}
		return api.PhaseBooting
	case "guest":
		if memory {
			return api.PhaseRestoringMemory
		}
		return api.PhaseBooting
	}
	return api.PhaseFetchingBlocks
}

// late says why a connection was not made in time. v is empty where the time
// ended while it was read.
func (k *connection) late(ctx context.Context, v api.Workspace, err error) error {
	if ctx.Err() == nil {
		return err
	}
	if ctx.Err() != context.DeadlineExceeded {
		return errs.Wrap(errs.Unavailable, context.Cause(ctx), "connect")
	}
	why := string(k.last)
	for _, more := range []string{v.Detail, v.FlushError} {
		if more != "" {
			why += ": " + more
		}
	}
	return errs.New(errs.Unavailable, "workspace %s was not up within %v (%s)", k.name, k.deadline, why).
		WithHint("it can still be connected to: try again; see: billet ws show %s", k.name)
}
