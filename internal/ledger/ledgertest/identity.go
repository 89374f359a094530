package ledgertest

import (
	"crypto/sha256"
	"time"

	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/ledger"
	"github.com/billethq/billet/internal/model"
)

func testDeployment(f *fixture) {
	var d ledger.Deployment
	f.writes(func() (err error) {
		d, err = f.l.EnsureDeployment(f.ctx, f.m, "first")
		return err
	}, ledger.EventDeploymentCreated)
	f.same("deployment", d, ledger.Deployment{ID: "first", Created: f.now()})
	f.advance(time.Hour)
	f.writes(func() error {
		again, err := f.l.EnsureDeployment(f.ctx, f.m, "second")
		f.same("deployment again", again, d)
		return err
	})
}

func (f *fixture) newPrincipal(word string) model.Principal {
	return model.Principal{
		ID: id[model.PrincipalID](word), Tenant: model.DefaultTenant, Region: model.DefaultRegion,
		Name: word, Class: model.ClassHuman, Role: model.RoleUser,
	}
}

func testPrincipals(f *fixture) {
	p := f.newPrincipal("ada")
	f.writes(func() error {
		got, err := f.l.EnsurePrincipal(f.ctx, f.m, p)
		p.Created = f.now()
		f.same("principal", got, p)
		return err
	}, ledger.EventPrincipalCreated)
	f.advance(time.Second)
	f.writes(func() error {
		again := f.newPrincipal("ada")
		again.ID = id[model.PrincipalID]("other")
		got, err := f.l.EnsurePrincipal(f.ctx, f.m, again)
		f.same("principal of the same name", got, p)
		return err
	})
	for _, change := range []func(*model.Principal){
		func(p *model.Principal) { p.Class = model.ClassAgent },
		func(p *model.Principal) { p.Role = model.RoleAdmin },
	} {
		other := f.newPrincipal("ada")
		change(&other)
		f.refused(errs.Conflict, func() error { return drop(f.l.EnsurePrincipal(f.ctx, f.m, other)) })
	}
	f.refused(errs.Conflict, func() error { // an id is never used twice
		twin := f.newPrincipal("ada")
		twin.Name = "bob"
		return drop(f.l.EnsurePrincipal(f.ctx, f.m, twin))
	})
}

func (f *fixture) newToken(word string, p model.Principal) model.Token {
	return model.Token{
		ID: id[model.TokenID](word), Tenant: p.Tenant, Region: p.Region, Principal: p.ID, Name: word, Hash: sha256.Sum256([]byte(word)),
	}
}

func testTokens(f *fixture) {
	p := must[model.Principal](f)(f.l.EnsurePrincipal(f.ctx, f.m, f.newPrincipal("ada")))
	b, a := f.newToken("b", p), f.newToken("a", p)
	b.Expires = start.Add(time.Hour)
	f.writes(func() error { return drop(f.l.CreateToken(f.ctx, f.m, p, b)) }, ledger.EventTokenCreated)
	f.do(drop(f.l.CreateToken(f.ctx, f.m, p, a)))
	a.Created, b.Created, b.Expires = f.now(), f.now(), kept(b.Expires)
	f.same("tokens by name", must[[]ledger.TokenRecord](f)(f.l.Tokens(f.ctx, mine)), []ledger.TokenRecord{{Token: a, Principal: p}, {Token: b, Principal: p}})

	refuse := func(change func(*model.Principal, *model.Token)) {
		f.Helper()
		p, c := f.newPrincipal("new"), f.newToken("c", p)
		change(&p, &c)
		f.refused(errs.Conflict, func() error { return drop(f.l.CreateToken(f.ctx, f.m, p, c)) }) // nor is the principal made
	}
	refuse(func(_ *model.Principal, c *model.Token) { c.Name = "a" })
	refuse(func(_ *model.Principal, c *model.Token) { c.Hash = a.Hash })
	refuse(func(_ *model.Principal, c *model.Token) { c.ID = a.ID })
	refuse(func(p *model.Principal, _ *model.Token) { p.Name, p.Role = "ada", model.RoleAdmin })

	f.writes(func() error { return f.l.DeleteToken(f.ctx, f.m, mine, "a") }, ledger.EventTokenDeleted)
	f.writes(func() error { return f.l.DeleteToken(f.ctx, f.m, mine, string(b.ID)) }, ledger.EventTokenDeleted, ledger.EventPrincipalRemoved)
	f.refused(errs.NotFound, func() error { return f.l.DeleteToken(f.ctx, f.m, mine, "a") })
	f.same("tokens left", len(must[[]ledger.TokenRecord](f)(f.l.Tokens(f.ctx, mine))), 0)
}

