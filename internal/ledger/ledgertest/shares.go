package ledgertest

import (
	"fmt"
	"time"

	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/ledger"
	"github.com/billethq/billet/internal/model"
)

// testShares wants a public port to be public no longer than was said.
func testShares(f *fixture) {
	w := f.workspace("one")
	put := func(port int, d time.Duration) (model.Share, error) {
		return f.l.PutShare(f.ctx, f.m, model.Share{Workspace: w.ID, Tenant: mine, Port: port, Expires: f.m.Now.Add(d)})
	}
	shares := func() []model.Share {
		f.Helper()
		return must[[]model.Share](f)(f.l.Shares(f.ctx, f.m, mine, w.ID))
	}
	want := model.Share{Workspace: w.ID, Port: 8080, Tenant: w.Tenant, Region: w.Region, Principal: f.m.Actor, Created: f.now(), Expires: kept(f.m.Now.Add(time.Hour))}
	var got model.Share
	f.writes(func() (err error) { got, err = put(8080, time.Hour); return err }, ledger.EventPortShared)
	f.same("share", got, want)
	f.do(drop(put(80, time.Minute)))
	f.same("shares by port", len(shares()), 2)

	shared := func(name string, port int) (model.Share, error) { return f.l.SharedPort(f.ctx, f.m, name, port) }
	f.same("shared port", must[model.Share](f)(shared("one", 8080)), want)
	f.refused(errs.NotFound, func() error { return drop(shared("one", 8081)) })
	f.refused(errs.NotFound, func() error { return drop(shared(string(w.ID), 8080)) })

	f.advance(time.Minute)
	f.refused(errs.NotFound, func() error { return drop(shared("one", 80)) })
	f.same("shares after one has expired", shares(), []model.Share{want})
	f.refused(errs.NotFound, func() error { return f.l.DeleteShare(f.ctx, f.m, mine, w.ID, 80) })
	f.writes(func() error { return f.l.ExpireShares(f.ctx, f.m) })
	f.same("shares after the expired were dropped", shares(), []model.Share{want})

	got = must[model.Share](f)(put(8080, 2*time.Hour)) // again: it expires anew
	f.same("shares after one was renewed", shares(), []model.Share{got})
	f.same("its new end", got.Expires, kept(f.m.Now.Add(2*time.Hour)))

	f.writes(func() error { return f.l.DeleteShare(f.ctx, f.m, mine, w.ID, 8080) }, ledger.EventPortUnshared)
	f.same("shares after the last was ended", len(shares()), 0)
	f.refused(errs.NotFound, func() error { return f.l.DeleteShare(f.ctx, f.m, mine, w.ID, 8080) })
}

func testSharesRefused(f *fixture) {
	w := f.workspace("one")
	put := func(ws model.WorkspaceID, port int, d time.Duration) error {
		return drop(f.l.PutShare(f.ctx, f.m, model.Share{Workspace: ws, Tenant: mine, Port: port, Expires: f.m.Now.Add(d)}))
	}
	f.refused(errs.NotFound, func() error { return put(id[model.WorkspaceID]("none"), 80, time.Hour) })
	f.refused(errs.Invalid, func() error { return put(w.ID, 80, 0) })
	for i := range ledger.MaxShares {
		f.do(put(w.ID, 1000+i, time.Hour))
	}
	f.refused(errs.Exhausted, func() error { return put(w.ID, 80, time.Hour) })
	f.do(put(w.ID, 1000, time.Hour)) // one that is there is no more
	f.advance(time.Hour)
	f.do(put(w.ID, 80, time.Hour))

	f.do(drop(f.l.SetDesired(f.ctx, f.m, mine, w.ID, model.DesiredDeleted)))
	f.refused(errs.Conflict, func() error { return put(w.ID, 81, time.Hour) })
	f.do(f.l.RemoveWorkspace(f.ctx, f.m, mine, w.ID))
	f.same("shares of a removed workspace", fmt.Sprint(must[[]model.Share](f)(f.l.Shares(f.ctx, f.m, mine, w.ID))), "[]")
}

// share makes a port of another tenant's public.
func (f *fixture) share(ws model.WorkspaceID) {
	f.Helper()
	f.do(drop(f.l.PutShare(f.ctx, f.m, model.Share{Workspace: ws, Tenant: theirs, Port: 80, Expires: f.m.Now.Add(time.Hour)})))
}
