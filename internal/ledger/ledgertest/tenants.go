package ledgertest

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/ledger"
	"github.com/billethq/billet/internal/model"
)

// theirs is a tenant of which the caller is not.
const theirs model.TenantID = "theirs"

// foreign is one of everything that another tenant has.
type foreign struct {
	word      string
	principal model.Principal
	token     model.Token
	key       model.SSHKey
	image     model.Image
	idem      ledger.Idempotency
	workspace model.Workspace // runs
	instance  model.Instance
	snapshot  model.Snapshot    // its head, with memory
	intent    model.FlushIntent // the next
	idle      model.Workspace   // wants to run
	job       model.Instance    // ended
	terms     model.Terms       // of workspace
	kept      model.KeptSnapshot
}

func (f *fixture) foreign(word string) (o foreign) {
	f.Helper()
	p := f.newPrincipal(word)
	p.Tenant = theirs
	o.word, o.token = word, f.newToken(word, p)
	o.principal = must[model.Principal](f)(f.l.CreateToken(f.ctx, f.m, p, o.token))
	o.key = f.newSSHKey(word, o.principal)
	f.do(f.l.AddSSHKey(f.ctx, f.m, o.key))
	g := f.newGeneration(word)
	g.Tenant = theirs
	o.image = must[ledger.ImageRecord](f)(f.l.CommitGeneration(f.ctx, f.m, model.Image{ID: id[model.ImageID](word), Tenant: theirs, Name: word}, g)).Image
	o.idem = ledger.Idempotency{Key: "key", Principal: o.principal.ID}
	o.terms = f.newTerms(word)
	o.terms.Tenant = theirs
	f.do(f.l.CreateTerms(f.ctx, f.m, o.terms))
	o.kept = model.KeptSnapshot{ID: id[model.SnapshotID](word + "k"), Tenant: theirs, Name: word}
	f.do(f.l.KeepSnapshot(f.ctx, f.m, o.kept))
	create := func(word string, idem ledger.Idempotency) model.Workspace {
		w := f.newWorkspace(word)
		w.Tenant = theirs
		w, _, err := f.l.CreateWorkspace(f.ctx, f.m, w, idem)
		f.do(err)
		return w
	}
	o.workspace, o.idle = create(word, o.idem), create(word+"idle", ledger.Idempotency{})
	n := f.node(word+"n", 100)
	o.instance = f.place(word, o.workspace, n.ID)
	first := must[model.FlushIntent](f)(f.l.BeginFlush(f.ctx, f.m, f.newIntent(word+"1", o.instance, o.workspace.Head)))
	s := f.snapshot(word, first)
	s.Memory = f.memory(word, time.Hour)
	o.snapshot = must[model.Snapshot](f)(f.l.CommitFlush(f.ctx, f.m, first.ID, o.instance.ID, s))
	o.intent = must[model.FlushIntent](f)(f.l.BeginFlush(f.ctx, f.m, f.newIntent(word+"2", o.instance, s.Root)))
	job := f.newInstance(word+"job", o.workspace, n.ID)
	job.SubjectKind = model.SubjectJob
	o.job = must[model.Instance](f)(f.l.Place(f.ctx, f.m, job, f.ceiling()))
	f.observe(o.job, model.StateEnded, model.CauseExited)
	return o
}

// errNothing stands for an answer without anything in it.
var errNothing = errors.New("nothing")

// some is errNothing unless there is something.
func some[T any](got []T, err error) error {
	if err == nil && len(got) == 0 {
		return errNothing
	}
	return err
}

// foreignCall asks, in the name of a tenant, for what is another's. The part of
// its name before a space is the method.
type foreignCall struct {
	want    errs.Kind // "": it finds nothing
	prepare func(f *fixture, o foreign)
	call    func(f *fixture, tenant model.TenantID, o foreign) error
}

// everyTenants are the methods that serve all tenants at once, and why.
var everyTenants = map[string]string{
	"EnsureDeployment":  "the deployment is everybody's",
	"TokenByHash":       "the secret says whose it is",
	"Principal":         "a certificate of this deployment says whose it is",
	"SSHKey":            "the proof of its private half says whose it is",
	"SeeNode":           "nodes are the deployment's",
	"Nodes":             "nodes are the deployment's",
	"RemoveNode":        "nodes are the deployment's",
	"Instance":          "a node speaks of it: node and epoch guard it",
	"Observe":           "a node speaks of it: node and epoch guard it",
	"MarkUnproven":      "time ends it",
	"ExpireMemory":      "time ends it",
	"ExpireIntents":     "time ends it",
	"ExpireIdempotency": "time ends it",
	"ExpireShares":      "time ends it",
	"ExpireHolds":       "time ends it",
	"NoteStretch":       "a node speaks of it: the epoch guards it",
	"SharedPort":        "a share is for everybody who knows the name",
	"TierUse":           "a tier's ceiling is the deployment's",
	"Close":             "it asks for nothing",
}

