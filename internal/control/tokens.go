package control

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/hex"
	"slices"
	"strings"
	"time"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/model"
)

// CreateToken implements api.Service. The secret has 160 random bits; only its
// hash is kept.
func (c *Control) CreateToken(ctx context.Context, who model.Principal, req api.CreateTokenRequest) (api.CreatedToken, error) {
	m := c.meta(who.ID)
	p, expires, err := c.tokenRequest(who, m.Now, req)
	if err != nil {
		return api.CreatedToken{}, err
	}
	var raw [20]byte
	_, _ = rand.Read(raw[:])
	secret := api.TokenPrefix + strings.ToLower(base32.StdEncoding.EncodeToString(raw[:]))
	if req.E2B {
		secret = api.E2BTokenPrefix + hex.EncodeToString(raw[:])
	}
	t := model.Token{
		ID: model.TokenID(model.NewID()), Name: req.Name,
		Hash: sha256.Sum256([]byte(secret)), Created: m.Now, Expires: expires,
	}
	if p, err = c.cfg.Ledger.CreateToken(ctx, m, p, t); err != nil {
		return api.CreatedToken{}, err
	}
	return api.CreatedToken{Token: tokenView(t, p), Secret: secret}, nil
}

func (c *Control) tokenRequest(who model.Principal, now time.Time, req api.CreateTokenRequest) (model.Principal, time.Time, error) {
	p := model.Principal{
		ID: model.PrincipalID(model.NewID()), Tenant: who.Tenant, Region: who.Region, Name: req.Name,
		Class: req.Class, Role: req.Role, Created: now,
	}
	if p.Class == "" {
		p.Class = model.ClassHuman
		if req.E2B {
			p.Class = model.ClassAgent
		}
	}
	if p.Role == "" {
		p.Role = model.RoleUser
	}
	if err := model.CheckName("token", req.Name); err != nil {
		return p, time.Time{}, err
	}
	if req.Name == localName {
		return p, time.Time{}, errs.New(errs.Invalid, "%s is whoever may open the deployment's Unix socket, and needs no token", req.Name).WithHint("choose another name")
	}
	if !slices.Contains([]model.Class{model.ClassHuman, model.ClassAgent, model.ClassCI}, p.Class) {
		return p, time.Time{}, errs.New(errs.Invalid, "class %q is not one of human, agent, ci", p.Class).WithHint("leave --class away for human")
	}
	if !slices.Contains([]model.Role{model.RoleAdmin, model.RoleUser, model.RoleNode, model.RoleGateway}, p.Role) {
		return p, time.Time{}, errs.New(errs.Invalid, "role %q is not one of admin, user, node, gateway", p.Role).WithHint("leave --role away for user")
	}
	if req.Expires == "" {
		return p, time.Time{}, nil
	}
	d, err := time.ParseDuration(req.Expires)
	if err != nil || d <= 0 {
		return p, time.Time{}, errs.New(errs.Invalid, "%q is not a duration above zero", req.Expires).WithHint("write it as 720h or 45m")
	}
	return p, now.Add(d), nil
}

func tokenView(t model.Token, p model.Principal) api.Token {
	v := api.Token{ID: t.ID, Name: t.Name, Principal: p.Name, Class: p.Class, Role: p.Role, Created: t.Created}
	if !t.Expires.IsZero() {
		v.Expires = &t.Expires
	}
	if !t.LastUsed.IsZero() {
		v.LastUsed = &t.LastUsed
	}
	return v
}

// Tokens implements api.Service.
func (c *Control) Tokens(ctx context.Context, who model.Principal) ([]api.Token, error) {
	recs, err := c.cfg.Ledger.Tokens(ctx, who.Tenant)
	if err != nil {
		return nil, err
	}
	out := []api.Token{}
	for _, r := range recs {
		out = append(out, tokenView(r.Token, r.Principal))
	}
	return out, nil
}

// DeleteToken implements api.Service.
func (c *Control) DeleteToken(ctx context.Context, who model.Principal, ref string) error {
	err := c.cfg.Ledger.DeleteToken(ctx, c.meta(who.ID), who.Tenant, ref)
	if errs.Is(err, errs.NotFound) {
		return errs.New(errs.NotFound, "token %q is not there", ref).WithHint("see: billet token ls")
	}
	return err
}

// Authenticate implements api.Service.
func (c *Control) Authenticate(ctx context.Context, secret string) (model.Principal, error) {
	rec, err := c.cfg.Ledger.TokenByHash(ctx, c.meta(""), sha256.Sum256([]byte(secret)))
	if errs.Is(err, errs.Unauthenticated) {
		return model.Principal{}, errs.New(errs.Unauthenticated, "the token is not known or has expired").WithHint("make one on the server's machine with: billet token create NAME")
	}
	return rec.Principal, err
}
