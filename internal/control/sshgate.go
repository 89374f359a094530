package control

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"slices"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/model"
)

const (
	// hostCertTTL is how long a host certificate lasts. Gateways ask for a new
	// one each day; one that finds no server for a week has other troubles.
	hostCertTTL = 7 * 24 * time.Hour
	// grantTTL is how long a gateway may act for a principal without asking
	// again, and it does ask while the connection lasts. A key that was removed
	// opens nothing from that moment on, whatever the grant says.
	grantTTL = 24 * time.Hour
	// grantPrefix separates what is signed here from tickets, which the same key
	// signs: neither can be taken for the other.
	grantPrefix = "billet-grant/1\n"
	// maxGrantBytes bounds what is looked at before the signature.
	maxGrantBytes = 2 << 10
)

// hostAlias is the name under which clients keep the deployment's host
// authority: gateways come and go, and each shows a certificate for it.
func (c *Control) hostAlias() string { return "billet-" + c.deployment.ID }

// SSHHost implements api.SSHPlane.
func (c *Control) SSHHost(context.Context) (api.SSHHost, error) {
	key, err := c.cfg.Secrets.key(sshHostFile)
	if err != nil {
		return api.SSHHost{}, err
	}
	authority, err := c.cfg.Secrets.SSHKey(sshHostAuthorityFile)
	if err != nil {
		return api.SSHHost{}, err
	}
	private := ed25519.NewKeyFromSeed(key)
	public, err := ssh.NewPublicKey(private.Public())
	if err != nil {
		return api.SSHHost{}, errs.Wrap(errs.Internal, err, "make the host key")
	}
	block, err := ssh.MarshalPrivateKey(private, "billet")
	if err != nil {
		return api.SSHHost{}, errs.Wrap(errs.Internal, err, "encode the host key")
	}
	cert, err := c.certify(authority, &ssh.Certificate{
		Key: public, CertType: ssh.HostCert, KeyId: c.hostAlias(), ValidPrincipals: []string{c.hostAlias()},
	}, hostCertTTL)
	return api.SSHHost{Key: api.Secret(pem.EncodeToMemory(block)), Certificate: cert.Certificate, Expires: cert.Expires}, err
}

// grant is what a gateway holds for one connection.
type grant struct {
	Deployment string            `json:"dep"`
	Principal  model.PrincipalID `json:"who"`
	Workspace  model.WorkspaceID `json:"ws"`
	Key        string            `json:"key,omitempty"` // fingerprint; "" of a certificate
	Expires    time.Time         `json:"exp"`
}

// GrantSSH implements api.SSHPlane.
func (c *Control) GrantSSH(ctx context.Context, req api.SSHGrantRequest) (api.SSHGrant, error) {
	var g grant
	var who model.Principal
	var err error
	ref := req.Workspace
	if req.Grant != "" {
		if g, who, err = c.holder(ctx, req.Grant); err != nil {
			return api.SSHGrant{}, err
		}
		ref = string(g.Workspace)
	} else if g.Key, who, err = c.bearer(ctx, req.PublicKey); err != nil {
		return api.SSHGrant{}, err
	}
	if who.Role != model.RoleAdmin && who.Role != model.RoleUser {
		return api.SSHGrant{}, errs.New(errs.Denied, "%s is a %s and has no workspaces", who.Name, who.Role)
	}
	ws, err := c.find(ctx, who, ref)
	if err != nil {
		return api.SSHGrant{}, err
	}
	g.Deployment, g.Principal, g.Workspace, g.Expires = c.deployment.ID, who.ID, ws.ID, c.cfg.Clock.Now().Add(grantTTL)
	text, err := c.signGrant(g)
	return api.SSHGrant{Grant: text, Principal: who.ID, Name: who.Name, Workspace: ws.ID, Expires: g.Expires}, err
}

