package ledgertest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/ledger"
	"github.com/billethq/billet/internal/model"
)

func testEvents(f *fixture) {
	w, in := f.running("one")
	other := f.workspace("other")
	whole := must[[]model.Event](f)(f.l.Events(f.ctx, mine, "", 0, 0))
	about := func(subject string) []model.Event {
		return must[[]model.Event](f)(f.l.Events(f.ctx, mine, subject, 0, 0))
	}
	// The history of a workspace is one query, its instances included.
	var kinds []string
	for _, e := range about(string(w.ID)) {
		kinds = append(kinds, e.Kind)
		f.same("subject", e.SubjectKind+" "+e.Subject, "workspace "+string(w.ID))
		f.same("place", [2]string{string(e.Tenant), string(e.Region)}, [2]string{string(w.Tenant), string(w.Region)})
	}
	f.same("history", kinds, []string{ledger.EventWorkspaceCreated, ledger.EventInstancePlaced, ledger.EventInstanceMoved})
	f.same("instance named", about(string(w.ID))[1].Data["instance"], string(in.ID))
	f.same("history of another", len(about(string(other.ID))), 1)
	f.same("history of nobody", len(about("none")), 0)

	// Read in steps, it is the same.
	var stepped []model.Event
	for {
		var after int64
		if len(stepped) > 0 {
			after = stepped[len(stepped)-1].Seq
		}
		page := must[[]model.Event](f)(f.l.Events(f.ctx, mine, "", after, 2))
		if len(page) > 2 {
			f.Fatalf("limit 2 gave %d events", len(page))
		}
		if len(page) == 0 {
			break
		}
		stepped = append(stepped, page...)
	}
	f.same("events in steps", stepped, whole)
	f.same("events after the last", len(must[[]model.Event](f)(f.l.Events(f.ctx, mine, "", whole[len(whole)-1].Seq, 0))), 0)
	f.same("a limit below none", must[[]model.Event](f)(f.l.Events(f.ctx, mine, "", 0, -1)), whole)
	f.same("a limit beyond all", must[[]model.Event](f)(f.l.Events(f.ctx, mine, "", 0, math.MaxInt)), whole)
}

