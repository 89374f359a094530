package apitest

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/model"
)

// grantOf begins every grant of the fake; the workspace follows.
const grantOf = "grant of "

// SSH implements api.Service.
func (f *Fake) SSH(_ context.Context, who model.Principal) (api.SSHInfo, error) {
	defer f.mu.Unlock()
	return api.SSHInfo{
		Listen: "127.0.0.1:7422", HostAlias: "billet-" + ID("d"), HostAuthority: "ssh-ed25519 AAAAhost", UserAuthority: "ssh-ed25519 AAAAuser",
		Principal: string(who.ID),
	}, f.enter("SSH")
}

// AddSSHKey implements api.Service.
func (f *Fake) AddSSHKey(_ context.Context, who model.Principal, req api.AddSSHKeyRequest) (api.SSHKey, error) {
	defer f.mu.Unlock()
	if err := f.enter("AddSSHKey", req.Name); err != nil {
		return api.SSHKey{}, err
	}
	if slices.ContainsFunc(f.sshKeys, func(k api.SSHKey) bool { return k.PublicKey == req.PublicKey }) {
		return api.SSHKey{}, errs.New(errs.Conflict, "this key is known already").WithHint("see: billet ssh-key ls")
	}
	name := req.Name
	if name == "" {
		name = "comment"
	}
	k := api.SSHKey{ID: model.SSHKeyID(ID("k" + name)), Name: name, Principal: who.Name, Fingerprint: "SHA256:" + name, PublicKey: req.PublicKey, Created: now}
	f.sshKeys = append(f.sshKeys, k)
	return k, nil
}

// SSHKeys implements api.Service.
func (f *Fake) SSHKeys(context.Context, model.Principal) ([]api.SSHKey, error) {
	defer f.mu.Unlock()
	return slices.Clone(f.sshKeys), f.enter("SSHKeys")
}

// RemoveSSHKey implements api.Service.
func (f *Fake) RemoveSSHKey(_ context.Context, _ model.Principal, ref string) error {
	defer f.mu.Unlock()
	if err := f.enter("RemoveSSHKey", ref); err != nil {
		return err
	}
	i := slices.IndexFunc(f.sshKeys, func(k api.SSHKey) bool { return k.Name == ref || string(k.ID) == ref })
	if i < 0 {
		return errs.New(errs.NotFound, "ssh key %q is not there", ref)
	}
	f.sshKeys = slices.Delete(f.sshKeys, i, i+1)
	return nil
}

// SignSSH implements api.Service.
func (f *Fake) SignSSH(_ context.Context, _ model.Principal, req api.SSHCertificateRequest) (api.SSHCertificate, error) {
	defer f.mu.Unlock()
	return api.SSHCertificate{Certificate: "cert of " + req.PublicKey, Expires: now.Add(time.Hour)}, f.enter("SignSSH", req.ValidFor)
}

// SSHHost implements api.SSHPlane.
func (f *Fake) SSHHost(context.Context) (api.SSHHost, error) {
	defer f.mu.Unlock()
	return api.SSHHost{Key: "private", Certificate: "cert", Expires: now.Add(time.Hour)}, f.enter("SSHHost")
}

// GrantSSH implements api.SSHPlane.
func (f *Fake) GrantSSH(_ context.Context, req api.SSHGrantRequest) (api.SSHGrant, error) {
	defer f.mu.Unlock()
	if err := f.enter("GrantSSH", req.Workspace); err != nil {
		return api.SSHGrant{}, err
	}
	ws, err := f.find(req.Workspace)
	if err != nil {
		return api.SSHGrant{}, err
	}
	return api.SSHGrant{Grant: grantOf + string(ws.ID), Principal: model.PrincipalID(ID("pann")), Name: "ann", Workspace: ws.ID, Expires: now.Add(time.Hour)}, nil
}

// Enter implements api.SSHPlane.
func (f *Fake) Enter(ctx context.Context, req api.EnterRequest, tell func(api.ConnectPhase) error) (api.Attachment, error) {
	id, ok := strings.CutPrefix(req.Grant, grantOf)
	if !ok {
		return api.Attachment{}, errs.New(errs.Unauthenticated, "grant refused: malformed").WithHint("connect again")
	}
	return f.Connect(ctx, model.Principal{}, id, api.ConnectRequest{}, tell)
}
