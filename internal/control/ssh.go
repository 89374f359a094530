package control

import (
	"context"
	"crypto/rand"
	"slices"
	"strings"
	"time"
	"unicode"

	"golang.org/x/crypto/ssh"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/ledger"
	"github.com/billethq/billet/internal/model"
)

const (
	// maxSSHKeys bounds the keys of one principal: each is one machine's.
	maxSSHKeys = 100
	// maxSSHKeyName bounds a key's name, which is most often its comment.
	maxSSHKeyName = 100
	// sshCertTTL is how long a user certificate lasts unless it is asked for
	// otherwise, and maxSSHCertTTL the most: nothing revokes one.
	sshCertTTL    = time.Hour
	maxSSHCertTTL = 24 * time.Hour
	// certBackdate makes a certificate good for a gateway whose clock is late.
	certBackdate = time.Minute
)

// SSH implements api.Service.
func (c *Control) SSH(_ context.Context, who model.Principal) (api.SSHInfo, error) {
	host, err := c.cfg.Secrets.SSHKey(sshHostAuthorityFile)
	if err != nil {
		return api.SSHInfo{}, err
	}
	user, err := c.cfg.Secrets.SSHKey(sshUserAuthorityFile)
	if err != nil {
		return api.SSHInfo{}, err
	}
	return api.SSHInfo{
		Listen: c.cfg.SSHListen, HostAlias: c.hostAlias(), HostAuthority: keyLine(host.PublicKey()),
		UserAuthority: keyLine(user.PublicKey()), Principal: string(who.ID),
	}, nil
}

// AddSSHKey implements api.Service.
func (c *Control) AddSSHKey(ctx context.Context, who model.Principal, req api.AddSSHKeyRequest) (api.SSHKey, error) {
	key, comment, err := plainKey(req.PublicKey)
	if err != nil {
		return api.SSHKey{}, err
	}
	k := model.SSHKey{
		ID: model.SSHKeyID(model.NewID()), Tenant: who.Tenant, Region: who.Region, Principal: who.ID,
		Name: keyName(req.Name, comment), Fingerprint: ssh.FingerprintSHA256(key), PublicKey: keyLine(key),
	}
	mine, err := c.SSHKeys(ctx, who)
	if err != nil {
		return api.SSHKey{}, err
	}
	if n := len(slices.DeleteFunc(mine, func(o api.SSHKey) bool { return o.Principal != who.Name })); n >= maxSSHKeys {
		return api.SSHKey{}, errs.New(errs.Exhausted, "%s has %d keys already", who.Name, n).WithHint("remove those that are used no more: billet ssh-key rm NAME")
	}
	m := c.meta(who.ID)
	if err := c.cfg.Ledger.AddSSHKey(ctx, m, k); err != nil {
		return api.SSHKey{}, err
	}
	k.Created = m.Now
	return sshKeyView(ledger.SSHKeyRecord{Key: k, Principal: who}), nil
}

// plainKey reads one public key that is no certificate.
func plainKey(line string) (key ssh.PublicKey, comment string, err error) {
	key, comment, _, rest, err := ssh.ParseAuthorizedKey([]byte(line))
	if err != nil || len(strings.TrimSpace(string(rest))) > 0 {
		return nil, "", errs.New(errs.Invalid, "this is not one public key in OpenSSH's form").WithHint("give the file that ends in .pub")
	}
	if _, isCert := key.(*ssh.Certificate); isCert {
		return nil, "", errs.New(errs.Invalid, "this is a certificate, not a key").WithHint("give the file that ends in .pub")
	}
	return key, comment, nil
}

// keyName makes a name that fits on a line.
func keyName(name, comment string) string {
	if name == "" {
		name = comment
	}
	name = strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, strings.ToValidUTF8(strings.TrimSpace(name), "?"))
	if name == "" {
		return "key"
	}
	if r := []rune(name); len(r) > maxSSHKeyName {
		return string(r[:maxSSHKeyName])
	}
	return name
}

