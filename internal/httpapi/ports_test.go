package httpapi

import (
	"context"
	"testing"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/errs"
)

func portScenario(ctx context.Context, t *testing.T, c *api.Client) {
	link := must[api.PortLink](t)(c.OpenPort(ctx, "demo", api.OpenPortRequest{Port: 8080}))
	if link.URL == "" || link.PathURL == "" {
		t.Errorf("link is %+v", link)
	}
	_, err := c.SharePort(ctx, "demo", api.SharePortRequest{Port: 8080})
	wantKind(t, err, errs.Invalid)
	made := must[api.Share](t)(c.SharePort(ctx, "demo", api.SharePortRequest{Port: 8080, Public: true, For: "2h"}))
	if shares := must[[]api.Share](t)(c.Shares(ctx, "demo")); len(shares) != 1 || shares[0] != made {
		t.Errorf("shares are %+v, want %+v", shares, made)
	}
	check(t, c.UnsharePort(ctx, "demo", 8080))
	wantKind(t, c.UnsharePort(ctx, "demo", 8080), errs.NotFound)
}

// entranceScenario wants gateways alone to ask for visitors.
func entranceScenario(ctx context.Context, t *testing.T, person, gateway *api.Client) {
	must[api.Workspace](t)(person.CreateWorkspace(ctx, "", api.CreateWorkspaceRequest{Name: "web"}))
	check(t, person.Progress(ctx, "web", api.UntilRunning, func(api.Progress) error { return nil }))
	tell := func(api.ConnectPhase) error { return nil }
	_, err := person.EnterPort(ctx, api.VisitRequest{Workspace: "web", Port: 80, Proof: "blt_ann"}, tell)
	wantKind(t, err, errs.Denied)
	_, err = gateway.EnterPort(ctx, api.VisitRequest{Workspace: "web", Port: 80}, tell)
	wantKind(t, err, errs.Unauthenticated)
	phases := 0
	in := must[api.Entered](t)(gateway.EnterPort(ctx, api.VisitRequest{Workspace: "web", Port: 80, Proof: "blt_ann"}, func(api.ConnectPhase) error { phases++; return nil }))
	if in.Attachment.Ticket == "" || phases == 0 {
		t.Errorf("entered %+v after %d phases", in, phases)
	}
	if got := must[api.Admitted](t)(gateway.Admit(ctx, api.AdmitRequest{Workspace: "web", Proof: "blt_ann"})); got.Pass == "" {
		t.Error("admitted without a pass")
	}
	check(t, person.DeleteWorkspace(ctx, "web", true))
}
