package ledgertest

import (
	"time"

	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/ledger"
	"github.com/billethq/billet/internal/model"
)

func testNodes(f *fixture) {
	n := f.newNode("n", 4)
	f.writes(func() error { return f.l.SeeNode(f.ctx, f.m, n) }, ledger.EventNodeJoined)
	n.Created = f.now()
	f.advance(time.Second)
	f.writes(func() error { return f.l.SeeNode(f.ctx, f.m, n) }) // seen again
	n.LastSeen = f.now()
	f.same("nodes", must[[]model.Node](f)(f.l.Nodes(f.ctx)), []model.Node{n})

	for _, change := range []func(){
		func() { n.Capacity.VCPUs++ }, func() { n.Capacity.Memory-- }, func() { n.Capacity.Disk-- },
		func() { n.BootID = "boot-2" }, func() { n.Version = "v2" }, func() { n.Name = "m" }, func() { n.Driver = "qemu" },
	} {
		change()
		f.advance(time.Second)
		f.writes(func() error { return f.l.SeeNode(f.ctx, f.m, n) }, ledger.EventNodeChanged)
		n.LastSeen = f.now()
		f.same("changed node", must[[]model.Node](f)(f.l.Nodes(f.ctx)), []model.Node{n})
	}

	first := f.node("a", 1)
	got := must[[]model.Node](f)(f.l.Nodes(f.ctx))
	f.same("nodes by name", []model.NodeID{got[0].ID, got[1].ID}, []model.NodeID{first.ID, n.ID})
}

func (f *fixture) newGeneration(word string) model.ImageGeneration {
	return model.ImageGeneration{
		ID: id[model.GenerationID](word), Tenant: model.DefaultTenant, Region: model.DefaultRegion, Root: root(word),
		Source: "dir:" + word, DiskBytes: 1 << 30, UsedBytes: 1 << 20, StoredBytes: 1 << 10,
	}
}

func testImages(f *fixture) {
	img := model.Image{ID: id[model.ImageID]("img"), Tenant: model.DefaultTenant, Region: model.DefaultRegion, Name: "base"}
	commit := func(img model.Image, g model.ImageGeneration, events ...string) (rec ledger.ImageRecord) {
		f.Helper()
		f.writes(func() (err error) {
			rec, err = f.l.CommitGeneration(f.ctx, f.m, img, g)
			return err
		}, events...)
		return rec
	}
	g1, g2 := f.newGeneration("g1"), f.newGeneration("g2")
	first := commit(img, g1, ledger.EventImageCommitted)
	img.Head, img.Created, img.Updated = g1.ID, f.now(), f.now()
	g1.Image, g1.Created = img.ID, f.now()
	f.same("first generation", first, ledger.ImageRecord{Image: img, Head: g1})

	f.advance(time.Second)
	again := f.newGeneration("gx")
	again.Root = g1.Root
	f.same("the same root again", commit(img, again), first)

	other := img
	other.ID = id[model.ImageID]("ignored") // the name decides
	second := commit(other, g2, ledger.EventImageCommitted)
	img.Head, img.Updated = g2.ID, f.now()
	g2.Image, g2.Created = img.ID, f.now()
	f.same("second generation", second, ledger.ImageRecord{Image: img, Head: g2})

	back := f.newGeneration("g3")
	back.Root = g1.Root // not the head: a generation of its own
	third := commit(img, back, ledger.EventImageCommitted)
	f.same("a root that was head once", third.Head.ID, back.ID)

	for _, ref := range []string{"base", string(img.ID)} {
		rec, generations, err := f.l.Image(f.ctx, mine, ref)
		f.do(err)
		f.same("image", rec, third)
		f.same("generations, newest first", generations, []model.ImageGeneration{third.Head, second.Head, first.Head})
	}
	f.refused(errs.NotFound, func() error { _, _, err := f.l.Image(f.ctx, mine, "none"); return err })
	f.refused(errs.Conflict, func() error { // an id is never used twice
		return drop(f.l.CommitGeneration(f.ctx, f.m, model.Image{ID: id[model.ImageID]("new"), Name: "new"}, g1))
	})
	f.same("images", must[[]ledger.ImageRecord](f)(f.l.Images(f.ctx, mine)), []ledger.ImageRecord{third})

	w := f.workspace("made") // from the image, whose end it outlives
	f.writes(func() error { return f.l.DeleteImage(f.ctx, f.m, mine, "base") }, ledger.EventImageDeleted)
	f.refused(errs.NotFound, func() error { return f.l.DeleteImage(f.ctx, f.m, mine, "base") })
	f.same("workspace after its image", must[model.Workspace](f)(f.l.Workspace(f.ctx, mine, "made")), w)
	f.same("images left", len(must[[]ledger.ImageRecord](f)(f.l.Images(f.ctx, mine))), 0)
}

func testImageOwner(f *fixture) {
	ann, bob := id[model.PrincipalID]("ann"), id[model.PrincipalID]("bob")
	commit := func(owner model.PrincipalID, name, generation string) error {
		img := model.Image{ID: id[model.ImageID]("i" + generation), Tenant: model.DefaultTenant, Region: model.DefaultRegion, Owner: owner, Name: name}
		return drop(f.l.CommitGeneration(f.ctx, f.m, img, f.newGeneration(generation)))
	}
	owner := func(name string) model.PrincipalID {
		rec, _, err := f.l.Image(f.ctx, mine, name)
		f.do(err)
		return rec.Image.Owner
	}
	f.writes(func() error { return commit(ann, "hers", "g1") }, ledger.EventImageCommitted)
	f.writes(func() error { return commit(ann, "hers", "g2") }, ledger.EventImageCommitted)
	f.refused(errs.Denied, func() error { return commit(bob, "hers", "g3") })
	f.refused(errs.Denied, func() error { // not even when it changes nothing
		img := model.Image{ID: id[model.ImageID]("i"), Tenant: model.DefaultTenant, Region: model.DefaultRegion, Owner: bob, Name: "hers"}
		return drop(f.l.CommitGeneration(f.ctx, f.m, img, f.newGeneration("g2")))
	})
	f.writes(func() error { return commit("", "hers", "g4") }, ledger.EventImageCommitted)
	f.same("owner after an admin's generation", owner("hers"), ann)

	f.writes(func() error { return commit("", "admins", "g5") }, ledger.EventImageCommitted)
	f.refused(errs.Denied, func() error { return commit(ann, "admins", "g6") })
	f.same("owner of an admin's image", owner("admins"), model.PrincipalID(""))
}