func foreignCalls() map[string]foreignCall {
	type (
		fx     = *fixture
		tenant = model.TenantID
	)
	return map[string]foreignCall{
		"EnsurePrincipal": {want: errs.Conflict, call: func(f fx, t tenant, o foreign) error {
			p := o.principal
			p.ID, p.Tenant = id[model.PrincipalID](o.word+"x"), t
			return drop(f.l.EnsurePrincipal(f.ctx, f.m, p))
		}},
		"CreateToken": {want: errs.Conflict, call: func(f fx, t tenant, o foreign) error {
			p := o.principal
			p.Tenant = t
			return drop(f.l.CreateToken(f.ctx, f.m, p, f.newToken(o.word+"x", p)))
		}},
		"Tokens":         {call: func(f fx, t tenant, _ foreign) error { return some(f.l.Tokens(f.ctx, t)) }},
		"DeleteToken":    {want: errs.NotFound, call: func(f fx, t tenant, o foreign) error { return f.l.DeleteToken(f.ctx, f.m, t, o.token.Name) }},
		"DeleteToken id": {want: errs.NotFound, call: func(f fx, t tenant, o foreign) error { return f.l.DeleteToken(f.ctx, f.m, t, string(o.token.ID)) }},

		"AddSSHKey": {want: errs.NotFound, call: func(f fx, t tenant, o foreign) error {
			k := f.newSSHKey(o.word+"x", o.principal)
			k.Tenant = t
			return f.l.AddSSHKey(f.ctx, f.m, k)
		}},
		"SSHKeys":      {call: func(f fx, t tenant, _ foreign) error { return some(f.l.SSHKeys(f.ctx, t)) }},
		"RemoveSSHKey": {want: errs.NotFound, call: func(f fx, t tenant, o foreign) error { return f.l.RemoveSSHKey(f.ctx, f.m, t, o.key.ID) }},

		"CommitGeneration": {want: errs.Conflict, call: func(f fx, t tenant, o foreign) error {
			return drop(f.l.CommitGeneration(f.ctx, f.m, model.Image{ID: id[model.ImageID](o.word + "x"), Tenant: t, Name: o.word}, f.newGeneration(o.word+"x")))
		}},
		"Images": {call: func(f fx, t tenant, _ foreign) error { return some(f.l.Images(f.ctx, t)) }},
		"Image":  {want: errs.NotFound, call: func(f fx, t tenant, o foreign) error { _, _, err := f.l.Image(f.ctx, t, o.image.Name); return err }},
		"Image id": {want: errs.NotFound, call: func(f fx, t tenant, o foreign) error {
			_, _, err := f.l.Image(f.ctx, t, string(o.image.ID))
			return err
		}},
		"DeleteImage":    {want: errs.NotFound, call: func(f fx, t tenant, o foreign) error { return f.l.DeleteImage(f.ctx, f.m, t, o.image.Name) }},
		"DeleteImage id": {want: errs.NotFound, call: func(f fx, t tenant, o foreign) error { return f.l.DeleteImage(f.ctx, f.m, t, string(o.image.ID)) }},

		"CreateWorkspace": {want: errs.Conflict, call: func(f fx, t tenant, o foreign) error {
			w := f.newWorkspace(o.word)
			w.ID, w.Tenant = id[model.WorkspaceID](o.word+"x"), t
			got, _, err := f.l.CreateWorkspace(f.ctx, f.m, w, o.idem)
			if err == nil && got.ID != o.workspace.ID {
				return errNothing
			}
			return err
		}},
		"Created": {call: func(f fx, t tenant, o foreign) error {
			_, found, err := f.l.Created(f.ctx, t, o.idem)
			if err == nil && !found {
				return errNothing
			}
			return err
		}},
		"Workspace":    {want: errs.NotFound, call: func(f fx, t tenant, o foreign) error { return drop(f.l.Workspace(f.ctx, t, o.workspace.Name)) }},
		"Workspace id": {want: errs.NotFound, call: func(f fx, t tenant, o foreign) error { return drop(f.l.Workspace(f.ctx, t, string(o.workspace.ID))) }},
		"Workspaces":   {call: func(f fx, t tenant, _ foreign) error { return some(f.l.Workspaces(f.ctx, t)) }},
		"RenameWorkspace": {want: errs.NotFound, call: func(f fx, t tenant, o foreign) error {
			return f.l.RenameWorkspace(f.ctx, f.m, t, o.workspace.ID, o.word+"x")
		}},
		"SetDesired": {want: errs.NotFound, call: func(f fx, t tenant, o foreign) error {
			return drop(f.l.SetDesired(f.ctx, f.m, t, o.workspace.ID, model.DesiredStopped))
		}},
		"RemoveWorkspace": {
			want:    errs.NotFound,
			prepare: func(f fx, o foreign) { f.do(drop(f.l.SetDesired(f.ctx, f.m, theirs, o.idle.ID, model.DesiredDeleted))) },
			call:    func(f fx, t tenant, o foreign) error { return f.l.RemoveWorkspace(f.ctx, f.m, t, o.idle.ID) },
		},
		"TakeBack": {want: errs.NotFound, call: func(f fx, t tenant, o foreign) error { return f.l.TakeBack(f.ctx, f.m, t, o.idle.ID) }},

		"Place": {want: errs.NotFound, call: func(f fx, t tenant, o foreign) error {
			in := f.newInstance(o.word+"x", o.idle, o.instance.Node)
			in.Tenant = t
			return drop(f.l.Place(f.ctx, f.m, in, f.ceiling()))
		}},
		"Place job": {want: errs.NotFound, call: func(f fx, t tenant, o foreign) error {
			in := o.job
			in.ID, in.Tenant = id[model.InstanceID](o.word+"x"), t
			return drop(f.l.Place(f.ctx, f.m, in, f.ceiling()))
		}},
		"Instances": {call: func(f fx, t tenant, _ foreign) error {
			return some(f.l.Instances(f.ctx, ledger.InstanceFilter{Tenant: t}))
		}},
		"Instances subject": {call: func(f fx, t tenant, o foreign) error {
			return some(f.l.Instances(f.ctx, ledger.InstanceFilter{Tenant: t, Subject: o.instance.Subject, Node: o.instance.Node}))
		}},
		"NewestInstance": {call: func(f fx, t tenant, o foreign) error {
			_, found, err := f.l.NewestInstance(f.ctx, t, o.instance.SubjectKind, o.instance.Subject)
			if err == nil && !found {
				return errNothing
			}
			return err
		}},
		"SetInstanceDesired": {want: errs.NotFound, call: func(f fx, t tenant, o foreign) error {
			return f.l.SetInstanceDesired(f.ctx, f.m, t, o.instance.ID, model.InstanceStop)
		}},
		"Fence": {want: errs.NotFound, call: func(f fx, t tenant, o foreign) error {
			return f.l.Fence(f.ctx, f.m, t, o.instance.SubjectKind, o.instance.Subject)
		}},
		"GiveUp": {want: errs.NotFound, call: func(f fx, t tenant, o foreign) error {
			return drop(f.l.GiveUp(f.ctx, f.m, t, o.workspace.ID, o.instance.ID))
		}},

		"BeginFlush": {want: errs.NotFound, call: func(f fx, t tenant, o foreign) error {
			it := f.newIntent(o.word+"x", o.instance, o.snapshot.Root)
			it.Tenant = t
			return drop(f.l.BeginFlush(f.ctx, f.m, it))
		}},
		"CommitFlush": {want: errs.NotFound, call: func(f fx, t tenant, o foreign) error {
			s := f.snapshot(o.word+"x", o.intent)
			s.Tenant = t
			return drop(f.l.CommitFlush(f.ctx, f.m, o.intent.ID, o.instance.ID, s))
		}},
		"CommitFlush again": {want: errs.NotFound, call: func(f fx, t tenant, o foreign) error {
			s := o.snapshot
			s.Tenant = t
			return drop(f.l.CommitFlush(f.ctx, f.m, id[model.IntentID](o.word+"1"), o.instance.ID, s))
		}},
		"DropMemory": {want: errs.NotFound, call: func(f fx, t tenant, o foreign) error {
			return f.l.DropMemory(f.ctx, f.m, t, o.workspace.ID, o.snapshot.Memory.Root)
		}},
		"Snapshots": {call: func(f fx, t tenant, o foreign) error { return some(f.l.Snapshots(f.ctx, t, o.workspace.ID)) }},
		"CreateTerms": {
			want: errs.Conflict,
			call: func(f fx, t tenant, o foreign) error {
				k := o.terms
				k.Tenant = t
				if t == theirs {
					k.Workspace = o.idle.ID
				}
				return f.l.CreateTerms(f.ctx, f.m, k)
			},
		},
		"Terms":          {call: func(f fx, t tenant, _ foreign) error { return some(f.l.Terms(f.ctx, t)) }},
		"WorkspaceTerms": {want: errs.NotFound, call: func(f fx, t tenant, o foreign) error { return drop(f.l.WorkspaceTerms(f.ctx, t, o.workspace.ID)) }},
		"SetDeadline": {want: errs.NotFound, call: func(f fx, t tenant, o foreign) error {
			return drop(f.l.SetDeadline(f.ctx, f.m, t, o.workspace.ID, f.now().Add(time.Hour), f.now(), false))
		}},
		"SetTermsNetwork": {want: errs.NotFound, call: func(f fx, t tenant, o foreign) error { return f.l.SetTermsNetwork(f.ctx, f.m, t, o.workspace.ID, "x") }},
		"EndTerms": {want: errs.NotFound, call: func(f fx, t tenant, o foreign) error {
			return drop(f.l.EndTerms(f.ctx, f.m, t, o.workspace.ID, model.TermsEnd{Desired: model.DesiredStopped, Kill: true}))
		}},
		"RemoveTerms": {want: errs.NotFound, call: func(f fx, t tenant, o foreign) error { return f.l.RemoveTerms(f.ctx, f.m, t, o.workspace.ID) }},
		"KeepSnapshot": {want: errs.Conflict, call: func(f fx, t tenant, o foreign) error {
			k := o.kept
			k.ID, k.Tenant = id[model.SnapshotID](o.word+"x"), t
			if t == theirs {
				k.Name += "x"
			}
			return f.l.KeepSnapshot(f.ctx, f.m, k)
		}},
		"KeptSnapshots":  {call: func(f fx, t tenant, _ foreign) error { return some(f.l.KeptSnapshots(f.ctx, t)) }},
		"ForgetSnapshot": {want: errs.NotFound, call: func(f fx, t tenant, o foreign) error { return f.l.ForgetSnapshot(f.ctx, f.m, t, o.kept.ID) }},
		"PutShare": {want: errs.NotFound, call: func(f fx, t tenant, o foreign) error {
			return drop(f.l.PutShare(f.ctx, f.m, model.Share{Workspace: o.workspace.ID, Tenant: t, Port: 81, Expires: f.now().Add(time.Hour)}))
		}},
		"Shares": {
			prepare: func(f fx, o foreign) { f.share(o.workspace.ID) },
			call:    func(f fx, t tenant, o foreign) error { return some(f.l.Shares(f.ctx, f.m, t, o.workspace.ID)) },
		},
		"DeleteShare": {
			want:    errs.NotFound,
			prepare: func(f fx, o foreign) { f.share(o.workspace.ID) },
			call:    func(f fx, t tenant, o foreign) error { return f.l.DeleteShare(f.ctx, f.m, t, o.workspace.ID, 80) },
		},
		"PutHold": {want: errs.NotFound, call: func(f fx, t tenant, o foreign) error { return drop(f.hold(t, o.workspace.ID, time.Hour)) }},
		"DeleteHold": {
			want:    errs.NotFound,
			prepare: func(f fx, o foreign) { f.do(drop(f.hold(theirs, o.workspace.ID, time.Hour))) },
			call:    func(f fx, t tenant, o foreign) error { return f.l.DeleteHold(f.ctx, f.m, t, o.workspace.ID) },
		},
		"Idleness": {
			prepare: func(f fx, o foreign) { f.do(drop(f.hold(theirs, o.workspace.ID, time.Hour))) },
			call: func(f fx, t tenant, o foreign) error {
				i, err := f.l.Idleness(f.ctx, f.m, t, o.workspace.ID)
				if err == nil && i == (model.Idleness{}) {
					return errNothing
				}
				return err
			},
		},
		"EndIdle": {want: errs.NotFound, call: func(f fx, t tenant, o foreign) error {
			return drop(f.l.EndIdle(f.ctx, f.m, t, o.workspace.ID, f.idleEnd(o.instance)))
		}},
		"WakeIdle": {want: errs.NotFound, call: func(f fx, t tenant, o foreign) error {
			return drop(f.l.WakeIdle(f.ctx, f.m, t, o.workspace.ID, o.instance.ID, ""))
		}},
		"IdleCounts": {
			prepare: func(f fx, o foreign) {
				f.do(drop(f.l.SetDesired(f.ctx, f.m, theirs, o.workspace.ID, model.DesiredHibernated)))
			},
			call: func(f fx, t tenant, _ foreign) error { return some(f.l.IdleCounts(f.ctx, t)) },
		},
		"Events": {call: func(f fx, t tenant, o foreign) error { return some(f.l.Events(f.ctx, t, string(o.workspace.ID), 0, 0)) }},
		"Events all": {call: func(f fx, t tenant, o foreign) error {
			events, err := f.l.Events(f.ctx, t, "", 0, 0)
			return some(slices.DeleteFunc(events, func(e model.Event) bool { return e.Tenant == mine }), err) // of nodes
		}},
	}
}

