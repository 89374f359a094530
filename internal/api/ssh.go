package api

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"time"

	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/model"
)

// SSHPlane is everything a gateway asks for those who come by SSH. The HTTP
// client and the control plane both implement it. A gateway keeps nothing of
// what it is told for longer than the connection that it was told for.
type SSHPlane interface {
	// SSHHost returns the host key of the deployment, which every gateway shows,
	// and a certificate for it.
	SSHHost(ctx context.Context) (SSHHost, error)
	// GrantSSH says who has a key and may enter a workspace with it.
	// errs.Unauthenticated: nobody has the key, or the certificate is not good.
	// errs.NotFound: the workspace is not there for who has it.
	GrantSSH(ctx context.Context, req SSHGrantRequest) (SSHGrant, error)
	// Enter opens a road to the workspace of a grant, as Service.Connect does,
	// or, without Wake, as Service.Attach does. errs.Unauthenticated once the
	// grant has expired, or the key that it was given for is removed.
	Enter(ctx context.Context, req EnterRequest, tell func(ConnectPhase) error) (Attachment, error)
}

// SSHInfo is what a client needs to know of the deployment's way in by SSH.
type SSHInfo struct {
	Listen        string `json:"listen,omitempty"` // host:port of the gateway's SSH server, as the server is told
	HostAlias     string `json:"host_alias"`       // the name that host certificates are for
	HostAuthority string `json:"host_authority"`   // public key, one line: signs host certificates
	UserAuthority string `json:"user_authority"`   // public key, one line: signs user certificates
	Principal     string `json:"principal"`        // id of who asks: the principal of its certificates
}

// SSHKey is a public key with which a principal may enter workspaces.
type SSHKey struct {
	ID          model.SSHKeyID `json:"id"`
	Name        string         `json:"name"`
	Principal   string         `json:"principal"` // name
	Fingerprint string         `json:"fingerprint"`
	PublicKey   string         `json:"public_key"`
	Created     time.Time      `json:"created"`
}

// AddSSHKeyRequest adds a public key, in OpenSSH's form of one line. An empty
// name is the key's comment.
type AddSSHKeyRequest struct {
	Name      string `json:"name,omitempty"`
	PublicKey string `json:"public_key"`
}

// SSHCertificateRequest asks for a certificate of a public key.
type SSHCertificateRequest struct {
	PublicKey string `json:"public_key"`
	ValidFor  string `json:"valid_for,omitempty"` // a duration; empty: an hour
}

// SSHCertificate lets its principal enter workspaces until it expires.
type SSHCertificate struct {
	Certificate string    `json:"certificate"` // one line
	Expires     time.Time `json:"expires"`
}

// SSHHost is the identity that gateways show to SSH clients.
type SSHHost struct {
	Key         Secret    `json:"key"`         // private key, PEM
	Certificate string    `json:"certificate"` // of its public key, one line
	Expires     time.Time `json:"expires"`     // of the certificate
}

// SSHGrantRequest presents a key or certificate that a client has proved to
// have, or the grant that was given for it, to have it renewed.
type SSHGrantRequest struct {
	PublicKey string `json:"public_key,omitempty"` // one line
	Grant     string `json:"grant,omitempty"`
	Workspace string `json:"workspace,omitempty"` // name or id; of a new grant
}

// SSHGrant lets a gateway act for a principal in one workspace.
type SSHGrant struct {
	Grant     string            `json:"grant"` // signed by control
	Principal model.PrincipalID `json:"principal"`
	Name      string            `json:"name"`
	Workspace model.WorkspaceID `json:"workspace"`
	Expires   time.Time         `json:"expires"`
}

// EnterRequest asks for a road into the workspace of a grant.
type EnterRequest struct {
	Grant string `json:"grant"`
	// Wake has a workspace that sleeps resumed. A stream that was cut is opened
	// again without it: what sleeps has no stream to go on with.
	Wake          bool  `json:"wake,omitempty"`
	DeadlineMilli int64 `json:"deadline_ms,omitempty"` // as in ConnectRequest
}

var _ SSHPlane = (*Client)(nil)

// SSH describes the deployment's way in by SSH.
func (c *Client) SSH(ctx context.Context) (SSHInfo, error) {
	return call[SSHInfo](ctx, c, http.MethodGet, "/v1/ssh", nil)
}

// AddSSHKey adds a public key of the caller's.
func (c *Client) AddSSHKey(ctx context.Context, req AddSSHKeyRequest) (SSHKey, error) {
	return call[SSHKey](ctx, c, http.MethodPost, "/v1/ssh/keys", req)
}

// SSHKeys lists the caller's keys, and everybody's for an admin.
func (c *Client) SSHKeys(ctx context.Context) ([]SSHKey, error) {
	return list[SSHKey](ctx, c, "/v1/ssh/keys")
}

// RemoveSSHKey removes by id, name or fingerprint.
func (c *Client) RemoveSSHKey(ctx context.Context, ref string) error {
	return c.do(ctx, http.MethodDelete, "/v1/ssh/keys/"+url.PathEscape(ref), nil, nil, nil)
}

// SignSSH makes a certificate for the caller.
func (c *Client) SignSSH(ctx context.Context, req SSHCertificateRequest) (SSHCertificate, error) {
	return call[SSHCertificate](ctx, c, http.MethodPost, "/v1/ssh/certificates", req)
}

// SSHHost implements SSHPlane.
func (c *Client) SSHHost(ctx context.Context) (SSHHost, error) {
	return call[SSHHost](ctx, c, http.MethodGet, "/v1/gateway/ssh/host", nil)
}

// GrantSSH implements SSHPlane.
func (c *Client) GrantSSH(ctx context.Context, req SSHGrantRequest) (SSHGrant, error) {
	return call[SSHGrant](ctx, c, http.MethodPost, "/v1/gateway/ssh/grants", req)
}

// Enter implements SSHPlane.
func (c *Client) Enter(ctx context.Context, req EnterRequest, tell func(ConnectPhase) error) (Attachment, error) {
	var out Attachment
	var problem *Problem
	err := c.stream(ctx, http.MethodPost, "/v1/gateway/ssh/enter", "", req, func(m message) (bool, error) {
		var u ConnectUpdate
		if err := json.Unmarshal(m.data, &u); err != nil {
			return false, errs.Wrap(errs.Internal, err, "decode the phase of a connection")
		}
		switch {
		case u.Phase != nil:
			return true, tell(*u.Phase)
		case u.Attachment != nil:
			out = *u.Attachment
		case u.Problem != nil:
			problem = u.Problem
		}
		return false, nil
	})
	if err != nil || problem == nil {
		return out, err
	}
	return out, problem.Err()
}
