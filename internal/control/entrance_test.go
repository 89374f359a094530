package control

import (
	"strings"
	"testing"
	"time"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/model"
)

// visits is a world with a workspace "web" that runs, and who comes to it.
func visits(t *testing.T) (*world, string) {
	w := newWorld(t)
	h := w.host("a")
	w.create(api.CreateWorkspaceRequest{Name: "web"})
	h.sync()
	h.sync(seen(h.only(), model.StateRunning))
	made, err := w.CreateToken(t.Context(), w.who, api.CreateTokenRequest{Name: "ann"})
	if err != nil {
		t.Fatal(err)
	}
	return w, made.Secret
}

func (w *world) visit(name string, port int, proof string) (api.Entered, error) {
	return w.EnterPort(w.t.Context(), api.VisitRequest{Workspace: name, Port: port, Proof: api.Secret(proof)}, func(api.ConnectPhase) error { return nil })
}

func (w *world) wantVisit(what, name string, port int, proof string, want errs.Kind) {
	w.t.Helper()
	in, err := w.visit(name, port, proof)
	if errs.KindOf(err) != want || (err == nil) != (in.Attachment.Ticket != "") {
		w.t.Errorf("%s: got %v (kind %q), want kind %q", what, err, errs.KindOf(err), want)
	}
}

// invariant 11: without a proof a workspace that is not there is as one that is.
func TestEntrance_WhoMayEnter(t *testing.T) {
	w, token := visits(t)
	w.wantVisit("nobody", "web", 80, "", errs.Unauthenticated)
	w.wantVisit("nobody, nothing there", "none", 80, "", errs.Unauthenticated)
	w.wantVisit("nobody, no name", "../etc", 80, "", errs.Unauthenticated)
	w.wantVisit("a wrong token", "web", 80, "blt_wrong", errs.Unauthenticated)
	w.wantVisit("no port", "web", 0, token, errs.Invalid)
	w.wantVisit("a token", "web", 80, token, "")
	w.wantVisit("a token, nothing there", "none", 80, token, errs.NotFound)
	ws, err := w.Workspace(t.Context(), w.who, "web")
	if err != nil {
		t.Fatal(err)
	}
	w.wantVisit("a token, by the id", string(ws.ID), 80, token, errs.NotFound)
	other, err := w.CreateToken(t.Context(), model.Principal{ID: "x", Tenant: "other", Role: model.RoleAdmin}, api.CreateTokenRequest{Name: "eve"})
	if err != nil {
		t.Fatal(err)
	}
	w.wantVisit("another tenant's token", "web", 80, other.Secret, errs.NotFound)
	node, err := w.CreateToken(t.Context(), w.who, api.CreateTokenRequest{Name: "box", Role: model.RoleNode})
	if err != nil {
		t.Fatal(err)
	}
	w.wantVisit("a node's token", "web", 80, node.Secret, errs.Denied)
}

func TestEntrance_PassOpensItsWorkspaceWhileItsHolderMay(t *testing.T) {
	w, token := visits(t)
	w.create(api.CreateWorkspaceRequest{Name: "second"})
	in, err := w.Admit(t.Context(), api.AdmitRequest{Workspace: "web", Proof: api.Secret(token)})
	if err != nil {
		t.Fatal(err)
	}
	pass := string(in.Pass)
	if strings.ContainsAny(pass, " ;,\"\\") || strings.Contains(pass, token) {
		t.Errorf("pass %q is no value of a cookie", pass)
	}
	w.wantVisit("a pass", "web", 80, pass, "")
	w.wantVisit("a pass, another port", "web", 8080, pass, "")
	w.wantVisit("a pass, another workspace", "second", 80, pass, errs.Unauthenticated)
	for i := range len(pass) {
		b := []byte(pass)
		b[i] ^= 1
		if _, err := w.visit("web", 80, string(b)); err == nil {
			t.Errorf("a pass with byte %d flipped opens", i)
		}
	}
	if _, err := w.Admit(t.Context(), api.AdmitRequest{Workspace: "second", Proof: in.Pass}); !errs.Is(err, errs.Unauthenticated) {
		t.Errorf("a pass for another workspace by a pass: got %v", err)
	}
	if err := w.DeleteToken(t.Context(), w.who, "ann"); err != nil {
		t.Fatal(err)
	}
	w.wantVisit("a pass of whose token was revoked", "web", 80, pass, errs.Unauthenticated)
}

