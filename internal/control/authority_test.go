package control

import (
	"testing"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/model"
	"github.com/billethq/billet/internal/road"
)

// user makes a principal of role user.
func (w *world) user(name string) model.Principal {
	w.t.Helper()
	made, err := w.CreateToken(w.t.Context(), w.who, api.CreateTokenRequest{Name: name})
	if err != nil {
		w.t.Fatal(err)
	}
	who, err := w.Authenticate(w.t.Context(), made.Secret)
	if err != nil {
		w.t.Fatal(err)
	}
	return who
}

// make has an image made as a client and a node do, and returns the ticket.
func (w *world) make(who model.Principal, name string, kind api.ImageKind, root model.Root) (road.Ticket, error) {
	w.t.Helper()
	a, err := w.AttachImages(w.t.Context(), who, api.AttachImagesRequest{Name: name, Kind: kind})
	if err != nil {
		return road.Ticket{}, err
	}
	t, err := road.Verify(w.TicketKey(), a.Ticket, w.clock.Now())
	if err != nil {
		w.t.Fatal(err)
	}
	_, err = w.CommitGeneration(w.t.Context(), api.CommitGenerationRequest{
		Image: t.Image, Root: root, DiskBytes: 8 << 30, Principal: t.Principal, Owner: t.Owner,
	})
	return t, err
}

func TestImages_WhoMayMakeAndRemoveWhat(t *testing.T) {
	w := newWorld(t) // has base; its tiers begin with base
	w.host("a")
	ann, bob := w.user("ann"), w.user("bob")
	for _, name := range []string{"anns", "shown"} {
		if _, err := w.make(ann, name, api.ImageStream, rootN("1")); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.make(w.who, "admins", api.ImageStream, rootN("1")); err != nil {
		t.Fatal(err)
	}
	const allowed = errs.Kind("")
	for _, c := range []struct {
		what string
		who  model.Principal
		name string
		kind api.ImageKind
		want errs.Kind
	}{
		{"a new name", bob, "bobs", api.ImageStream, allowed},
		{"a new name, pulled", bob, "pulled", api.ImageOCI, allowed},
		{"one's own again", ann, "anns", api.ImageStream, allowed},
		{"another user's", bob, "anns", api.ImageStream, errs.Denied},
		{"an admin's", bob, "admins", api.ImageOCI, errs.Denied},
		{"base", bob, "base", api.ImageStream, errs.Denied},
		{"a Debian under a new name", bob, "deb", api.ImageDebian, errs.Denied},
		{"a Debian over one's own", ann, "anns", api.ImageDebian, errs.Denied},
		{"a kind that is none", bob, "odd", "floppy", errs.Invalid},
		{"a name that is none", bob, "../base", api.ImageStream, errs.Invalid},
		{"an admin: a user's", w.who, "anns", api.ImageStream, allowed},
		{"an admin: base", w.who, "base", api.ImageDebian, allowed},
	} {
		_, err := w.make(c.who, c.name, c.kind, rootN("2"))
		if errs.KindOf(err) != c.want {
			t.Errorf("make %s: got %v, want kind %q", c.what, err, c.want)
		}
		if errs.Is(err, errs.Denied) && errs.HintOf(err) == "" {
			t.Errorf("make %s: %v has no hint", c.what, err)
		}
	}
	for _, c := range []struct {
		what string
		who  model.Principal
		name string
		want errs.Kind
	}{
		{"another user's", bob, "anns", errs.Denied},
		{"an admin's", bob, "admins", errs.Denied},
		{"base", bob, "base", errs.Denied},
		{"one's own, which an admin gave a generation", ann, "anns", allowed},
		{"what is not there", ann, "anns", errs.NotFound},
		{"an admin: a user's", w.who, "shown", allowed},
		{"an admin: base", w.who, "base", allowed},
	} {
		if err := w.DeleteImage(t.Context(), c.who, c.name); errs.KindOf(err) != c.want {
			t.Errorf("remove %s: got %v, want kind %q", c.what, err, c.want)
		}
	}
	if _, err := w.make(bob, "base", api.ImageStream, rootN("3")); !errs.Is(err, errs.Denied) {
		t.Errorf("base while there is none: got %v, want denied", err)
	}
}

// Two users may ask for the same new name at once: the first to commit has it.
func TestImages_SecondCommitOfANewNameIsDenied(t *testing.T) {
	w := newWorld(t)
	w.host("a")
	ann, bob := w.user("ann"), w.user("bob")
	attach := func(who model.Principal) road.Ticket {
		a, err := w.AttachImages(t.Context(), who, api.AttachImagesRequest{Name: "same", Kind: api.ImageStream})
		if err != nil {
			t.Fatal(err)
		}
		ticket, err := road.Verify(w.TicketKey(), a.Ticket, w.clock.Now())
		if err != nil {
			t.Fatal(err)
		}
		return ticket
	}
	commit := func(ticket road.Ticket, root model.Root) error {
		_, err := w.CommitGeneration(t.Context(), api.CommitGenerationRequest{Image: ticket.Image, Root: root, Principal: ticket.Principal, Owner: ticket.Owner})
		return err
	}
	hers, his := attach(ann), attach(bob)
	if err := commit(hers, rootN("1")); err != nil {
		t.Fatal(err)
	}
	if err := commit(his, rootN("2")); !errs.Is(err, errs.Denied) {
		t.Errorf("the second commit: got %v, want denied", err)
	}
	if img, err := w.Image(t.Context(), w.who, "same"); err != nil || img.Root != rootN("1") {
		t.Errorf("the image: got %s, %v, want the first one's root", img.Root, err)
	}
}