// bearer finds who has a key or certificate.
func (c *Control) bearer(ctx context.Context, line string) (fingerprint string, who model.Principal, err error) {
	key, _, _, _, err := ssh.ParseAuthorizedKey([]byte(line))
	if err != nil {
		return "", who, errs.New(errs.Invalid, "this is not a public key")
	}
	if cert, ok := key.(*ssh.Certificate); ok {
		who, err = c.certified(ctx, cert)
		return "", who, err
	}
	fingerprint = ssh.FingerprintSHA256(key)
	rec, err := c.cfg.Ledger.SSHKey(ctx, fingerprint)
	return fingerprint, rec.Principal, err
}

func (c *Control) certified(ctx context.Context, cert *ssh.Certificate) (model.Principal, error) {
	bad := func(why string) (model.Principal, error) {
		return model.Principal{}, errs.New(errs.Unauthenticated, "certificate refused: %s", why).WithHint("make a new one with: billet ssh-cert")
	}
	authority, err := c.cfg.Secrets.SSHKey(sshUserAuthorityFile)
	if err != nil {
		return model.Principal{}, err
	}
	if len(cert.ValidPrincipals) != 1 || cert.CertType != ssh.UserCert {
		return bad("it is not one of a user")
	}
	checker := ssh.CertChecker{
		Clock:           c.cfg.Clock.Now,
		IsUserAuthority: func(k ssh.PublicKey) bool { return slices.Equal(k.Marshal(), authority.PublicKey().Marshal()) },
	}
	if !checker.IsUserAuthority(cert.SignatureKey) {
		return bad("this deployment did not sign it")
	}
	if err := checker.CheckCert(cert.ValidPrincipals[0], cert); err != nil {
		return bad(strings.TrimPrefix(err.Error(), "ssh: "))
	}
	who, err := c.cfg.Ledger.Principal(ctx, model.PrincipalID(cert.ValidPrincipals[0]))
	if errs.Is(err, errs.NotFound) {
		return bad("its principal is not there")
	}
	return who, err
}

// Enter implements api.SSHPlane.
func (c *Control) Enter(ctx context.Context, req api.EnterRequest, tell func(api.ConnectPhase) error) (api.Attachment, error) {
	g, who, err := c.holder(ctx, req.Grant)
	if err != nil {
		return api.Attachment{}, err
	}
	if !req.Wake {
		return c.Attach(ctx, who, string(g.Workspace))
	}
	return c.Connect(ctx, who, string(g.Workspace), api.ConnectRequest{DeadlineMilli: req.DeadlineMilli}, tell)
}

func (c *Control) signGrant(g grant) (string, error) {
	body, err := json.Marshal(g)
	if err != nil {
		return "", errs.Wrap(errs.Internal, err, "encode a grant")
	}
	enc := base64.RawURLEncoding
	return enc.EncodeToString(body) + "." + enc.EncodeToString(ed25519.Sign(c.signer, append([]byte(grantPrefix), body...))), nil
}

// holder checks a grant and finds for whom it was given.
func (c *Control) holder(ctx context.Context, text string) (g grant, who model.Principal, err error) {
	bad := func(why string) (grant, model.Principal, error) {
		return grant{}, model.Principal{}, errs.New(errs.Unauthenticated, "grant refused: %s", why).WithHint("connect again")
	}
	head, tail, ok := strings.Cut(text, ".")
	enc := base64.RawURLEncoding
	body, err1 := enc.DecodeString(head)
	sig, err2 := enc.DecodeString(tail)
	if !ok || err1 != nil || err2 != nil || len(text) > maxGrantBytes {
		return bad("malformed")
	}
	if !ed25519.Verify(c.TicketKey(), append([]byte(grantPrefix), body...), sig) {
		return bad("not signed by this deployment")
	}
	if err := json.Unmarshal(body, &g); err != nil || g.Deployment != c.deployment.ID {
		return bad("malformed")
	}
	if !c.cfg.Clock.Now().Before(g.Expires) {
		return bad("expired")
	}
	if g.Key == "" {
		who, err = c.cfg.Ledger.Principal(ctx, g.Principal)
		return g, who, err
	}
	rec, err := c.cfg.Ledger.SSHKey(ctx, g.Key)
	if errs.Is(err, errs.Unauthenticated) || err == nil && rec.Principal.ID != g.Principal {
		return bad("its key has been removed")
	}
	return g, rec.Principal, err
}
