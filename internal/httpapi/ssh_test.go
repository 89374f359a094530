package httpapi

import (
	"context"
	"testing"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/errs"
)

// sshScenario is what people ask for SSH.
func sshScenario(ctx context.Context, t *testing.T, c *api.Client) {
	if info := must[api.SSHInfo](t)(c.SSH(ctx)); info.HostAuthority == "" || info.HostAlias == "" {
		t.Errorf("ssh is %+v", info)
	}
	req := api.AddSSHKeyRequest{Name: "laptop", PublicKey: "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIKJ1yK5fE5Z0P6yJ8m5v1U0yq3n2m4Hq7n9r8t6w5x4y"}
	made := must[api.SSHKey](t)(c.AddSSHKey(ctx, req))
	_, err := c.AddSSHKey(ctx, req)
	wantKind(t, err, errs.Conflict)
	if keys := must[[]api.SSHKey](t)(c.SSHKeys(ctx)); len(keys) != 1 || keys[0].ID != made.ID {
		t.Errorf("keys are %+v", keys)
	}
	must[api.SSHCertificate](t)(c.SignSSH(ctx, api.SSHCertificateRequest{PublicKey: req.PublicKey, ValidFor: "10m"}))
	check(t, c.RemoveSSHKey(ctx, "laptop"))
	wantKind(t, c.RemoveSSHKey(ctx, "laptop"), errs.NotFound)
}

// gateScenario is what a gateway asks about somebody's workspace.
func gateScenario(ctx context.Context, t *testing.T, c, people *api.Client) {
	must[api.Workspace](t)(people.CreateWorkspace(ctx, "", api.CreateWorkspaceRequest{Name: "gate"}))
	check(t, people.Progress(ctx, "gate", api.UntilRunning, func(api.Progress) error { return nil }))
	if host := must[api.SSHHost](t)(c.SSHHost(ctx)); host.Key == "" || host.Certificate == "" {
		t.Error("there is no host key")
	}
	g := must[api.SSHGrant](t)(c.GrantSSH(ctx, api.SSHGrantRequest{PublicKey: "ssh-ed25519 AAAA", Workspace: "gate"}))
	_, err := c.GrantSSH(ctx, api.SSHGrantRequest{PublicKey: "ssh-ed25519 AAAA", Workspace: "nothing"})
	wantKind(t, err, errs.NotFound)
	phases := 0
	a := must[api.Attachment](t)(c.Enter(ctx, api.EnterRequest{Grant: g.Grant, Wake: true}, func(api.ConnectPhase) error { phases++; return nil }))
	if a.Ticket == "" || phases == 0 {
		t.Errorf("entered by %+v after %d phases", a, phases)
	}
	_, err = c.Enter(ctx, api.EnterRequest{Grant: "forged"}, func(api.ConnectPhase) error { return nil })
	if err == nil {
		t.Error("a forged grant opens a workspace")
	}
}
