package control

import (
	"testing"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/model"
)

// A name is free with its last token: whoever has it next is somebody else.
func TestToken_NameIsFreeOnceItIsRemoved(t *testing.T) {
	w := newWorld(t)
	create := func(role model.Role) (model.Principal, error) {
		made, err := w.CreateToken(t.Context(), w.who, api.CreateTokenRequest{Name: "ada", Role: role})
		if err != nil {
			return model.Principal{}, err
		}
		return w.Authenticate(t.Context(), made.Secret)
	}
	first, err := create(model.RoleUser)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := create(model.RoleAdmin); !errs.Is(err, errs.Conflict) || errs.HintOf(err) == "" {
		t.Errorf("beside the first: %v, want a conflict with a hint", err)
	}
	if err := w.DeleteToken(t.Context(), w.who, "ada"); err != nil {
		t.Fatal(err)
	}
	next, err := create(model.RoleAdmin)
	if err != nil || next.Role != model.RoleAdmin || next.ID == first.ID {
		t.Errorf("after it was removed: %+v, %v, want another principal, an admin", next, err)
	}
}

// The principal of the Unix socket has no token that could take its role away.
func TestToken_LocalIsReserved(t *testing.T) {
	w := newWorld(t)
	_, err := w.CreateToken(t.Context(), w.who, api.CreateTokenRequest{Name: localName, Role: model.RoleUser})
	if !errs.Is(err, errs.Invalid) || errs.HintOf(err) == "" {
		t.Errorf("got %v, want it refused with a hint", err)
	}
	if again, err := w.Local(t.Context()); err != nil || again != w.who {
		t.Errorf("local is %+v, %v, want %+v", again, err, w.who)
	}
}