// hostile are texts that have broken stores before.
var hostile = []string{
	"'; DROP TABLE workspaces; --", `"`, "`", `\`, "?", "$1", "%_", ":x", "@x", "\r\n\t", "", " ", "null",
	"日本語 🚀 e\u0301", "\u202e", "\ufeff", "\x7f\x01", strings.Repeat("x", 4096),
}

func testText(f *fixture) {
	for i, s := range hostile {
		w := f.newWorkspace(fmt.Sprint("w", i))
		w.Image, w.Tier, w.Base, w.Name = s, s, model.Root(s), fmt.Sprint(i, s)
		idem := ledger.Idempotency{Key: s, Principal: model.PrincipalID(s)}
		got, _, err := f.l.CreateWorkspace(f.ctx, f.m, w, idem)
		f.do(err)
		_, created, err := f.l.CreateWorkspace(f.ctx, f.m, w, idem)
		want := errs.Kind("")
		if s == "" { // an empty key is none
			want = errs.Conflict
		}
		f.same("created again", created, false)
		f.same("kind of the repeat", errs.KindOf(err), want)
		f.same("workspace", []string{got.Image, got.Tier, string(got.Base), got.Name}, []string{s, s, s, w.Name})
		f.same("by name", must[model.Workspace](f)(f.l.Workspace(f.ctx, mine, w.Name)).ID, w.ID)
		if s != "" {
			f.refused(errs.NotFound, func() error { return drop(f.l.Workspace(f.ctx, mine, s)) })
		}
		events := must[[]model.Event](f)(f.l.Events(f.ctx, mine, string(w.ID), 0, 0))
		f.same("event data", events[0].Data["image"], s)
	}

	// What a database may refuse in text is replaced, so that it never keeps an
	// end from being recorded.
	_, in := f.running("guest")
	seen := f.seen(in, model.StateEnded, model.CauseCrashed)
	seen.Detail = "panic\x00 \xff\xfe\xc3 done"
	seen.Phases = []model.Phase{{Name: "a\x00b\xff", At: start}}
	for _, want := range []bool{true, false} {
		f.same("changed", must[bool](f)(f.l.Observe(f.ctx, f.m, seen)), want)
	}
	got := must[model.Instance](f)(f.l.Instance(f.ctx, in.ID))
	f.same("detail", got.Detail, "panic\uFFFD \uFFFD done")
	f.same("phase", got.Phases[0].Name, "a\uFFFDb\uFFFD")
	f.refused(errs.NotFound, func() error { return drop(f.l.Workspace(f.ctx, mine, "a\x00\xff")) })
	f.refused(errs.NotFound, func() error { return f.l.DeleteToken(f.ctx, f.m, mine, "a\x00\xff") })
}

func testTimes(f *fixture) {
	p := must[model.Principal](f)(f.l.EnsurePrincipal(f.ctx, f.m, f.newPrincipal("ada")))
	for i, at := range []time.Time{
		{}, time.Unix(0, 0), time.Unix(-1, 999), time.Unix(-1, 999999999), start,
		time.Date(1, 1, 1, 0, 0, 0, 1000, time.UTC), time.Date(9999, 12, 31, 23, 59, 59, 999999999, time.FixedZone("", -11*60*60)),
	} {
		k := f.newToken(fmt.Sprint("k", i), p)
		k.Expires = at
		f.do(drop(f.l.CreateToken(f.ctx, f.m, p, k)))
		for _, rec := range must[[]ledger.TokenRecord](f)(f.l.Tokens(f.ctx, mine)) {
			if got := rec.Token.Expires; rec.Token.ID == k.ID && (!got.Equal(kept(at)) || got.Location() != time.UTC || got.IsZero() != at.IsZero()) {
				f.Errorf("time %s came back as %s, want %s", at, got, kept(at))
			}
		}
	}
}

func testCancelled(f *fixture) {
	w := f.workspace("one")
	gone, cancel := context.WithCancel(f.ctx)
	cancel()
	for what, call := range map[string]func() error{
		"a write": func() error { return f.l.RenameWorkspace(gone, f.m, mine, w.ID, "two") },
		"a read":  func() error { return drop(f.l.Workspaces(gone, mine)) },
	} {
		err := f.refused(errs.Unavailable, call)
		if !errors.Is(err, context.Canceled) {
			f.Errorf("%s ended by its caller: %v", what, err)
		}
	}
	f.same("workspace", must[model.Workspace](f)(f.l.Workspace(f.ctx, mine, "one")), w)
	f.do(f.l.RenameWorkspace(f.ctx, f.m, mine, w.ID, "two")) // the ledger goes on
}

// testRestart closes the ledger and opens it again.
func testRestart(f *fixture) {
	d := must[ledger.Deployment](f)(f.l.EnsureDeployment(f.ctx, f.m, "dep"))
	p := must[model.Principal](f)(f.l.EnsurePrincipal(f.ctx, f.m, f.newPrincipal("ada")))
	f.do(drop(f.l.CreateToken(f.ctx, f.m, p, f.newToken("k", p))))
	f.do(drop(f.l.CommitGeneration(f.ctx, f.m, model.Image{ID: id[model.ImageID]("img"), Tenant: mine, Name: "base"}, f.newGeneration("g"))))
	w, in := f.running("one")
	it := must[model.FlushIntent](f)(f.l.BeginFlush(f.ctx, f.m, f.newIntent("it", in, w.Head)))

	type content struct {
		Tokens     []ledger.TokenRecord
		Nodes      []model.Node
		Images     []ledger.ImageRecord
		Workspaces []model.Workspace
		Instances  []model.Instance
		Events     []model.Event
	}
	read := func() content {
		f.Helper()
		return content{
			must[[]ledger.TokenRecord](f)(f.l.Tokens(f.ctx, mine)), must[[]model.Node](f)(f.l.Nodes(f.ctx)),
			must[[]ledger.ImageRecord](f)(f.l.Images(f.ctx, mine)), must[[]model.Workspace](f)(f.l.Workspaces(f.ctx, mine)),
			must[[]model.Instance](f)(f.l.Instances(f.ctx, ledger.InstanceFilter{Tenant: mine})), must[[]model.Event](f)(f.l.Events(f.ctx, mine, "", 0, 0)),
		}
	}
	before := read()
	f.do(f.l.Close())
	if _, err := f.l.Workspaces(f.ctx, mine); err == nil {
		f.Fatal("a closed ledger answers")
	}
	f.l = f.another()
	f.same("content", read(), before)
	f.same("deployment", must[ledger.Deployment](f)(f.l.EnsureDeployment(f.ctx, f.m, "other")), d)
	f.do(drop(f.l.CommitFlush(f.ctx, f.m, it.ID, in.ID, f.snapshot("s", it)))) // work goes on where it was
	f.seq = before.Events[len(before.Events)-1].Seq
	events := f.fresh()
	f.same("events go on", len(events) == 1 && events[0].Seq > before.Events[len(before.Events)-1].Seq, true)
}