// testLastToken wants the name of a principal to be free with its last token, and
// nothing of the former one to speak for the next.
func testLastToken(f *fixture) {
	p := f.newPrincipal("ada")
	p = must[model.Principal](f)(f.l.CreateToken(f.ctx, f.m, p, f.newToken("one", p)))
	f.do(drop(f.l.CreateToken(f.ctx, f.m, p, f.newToken("two", p))))
	key := f.newSSHKey("desk", p)
	f.do(f.l.AddSSHKey(f.ctx, f.m, key))
	f.writes(func() error { return f.l.DeleteToken(f.ctx, f.m, mine, "one") }, ledger.EventTokenDeleted)
	f.same("principal of the other token", must[model.Principal](f)(f.l.Principal(f.ctx, p.ID)), p)
	f.writes(func() error { return f.l.DeleteToken(f.ctx, f.m, mine, "two") },
		ledger.EventTokenDeleted, ledger.EventSSHKeyRemoved, ledger.EventPrincipalRemoved)
	f.refused(errs.NotFound, func() error { return drop(f.l.Principal(f.ctx, p.ID)) })
	f.refused(errs.Unauthenticated, func() error { return drop(f.l.SSHKey(f.ctx, key.Fingerprint)) })

	next := f.newPrincipal("ada")
	next.ID, next.Class, next.Role = id[model.PrincipalID]("next"), model.ClassCI, model.RoleAdmin
	f.writes(func() (err error) {
		got, err := f.l.CreateToken(f.ctx, f.m, next, f.newToken("one", next))
		next.Created = f.now()
		f.same("the next of that name", got, next)
		return err
	}, ledger.EventPrincipalCreated, ledger.EventTokenCreated)
	rec := must[ledger.TokenRecord](f)(f.l.TokenByHash(f.ctx, f.m, f.newToken("one", next).Hash))
	f.same("principal of its token", rec.Principal, next)
}

func testTokenByHash(f *fixture) {
	p := must[model.Principal](f)(f.l.EnsurePrincipal(f.ctx, f.m, f.newPrincipal("ada")))
	k := f.newToken("k", p)
	k.Expires = start.Add(24 * time.Hour)
	f.do(drop(f.l.CreateToken(f.ctx, f.m, p, k)))
	find := func() ledger.TokenRecord {
		var rec ledger.TokenRecord
		f.writes(func() (err error) { // no event
			rec, err = f.l.TokenByHash(f.ctx, f.m, k.Hash)
			return err
		})
		f.same("token as listed", must[[]ledger.TokenRecord](f)(f.l.Tokens(f.ctx, mine)), []ledger.TokenRecord{rec})
		return rec
	}
	first := find()
	f.same("principal", first.Principal, p)
	f.same("first use", first.Token.LastUsed, f.now())
	f.advance(time.Hour - time.Microsecond)
	f.same("use within the hour", find().Token.LastUsed, first.Token.LastUsed)
	f.advance(time.Microsecond)
	f.same("use after an hour", find().Token.LastUsed, f.now())

	f.m.Now = start.Add(24*time.Hour - time.Microsecond)
	find()
	f.advance(time.Microsecond)
	f.refused(errs.Unauthenticated, func() error { return drop(f.l.TokenByHash(f.ctx, f.m, k.Hash)) })
	f.m.Now = start
	f.refused(errs.Unauthenticated, func() error { return drop(f.l.TokenByHash(f.ctx, f.m, [32]byte{1})) })
	f.do(f.l.DeleteToken(f.ctx, f.m, mine, k.Name))
	f.refused(errs.Unauthenticated, func() error { return drop(f.l.TokenByHash(f.ctx, f.m, k.Hash)) })
}