func TestEntrance_PassExpires(t *testing.T) {
	w, token := visits(t)
	in, err := w.Admit(t.Context(), api.AdmitRequest{Workspace: "web", Proof: api.Secret(token)})
	if err != nil {
		t.Fatal(err)
	}
	w.clock.advance(in.Expires.Sub(w.clock.Now()))
	w.wantVisit("a pass at its end", "web", 80, string(in.Pass), errs.Unauthenticated)
}

func TestEntrance_LinkIsGoodOnce(t *testing.T) {
	w, _ := visits(t)
	w.create(api.CreateWorkspaceRequest{Name: "second"})
	link := func() api.Secret {
		t.Helper()
		l, err := w.OpenPort(t.Context(), w.who, "web", api.OpenPortRequest{Port: 80})
		if err != nil {
			t.Fatal(err)
		}
		_, ticket, ok := strings.Cut(l.URL, "?"+api.LinkParameter+"=")
		if want := "http://80-web.billet.localhost:7482/"; !ok || !strings.HasPrefix(l.URL, want) {
			t.Fatalf("link is %s, want one of %s", l.URL, want)
		}
		return api.Secret(ticket)
	}
	admit := func(name string, ticket api.Secret) error {
		_, err := w.Admit(t.Context(), api.AdmitRequest{Workspace: name, Proof: ticket})
		return err
	}
	ticket := link()
	w.wantVisit("a link's ticket as a pass", "web", 80, string(ticket), errs.Unauthenticated)
	if err := admit("second", ticket); !errs.Is(err, errs.Unauthenticated) {
		t.Errorf("for another workspace: got %v", err)
	}
	if err := admit("web", ticket); err != nil {
		t.Errorf("the first time: got %v", err)
	}
	if err := admit("web", ticket); !errs.Is(err, errs.Unauthenticated) {
		t.Errorf("the second time: got %v", err)
	}
	lost := link()
	w.clock.advance(time.Second)
	w.open() // a restart forgets what was used
	if err := admit("web", lost); !errs.Is(err, errs.Unauthenticated) {
		t.Errorf("from before a restart: got %v", err)
	}
	late := link()
	w.clock.advance(linkTTL)
	if err := admit("web", late); !errs.Is(err, errs.Unauthenticated) {
		t.Errorf("at its end: got %v", err)
	}
}

func TestEntrance_ShareIsPublicForItsTime(t *testing.T) {
	w, _ := visits(t)
	share := func(req api.SharePortRequest) error {
		_, err := w.SharePort(t.Context(), w.who, "web", req)
		return err
	}
	for _, bad := range []api.SharePortRequest{{Port: 80}, {Port: 0, Public: true}, {Port: 80, Public: true, For: "ever"}, {Port: 80, Public: true, For: "169h"}, {Port: 80, Public: true, For: "-1h"}} {
		if err := share(bad); !errs.Is(err, errs.Invalid) {
			t.Errorf("%+v: got %v, want invalid", bad, err)
		}
	}
	if err := share(api.SharePortRequest{Port: 80, Public: true, For: "30s"}); err != nil {
		t.Fatal(err)
	}
	in, err := w.visit("web", 80, "")
	if err != nil || !in.Public || !in.Until.Equal(w.clock.Now().Add(30*time.Second)) {
		t.Errorf("got %+v, %v, want public for 30s", in, err)
	}
	w.wantVisit("another port", "web", 81, "", errs.Unauthenticated)
	w.wantVisit("with a pass that is none", "web", 80, "blp_x.y", "")
	w.wantVisit("with a token that is none", "web", 80, "blt_wrong", errs.Unauthenticated)
	w.clock.advance(30 * time.Second)
	w.wantVisit("at its end", "web", 80, "", errs.Unauthenticated)

	if err := share(api.SharePortRequest{Port: 80, Public: true}); err != nil {
		t.Fatal(err)
	}
	if err := w.UnsharePort(t.Context(), w.who, "web", 80); err != nil {
		t.Fatal(err)
	}
	w.wantVisit("after it was ended", "web", 80, "", errs.Unauthenticated)
	if err := w.UnsharePort(t.Context(), w.who, "web", 80); !errs.Is(err, errs.NotFound) {
		t.Errorf("ended twice: got %v", err)
	}
}
