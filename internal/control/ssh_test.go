package control

import (
	"crypto/ed25519"
	"crypto/rand"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/model"
)

// newKey makes a key pair of a client's.
func newKey(t *testing.T) (ssh.Signer, string) {
	t.Helper()
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	s, err := ssh.NewSignerFromSigner(private)
	if err != nil {
		t.Fatal(err)
	}
	return s, keyLine(s.PublicKey())
}

func (w *world) enter(key, workspace string) (api.SSHGrant, error) {
	return w.GrantSSH(w.t.Context(), api.SSHGrantRequest{PublicKey: key, Workspace: workspace})
}

func TestSSH_KeysAreTheirPrincipals(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	ada, bob := w.user("ada"), w.user("bob")
	if _, err := w.CreateWorkspace(ctx, ada, "", api.CreateWorkspaceRequest{Name: "demo", Stopped: true}); err != nil {
		t.Fatal(err)
	}
	_, line := newKey(t)
	if _, err := w.enter(line, "demo"); !errs.Is(err, errs.Unauthenticated) {
		t.Errorf("a key that nobody has: got %v, want unauthenticated", err)
	}
	k, err := w.AddSSHKey(ctx, ada, api.AddSSHKeyRequest{PublicKey: line + " ada@laptop\n"})
	if err != nil || k.Name != "ada@laptop" || !strings.HasPrefix(k.Fingerprint, "SHA256:") {
		t.Fatalf("key is %+v, %v", k, err)
	}
	for who, want := range map[string]errs.Kind{line: errs.Conflict, "ssh-ed25519 x": errs.Invalid, "": errs.Invalid, line + "\n" + line: errs.Invalid} {
		if _, err := w.AddSSHKey(ctx, bob, api.AddSSHKeyRequest{PublicKey: who}); !errs.Is(err, want) {
			t.Errorf("add %q: got %v, want %s", who, err, want)
		}
	}
	g, err := w.enter(line, "demo")
	if err != nil || g.Principal != ada.ID {
		t.Fatalf("grant is %+v, %v", g, err)
	}
	if _, err := w.enter(line, "other"); !errs.Is(err, errs.NotFound) {
		t.Errorf("a workspace that is not there: got %v", err)
	}
	if keys, _ := w.SSHKeys(ctx, bob); len(keys) != 0 {
		t.Errorf("bob sees %+v", keys)
	}
	if err := w.RemoveSSHKey(ctx, bob, k.Name); !errs.Is(err, errs.NotFound) {
		t.Errorf("bob removes ada's key: got %v", err)
	}
	if keys, _ := w.SSHKeys(ctx, w.who); len(keys) != 1 {
		t.Errorf("an admin sees %+v", keys)
	}
	if err := w.RemoveSSHKey(ctx, ada, k.Fingerprint); err != nil {
		t.Fatal(err)
	}
	// A key that was removed opens nothing, whatever was granted for it before.
	if _, err := w.Enter(ctx, api.EnterRequest{Grant: g.Grant}, func(api.ConnectPhase) error { return nil }); !errs.Is(err, errs.Unauthenticated) {
		t.Errorf("enter after the key was removed: got %v, want unauthenticated", err)
	}
}