func keyLine(key ssh.PublicKey) string {
	return strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key)))
}

func sshKeyView(rec ledger.SSHKeyRecord) api.SSHKey {
	return api.SSHKey{
		ID: rec.Key.ID, Name: rec.Key.Name, Principal: rec.Principal.Name, Fingerprint: rec.Key.Fingerprint,
		PublicKey: rec.Key.PublicKey, Created: rec.Key.Created,
	}
}

// SSHKeys implements api.Service: a user sees its own, an admin the tenant's.
func (c *Control) SSHKeys(ctx context.Context, who model.Principal) ([]api.SSHKey, error) {
	recs, err := c.cfg.Ledger.SSHKeys(ctx, who.Tenant)
	if err != nil {
		return nil, err
	}
	out := []api.SSHKey{}
	for _, r := range recs {
		if r.Principal.ID == who.ID || who.Role == model.RoleAdmin {
			out = append(out, sshKeyView(r))
		}
	}
	return out, nil
}

// RemoveSSHKey implements api.Service. The caller's own key comes before
// another one of that name.
func (c *Control) RemoveSSHKey(ctx context.Context, who model.Principal, ref string) error {
	keys, err := c.SSHKeys(ctx, who)
	if err != nil {
		return err
	}
	match := func(own bool) int {
		return slices.IndexFunc(keys, func(k api.SSHKey) bool {
			return (!own || k.Principal == who.Name) && (string(k.ID) == ref || k.Name == ref || k.Fingerprint == ref)
		})
	}
	i := match(true)
	if i < 0 {
		i = match(false)
	}
	if i < 0 {
		return errs.New(errs.NotFound, "ssh key %q is not there", ref).WithHint("see: billet ssh-key ls")
	}
	return c.cfg.Ledger.RemoveSSHKey(ctx, c.meta(who.ID), who.Tenant, keys[i].ID)
}

// SignSSH implements api.Service.
func (c *Control) SignSSH(_ context.Context, who model.Principal, req api.SSHCertificateRequest) (api.SSHCertificate, error) {
	key, _, err := plainKey(req.PublicKey)
	if err != nil {
		return api.SSHCertificate{}, err
	}
	ttl := sshCertTTL
	if req.ValidFor != "" {
		if ttl, err = time.ParseDuration(req.ValidFor); err != nil || ttl < time.Second || ttl > maxSSHCertTTL {
			return api.SSHCertificate{}, errs.New(errs.Invalid, "a certificate for %q", req.ValidFor).WithHint("write at most %v, as in 90m", maxSSHCertTTL)
		}
	}
	authority, err := c.cfg.Secrets.SSHKey(sshUserAuthorityFile)
	if err != nil {
		return api.SSHCertificate{}, err
	}
	return c.certify(authority, &ssh.Certificate{
		Key: key, CertType: ssh.UserCert, KeyId: who.Name, ValidPrincipals: []string{string(who.ID)},
		Permissions: ssh.Permissions{Extensions: map[string]string{
			"permit-pty": "", "permit-port-forwarding": "", "permit-agent-forwarding": "", "permit-user-rc": "", "permit-X11-forwarding": "",
		}},
	}, ttl)
}

func (c *Control) certify(authority ssh.Signer, cert *ssh.Certificate, ttl time.Duration) (api.SSHCertificate, error) {
	now := c.cfg.Clock.Now()
	expires := now.Add(ttl)
	cert.Serial = uint64(now.UnixNano())
	cert.ValidAfter, cert.ValidBefore = uint64(now.Add(-certBackdate).Unix()), uint64(expires.Unix())
	if err := cert.SignCert(rand.Reader, authority); err != nil {
		return api.SSHCertificate{}, errs.Wrap(errs.Internal, err, "sign a certificate")
	}
	return api.SSHCertificate{Certificate: keyLine(cert), Expires: time.Unix(expires.Unix(), 0).UTC()}, nil
}
