package ledgertest

import (
	"slices"
	"time"

	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/ledger"
	"github.com/billethq/billet/internal/model"
)

// oracle is the port's comments once more, in maps instead of a database: what
// a random sequence of calls should answer. It keeps pointers and has no
// transactions, indexes or concurrency to get wrong.
type oracle struct {
	now        time.Time
	nodes      map[model.NodeID]model.Node
	workspaces map[model.WorkspaceID]*model.Workspace
	epochs     map[model.SubjectID]model.Epoch // of every workspace that ever was
	instances  []*model.Instance               // in the order of their making
	intents    map[model.IntentID]model.FlushIntent
	snapshots  map[model.WorkspaceID][]model.Snapshot // newest first
}

// outcome is how a call ends: well with these events, or with a kind of error.
type outcome struct {
	Kind   errs.Kind
	Events []string
}

func ok(events ...string) outcome                    { return outcome{Events: events} }
func refusal(kind errs.Kind) outcome                 { return outcome{Kind: kind} }
func subjectOf(id model.WorkspaceID) model.SubjectID { return model.SubjectID(id) }

func (o *oracle) live(id model.WorkspaceID) *model.Instance {
	for _, in := range o.instances {
		if in.Subject == subjectOf(id) && in.State.Live() {
			return in
		}
	}
	return nil
}

func (o *oracle) instance(id model.InstanceID) *model.Instance {
	for _, in := range o.instances {
		if in.ID == id {
			return in
		}
	}
	return nil
}

// view is a workspace as the ledger shows it.
func (o *oracle) view(w *model.Workspace) model.Workspace {
	v := *w
	v.Epoch = o.epochs[subjectOf(w.ID)]
	return v
}

func (o *oracle) named(name string) *model.Workspace {
	for _, w := range o.workspaces {
		if w.Name == name {
			return w
		}
	}
	return nil
}

func (o *oracle) create(w model.Workspace) (model.Workspace, outcome) {
	if _, used := o.epochs[subjectOf(w.ID)]; used || o.named(w.Name) != nil {
		return model.Workspace{}, refusal(errs.Conflict)
	}
	w.Head, w.HeadAt, w.Created, w.Updated = w.Base, o.now, o.now, o.now
	o.epochs[subjectOf(w.ID)] = 0
	o.workspaces[w.ID] = &w
	return o.view(&w), ok(ledger.EventWorkspaceCreated)
}

func (o *oracle) rename(id model.WorkspaceID, name string) outcome {
	w, other := o.workspaces[id], o.named(name)
	switch {
	case w == nil:
		return refusal(errs.NotFound)
	case other == w:
		return ok()
	case other != nil:
		return refusal(errs.Conflict)
	}
	w.Name, w.Updated = name, o.now
	return ok(ledger.EventWorkspaceRenamed)
}

func (o *oracle) desire(id model.WorkspaceID, d model.Desired) (model.Workspace, outcome) {
	w := o.workspaces[id]
	switch {
	case w == nil:
		return model.Workspace{}, refusal(errs.NotFound)
	case w.Desired == model.DesiredDeleted && d != model.DesiredDeleted:
		return model.Workspace{}, refusal(errs.Conflict)
	case w.Desired == d && (d != model.DesiredRunning || w.Failure == ""):
		return o.view(w), ok()
	}
	w.Desired, w.Updated = d, o.now
	if d == model.DesiredRunning {
		w.Failure = ""
	}
	return o.view(w), ok(ledger.EventWorkspaceDesired)
}

func (o *oracle) remove(id model.WorkspaceID) outcome {
	w := o.workspaces[id]
	switch {
	case w == nil:
		return refusal(errs.NotFound)
	case w.Desired != model.DesiredDeleted || o.live(id) != nil:
		return refusal(errs.Conflict)
	}
	delete(o.workspaces, id)
	delete(o.snapshots, id)
	for k, it := range o.intents {
		if it.Subject == subjectOf(id) {
			delete(o.intents, k)
		}
	}
	return ok(ledger.EventWorkspaceRemoved)
}

func (o *oracle) place(in model.Instance, c ledger.Ceiling) (model.Instance, outcome) {
	id := model.WorkspaceID(in.Subject)
	w := o.workspaces[id]
	switch {
	case w == nil:
		return model.Instance{}, refusal(errs.NotFound)
	case w.Desired != model.DesiredRunning || o.live(id) != nil:
		return model.Instance{}, refusal(errs.Conflict)
	}
	free, live := o.nodes[in.Node].Capacity.VCPUs, 0
	for _, other := range o.instances {
		if other.Node == in.Node && other.State != model.StateEnded {
			free -= other.Shape.VCPUs
		}
		if other.State.Live() {
			live++
		}
	}
	if in.Shape.VCPUs > free || c.Max > 0 && live >= c.Max {
		return model.Instance{}, refusal(errs.Exhausted)
	}
	o.epochs[in.Subject]++
	in.Epoch, in.State, in.Desired = o.epochs[in.Subject], model.StateReserved, model.InstanceRun
	in.LeaseUntil, in.Created, in.Updated = kept(c.LeaseUntil), o.now, o.now
	o.instances = append(o.instances, &in)
	return in, ok(ledger.EventInstancePlaced)
}

func (o *oracle) tell(id model.InstanceID, d model.InstanceDesired) outcome {
	in := o.instance(id)
	switch {
	case in == nil:
		return refusal(errs.NotFound)
	case !in.State.Live():
		return refusal(errs.Conflict)
	case in.Desired == d:
		return ok()
	}
	in.Desired, in.Updated = d, o.now
	return ok(ledger.EventInstanceDesired)
}