// testTenants asks for everything of another tenant's in the name of this one,
// and then in its own: a call that would not work for its owner proves nothing.
// A new method has to say here how it asks, or why it serves every tenant.
// invariant 11
func testTenants(f *fixture) {
	calls := foreignCalls()
	asked := map[string]bool{}
	for name := range calls {
		method, _, _ := strings.Cut(name, " ")
		asked[method] = true
	}
	port := reflect.TypeFor[ledger.Ledger]()
	for i := range port.NumMethod() {
		name := port.Method(i).Name
		if _, every := everyTenants[name]; every == asked[name] {
			f.Errorf("%s: add a case in foreignCalls, or the reason in everyTenants, and not both", name)
		}
		delete(asked, name)
	}
	for name := range asked {
		f.Errorf("the port has no %s", name)
	}
	for i, name := range slices.Sorted(maps.Keys(calls)) {
		c, o := calls[name], f.foreign(fmt.Sprintf("t%02d", i))
		if c.prepare != nil {
			c.prepare(f, o)
		}
		before := f.kept(theirs, o)
		f.fresh()
		err := c.call(f, mine, o)
		if nothing := errors.Is(err, errNothing); nothing != (c.want == "") || !nothing && errs.KindOf(err) != c.want {
			f.Errorf("%s of another tenant's: got %v (kind %q), want kind %q", name, err, errs.KindOf(err), c.want)
		}
		f.same(name+" of another tenant's, events", len(f.fresh()), 0)
		f.same(name+" of another tenant's, what it has", f.kept(theirs, o), before)
		if err := c.call(f, theirs, o); err != nil {
			f.Errorf("%s of its own: %v", name, err)
		}
	}
}

