package control

import (
	"testing"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/model"
)

// invariant 11: an admin of another tenant finds nothing of this one's.
func TestTenants_AnothersThingsAreNotThere(t *testing.T) {
	w := newWorld(t)
	w.host("a")
	w.create(api.CreateWorkspaceRequest{Name: "one"})
	if _, err := w.CreateToken(t.Context(), w.who, api.CreateTokenRequest{Name: "ada"}); err != nil {
		t.Fatal(err)
	}
	other := model.Principal{ID: "other", Tenant: "other", Role: model.RoleAdmin, Class: model.ClassHuman}
	for what, call := range map[string]func() error{
		"workspace":    func() error { _, err := w.Workspace(t.Context(), other, "one"); return err },
		"its events":   func() error { _, err := w.Events(t.Context(), other, "one", 0, 0); return err },
		"image":        func() error { _, err := w.Image(t.Context(), other, "base"); return err },
		"delete image": func() error { return w.DeleteImage(t.Context(), other, "base") },
		"delete token": func() error { return w.DeleteToken(t.Context(), other, "ada") },
	} {
		if err := call(); !errs.Is(err, errs.NotFound) {
			t.Errorf("%s: got %v, want not found", what, err)
		}
	}
	for what, count := range map[string]func() (int, error){
		"workspaces": func() (int, error) { l, err := w.Workspaces(t.Context(), other); return len(l), err },
		"images":     func() (int, error) { l, err := w.Images(t.Context(), other); return len(l), err },
		"tokens":     func() (int, error) { l, err := w.Tokens(t.Context(), other); return len(l), err },
		"events":     func() (int, error) { l, err := w.Events(t.Context(), other, "", 0, 0); return len(l), err },
	} {
		if n, err := count(); err != nil || n != 0 {
			t.Errorf("%s: got %d, %v, want none", what, n, err)
		}
	}
}