func (o *oracle) observe(s ledger.Observation) (bool, outcome) {
	in := o.instance(s.Instance)
	switch {
	case in == nil:
		return false, refusal(errs.NotFound)
	case in.Node != s.Node || in.Epoch != s.Epoch:
		return false, refusal(errs.Stale)
	case in.State == model.StateFenced && s.State == model.StateEnded:
		in.State, in.Updated = model.StateEnded, o.now
		return true, ok(ledger.EventInstanceMoved)
	case !in.State.Live():
		return false, ok()
	case model.CheckTransition(in.State, s.State) != nil:
		return false, refusal(errs.Conflict)
	}
	if until := kept(s.LeaseUntil); until.After(in.LeaseUntil) {
		in.LeaseUntil = until
	}
	events := []string{ledger.EventInstanceMoved}
	if s.State == in.State {
		if s.Cause == in.Cause {
			return false, ok()
		}
		events = []string{ledger.EventInstanceProgressed}
	}
	in.State, in.Cause, in.Updated = s.State, s.Cause, o.now
	if s.State != model.StateEnded || in.Desired != model.InstanceRun {
		return true, ok(events...)
	}
	w := o.workspaces[model.WorkspaceID(in.Subject)] // live instances keep it from being removed
	w.Failure, w.Updated = s.Cause, o.now
	if w.Desired == model.DesiredRunning {
		w.Desired = model.DesiredStopped
	}
	return true, ok(append(events, ledger.EventWorkspaceFailed)...)
}

func (o *oracle) markUnproven() (silent []model.Instance, out outcome) {
	for _, in := range o.instances {
		if in.State.Live() && in.State != model.StateUnproven && in.LeaseUntil.Before(o.now) {
			in.State, in.Updated = model.StateUnproven, o.now
			silent = append(silent, *in)
			out.Events = append(out.Events, ledger.EventInstanceMoved)
		}
	}
	return silent, out
}

func (o *oracle) fence(id model.WorkspaceID) outcome {
	if _, was := o.epochs[subjectOf(id)]; !was {
		return refusal(errs.NotFound)
	}
	o.epochs[subjectOf(id)]++
	in := o.live(id)
	if in == nil {
		return ok(ledger.EventSubjectFenced)
	}
	in.State, in.Desired, in.Cause, in.Updated = model.StateFenced, model.InstanceFence, model.CauseFenced, o.now
	return ok(ledger.EventSubjectFenced, ledger.EventInstanceFenced)
}

func (o *oracle) beginFlush(it model.FlushIntent) (model.FlushIntent, outcome) {
	in := o.instance(it.Instance)
	if in == nil {
		return model.FlushIntent{}, refusal(errs.NotFound)
	}
	w := o.workspaces[model.WorkspaceID(in.Subject)]
	switch {
	case w == nil:
		return model.FlushIntent{}, refusal(errs.NotFound)
	case !in.State.Live() || it.Epoch != in.Epoch || it.Epoch != o.epochs[in.Subject] || it.Base != w.Head:
		return model.FlushIntent{}, refusal(errs.Stale)
	}
	it.Subject, it.Seq, it.Started, it.Expires = in.Subject, w.HeadSeq+1, o.now, kept(it.Expires)
	o.intents[it.ID] = it
	return it, ok(ledger.EventFlushBegun)
}

func (o *oracle) commitFlush(id model.IntentID, instance model.InstanceID, s model.Snapshot) (model.Snapshot, outcome) {
	if made := o.snapshots[s.Workspace]; len(made) > 0 && made[0].Root == s.Root && made[0].Epoch == s.Epoch && made[0].Seq == s.Seq {
		return made[0], ok()
	}
	in := o.instance(instance)
	if in == nil {
		return model.Snapshot{}, refusal(errs.NotFound)
	}
	w := o.workspaces[model.WorkspaceID(in.Subject)]
	it, found := o.intents[id]
	switch {
	case w == nil:
		return model.Snapshot{}, refusal(errs.NotFound)
	case s.Epoch != in.Epoch || s.Epoch != o.epochs[in.Subject]:
		return model.Snapshot{}, refusal(errs.Stale)
	case !in.State.Live():
		return model.Snapshot{}, refusal(errs.Stale)
	case in.State == model.StateUnproven || in.LeaseUntil.Before(o.now):
		return model.Snapshot{}, refusal(errs.Unavailable)
	case s.Workspace != w.ID:
		return model.Snapshot{}, refusal(errs.Invalid)
	case s.Parent != w.Head || !found || it.Instance != in.ID || it.Expires.Before(o.now) || s.Seq != it.Seq || s.Seq != w.HeadSeq+1:
		return model.Snapshot{}, refusal(errs.Stale)
	}
	s.Created = o.now
	w.Head, w.HeadSeq, w.HeadAt, w.Updated = s.Root, s.Seq, o.now, o.now
	o.snapshots[w.ID] = slices.Insert(o.snapshots[w.ID], 0, s)
	delete(o.intents, id)
	return s, ok(ledger.EventFlushCommitted)
}

func (o *oracle) expireIntents() (n int, out outcome) {
	for k, it := range o.intents {
		if it.Expires.Before(o.now) {
			delete(o.intents, k)
			n++
			out.Events = append(out.Events, ledger.EventFlushExpired)
		}
	}
	return n, out
}
