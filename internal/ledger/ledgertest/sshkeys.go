package ledgertest

import (
	"time"

	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/ledger"
	"github.com/billethq/billet/internal/model"
)

func (f *fixture) newSSHKey(word string, p model.Principal) model.SSHKey {
	return model.SSHKey{
		ID: id[model.SSHKeyID](word), Tenant: p.Tenant, Region: p.Region, Principal: p.ID, Name: word,
		Fingerprint: "SHA256:" + word, PublicKey: "ssh-ed25519 " + word, Created: f.now(),
	}
}

func testSSHKeys(f *fixture) {
	ada := must[model.Principal](f)(f.l.EnsurePrincipal(f.ctx, f.m, f.newPrincipal("ada")))
	bob := must[model.Principal](f)(f.l.EnsurePrincipal(f.ctx, f.m, f.newPrincipal("bob")))
	f.same("principal by id", must[model.Principal](f)(f.l.Principal(f.ctx, ada.ID)), ada)
	f.refused(errs.NotFound, func() error { return drop(f.l.Principal(f.ctx, id[model.PrincipalID]("nobody"))) })

	f.same("no keys", len(must[[]ledger.SSHKeyRecord](f)(f.l.SSHKeys(f.ctx, mine))), 0)
	f.advance(time.Hour)
	laptop, desk := f.newSSHKey("laptop", ada), f.newSSHKey("desk", bob)
	f.writes(func() error { return f.l.AddSSHKey(f.ctx, f.m, desk) }, ledger.EventSSHKeyAdded)
	f.writes(func() error { return f.l.AddSSHKey(f.ctx, f.m, laptop) }, ledger.EventSSHKeyAdded)
	f.same("keys by principal", must[[]ledger.SSHKeyRecord](f)(f.l.SSHKeys(f.ctx, mine)),
		[]ledger.SSHKeyRecord{{Key: laptop, Principal: ada}, {Key: desk, Principal: bob}})
	f.same("key by fingerprint", must[ledger.SSHKeyRecord](f)(f.l.SSHKey(f.ctx, desk.Fingerprint)), ledger.SSHKeyRecord{Key: desk, Principal: bob})
	f.refused(errs.Unauthenticated, func() error { return drop(f.l.SSHKey(f.ctx, "SHA256:other")) })

	for _, change := range []func(*model.SSHKey){
		func(k *model.SSHKey) { k.Fingerprint = desk.Fingerprint }, // another principal's
		func(k *model.SSHKey) { k.Name = laptop.Name },
		func(k *model.SSHKey) { k.ID = laptop.ID },
	} {
		k := f.newSSHKey("third", ada)
		change(&k)
		f.refused(errs.Conflict, func() error { return f.l.AddSSHKey(f.ctx, f.m, k) })
	}
	stray := f.newSSHKey("stray", ada)
	stray.Principal = id[model.PrincipalID]("nobody")
	f.refused(errs.NotFound, func() error { return f.l.AddSSHKey(f.ctx, f.m, stray) })
	same := f.newSSHKey("same", bob) // a name is a principal's own
	same.Name = laptop.Name
	f.do(f.l.AddSSHKey(f.ctx, f.m, same))

	f.writes(func() error { return f.l.RemoveSSHKey(f.ctx, f.m, mine, laptop.ID) }, ledger.EventSSHKeyRemoved)
	f.refused(errs.NotFound, func() error { return f.l.RemoveSSHKey(f.ctx, f.m, mine, laptop.ID) })
	f.refused(errs.Unauthenticated, func() error { return drop(f.l.SSHKey(f.ctx, laptop.Fingerprint)) })
	f.do(f.l.AddSSHKey(f.ctx, f.m, laptop))
}