// tenantsThings is everything that is kept of a tenant.
type tenantsThings struct {
	Tokens     []ledger.TokenRecord
	Keys       []ledger.SSHKeyRecord
	Images     []ledger.ImageRecord
	Workspaces []model.Workspace
	Instances  []model.Instance
	Snapshots  []model.Snapshot
	Terms      []model.Terms
	Kept       []model.KeptSnapshot
	Shares     []model.Share
	Idleness   model.Idleness
	Counts     []model.IdleCount
}

func (f *fixture) kept(t model.TenantID, o foreign) tenantsThings {
	f.Helper()
	return tenantsThings{
		must[[]ledger.TokenRecord](f)(f.l.Tokens(f.ctx, t)), must[[]ledger.SSHKeyRecord](f)(f.l.SSHKeys(f.ctx, t)), must[[]ledger.ImageRecord](f)(f.l.Images(f.ctx, t)),
		must[[]model.Workspace](f)(f.l.Workspaces(f.ctx, t)), must[[]model.Instance](f)(f.l.Instances(f.ctx, ledger.InstanceFilter{Tenant: t})),
		must[[]model.Snapshot](f)(f.l.Snapshots(f.ctx, t, o.workspace.ID)), must[[]model.Terms](f)(f.l.Terms(f.ctx, t)), must[[]model.KeptSnapshot](f)(f.l.KeptSnapshots(f.ctx, t)),
		must[[]model.Share](f)(f.l.Shares(f.ctx, f.m, t, o.workspace.ID)),
		must[model.Idleness](f)(f.l.Idleness(f.ctx, f.m, t, o.workspace.ID)), must[[]model.IdleCount](f)(f.l.IdleCounts(f.ctx, t)),
	}
}