func TestSSH_OtherTenantsWorkspaceIsNotThere(t *testing.T) {
	w := newWorld(t)
	if _, err := w.CreateWorkspace(t.Context(), w.who, "", api.CreateWorkspaceRequest{Name: "demo", Stopped: true}); err != nil {
		t.Fatal(err)
	}
	stranger, err := w.cfg.Ledger.EnsurePrincipal(t.Context(), w.meta(""), model.Principal{
		ID: model.PrincipalID(model.NewID()), Tenant: "other", Region: model.DefaultRegion, Name: "eve", Class: model.ClassHuman, Role: model.RoleUser,
	})
	if err != nil {
		t.Fatal(err)
	}
	_, line := newKey(t)
	if _, err := w.AddSSHKey(t.Context(), stranger, api.AddSSHKeyRequest{PublicKey: line}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.enter(line, "demo"); !errs.Is(err, errs.NotFound) {
		t.Errorf("got %v, want not found", err)
	}
}

func TestSSH_Certificates(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	ada := w.user("ada")
	if _, err := w.CreateWorkspace(ctx, ada, "", api.CreateWorkspaceRequest{Name: "demo", Stopped: true}); err != nil {
		t.Fatal(err)
	}
	_, line := newKey(t)
	made, err := w.SignSSH(ctx, ada, api.SSHCertificateRequest{PublicKey: line, ValidFor: "10m"})
	if err != nil {
		t.Fatal(err)
	}
	g, err := w.enter(made.Certificate, "demo")
	if err != nil || g.Principal != ada.ID {
		t.Errorf("grant is %+v, %v", g, err)
	}
	if _, err := w.SignSSH(ctx, ada, api.SSHCertificateRequest{PublicKey: made.Certificate}); !errs.Is(err, errs.Invalid) {
		t.Errorf("a certificate of a certificate: got %v", err)
	}
	if _, err := w.SignSSH(ctx, ada, api.SSHCertificateRequest{PublicKey: line, ValidFor: "25h"}); !errs.Is(err, errs.Invalid) {
		t.Errorf("a certificate for 25 hours: got %v", err)
	}

	// Certificates that somebody else made, or for other things.
	key, _ := newKey(t)
	other, _ := newKey(t)
	host, err := w.cfg.Secrets.SSHKey(sshHostAuthorityFile)
	if err != nil {
		t.Fatal(err)
	}
	user, err := w.cfg.Secrets.SSHKey(sshUserAuthorityFile)
	if err != nil {
		t.Fatal(err)
	}
	good := func() *ssh.Certificate {
		return &ssh.Certificate{Key: key.PublicKey(), CertType: ssh.UserCert, ValidPrincipals: []string{string(ada.ID)}}
	}
	for name, c := range map[string]struct {
		signer ssh.Signer
		change func(*ssh.Certificate)
	}{
		"another authority":  {other, func(*ssh.Certificate) {}},
		"the host authority": {host, func(*ssh.Certificate) {}},
		"of a host":          {user, func(c *ssh.Certificate) { c.CertType = ssh.HostCert }},
		"of two":             {user, func(c *ssh.Certificate) { c.ValidPrincipals = append(c.ValidPrincipals, "x") }},
		"of a stranger":      {user, func(c *ssh.Certificate) { c.ValidPrincipals = []string{"stranger"} }},
		"with a condition":   {user, func(c *ssh.Certificate) { c.CriticalOptions = map[string]string{"force-command": "true"} }},
	} {
		cert := good()
		c.change(cert)
		got, err := w.certify(c.signer, cert, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.enter(got.Certificate, "demo"); !errs.Is(err, errs.Unauthenticated) {
			t.Errorf("certificate %s: got %v, want unauthenticated", name, err)
		}
	}
	if got, err := w.certify(user, good(), time.Hour); err != nil {
		t.Fatal(err)
	} else if _, err := w.enter(got.Certificate, "demo"); err != nil { // or the cases above prove nothing
		t.Errorf("a good certificate: got %v", err)
	}

	w.clock.advance(10 * time.Minute)
	if _, err := w.enter(made.Certificate, "demo"); !errs.Is(err, errs.Unauthenticated) {
		t.Errorf("after its end: got %v, want unauthenticated", err)
	}
	// A session that began in time goes on.
	if _, err := w.GrantSSH(ctx, api.SSHGrantRequest{Grant: g.Grant}); err != nil {
		t.Errorf("renew the grant: got %v", err)
	}
	w.clock.advance(grantTTL)
	if _, err := w.GrantSSH(ctx, api.SSHGrantRequest{Grant: g.Grant}); !errs.Is(err, errs.Unauthenticated) {
		t.Errorf("a grant after its end: got %v, want unauthenticated", err)
	}
}

// A grant is no ticket and a ticket no grant, although one key signs both.
func TestSSH_ForgedGrantsAreRefused(t *testing.T) {
	w := newWorld(t)
	w.host("a")
	a, err := w.AttachImages(t.Context(), w.who, api.AttachImagesRequest{Name: "x", Kind: api.ImageStream})
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"", ".", "e30.e30", a.Ticket} {
		if _, err := w.Enter(t.Context(), api.EnterRequest{Grant: text}, func(api.ConnectPhase) error { return nil }); !errs.Is(err, errs.Unauthenticated) {
			t.Errorf("grant %q: got %v, want unauthenticated", text, err)
		}
	}
}

func TestSSH_HostIsOneForAllGateways(t *testing.T) {
	w := newWorld(t)
	first, err := w.SSHHost(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	host, err := w.cfg.Secrets.SSHKey(sshHostFile) // as after a restart of the server
	if err != nil {
		t.Fatal(err)
	}
	a, err := ssh.ParsePrivateKey([]byte(first.Key))
	if err != nil {
		t.Fatal(err)
	}
	if keyLine(a.PublicKey()) != keyLine(host.PublicKey()) {
		t.Error("the host key is not the one that is kept")
	}
	public, _, _, _, err := ssh.ParseAuthorizedKey([]byte(first.Certificate))
	if err != nil {
		t.Fatal(err)
	}
	info, err := w.SSH(t.Context(), w.who)
	if err != nil {
		t.Fatal(err)
	}
	checker := ssh.CertChecker{Clock: w.clock.Now, IsHostAuthority: func(k ssh.PublicKey, _ string) bool { return keyLine(k) == info.HostAuthority }}
	if err := checker.CheckHostKey(info.HostAlias+":22", nil, public); err != nil {
		t.Errorf("its certificate: %v", err)
	}
	w.clock.advance(hostCertTTL)
	if err := checker.CheckHostKey(info.HostAlias+":22", nil, public); err == nil {
		t.Error("its certificate has no end")
	}
}
