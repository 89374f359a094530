package control

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"slices"
	"strings"
	"time"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/model"
	"github.com/billethq/billet/internal/road"
)

// maxEvents bounds one page of events.
const maxEvents = 1000

// AttachImages implements api.Service.
func (c *Control) AttachImages(ctx context.Context, who model.Principal) (api.Attachment, error) {
	cs, err := c.candidates(ctx)
	if err != nil {
		return api.Attachment{}, err
	}
	for _, n := range cs {
		if !n.Silent {
			return c.attachment(who, road.Ticket{Node: n.Node.ID, Target: road.TargetImages, Tenant: who.Tenant})
		}
	}
	return api.Attachment{}, errs.New(errs.Unavailable, "no node answers that could build an image").WithHint("see: billet node ls")
}

// Images implements api.Service.
func (c *Control) Images(ctx context.Context, _ model.Principal) ([]api.Image, error) {
	recs, err := c.cfg.Ledger.Images(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]api.Image, 0, len(recs))
	for _, r := range recs {
		out = append(out, imageView(r))
	}
	return out, nil
}

// Image implements api.Service.
func (c *Control) Image(ctx context.Context, _ model.Principal, ref string) (api.Image, error) {
	rec, gens, err := c.cfg.Ledger.Image(ctx, ref)
	if errs.Is(err, errs.NotFound) {
		return api.Image{}, errs.New(errs.NotFound, "image %q is not there", ref).WithHint("see: billet image ls")
	}
	if err != nil {
		return api.Image{}, err
	}
	v := imageView(rec)
	for _, g := range gens {
		v.Generations = append(v.Generations, generationView(g))
	}
	return v, nil
}

// DeleteImage implements api.Service.
func (c *Control) DeleteImage(ctx context.Context, who model.Principal, ref string) error {
	err := c.cfg.Ledger.DeleteImage(ctx, c.meta(who.ID), ref)
	if errs.Is(err, errs.NotFound) {
		return errs.New(errs.NotFound, "image %q is not there", ref).WithHint("see: billet image ls")
	}
	c.changed.broadcast()
	return err
}

// Nodes implements api.Service.
func (c *Control) Nodes(ctx context.Context, _ model.Principal) ([]api.Node, error) {
	cs, err := c.candidates(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]api.Node, 0, len(cs))
	for _, n := range cs {
		out = append(out, api.Node{
			ID: n.Node.ID, Name: n.Node.Name, Region: n.Node.Region, Driver: n.Node.Driver, Version: n.Node.Version,
			BootID: n.Node.BootID, Capacity: n.Node.Capacity, Used: n.Used, Instances: n.Live, LastSeen: n.Node.LastSeen, Silent: n.Silent,
		})
	}
	return out, nil
}

// Tiers implements api.Service.
func (c *Control) Tiers(ctx context.Context, _ model.Principal) ([]api.Tier, error) {
	use, err := c.cfg.Ledger.TierUse(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]api.Tier, 0, len(c.cfg.Tiers))
	for _, t := range c.cfg.Tiers {
		out = append(out, api.Tier{Name: t.Name, Shape: t.Shape, Image: t.Image, Drivers: t.Drivers, Classes: t.Classes, Max: t.Max, Live: use[t.Name]})
	}
	return out, nil
}

// tokenPrefix makes a leaked token recognisable to scanners.
const tokenPrefix = "blt_"

// CreateToken implements api.Service. The secret has 160 random bits; only its
// hash is kept.
func (c *Control) CreateToken(ctx context.Context, who model.Principal, req api.CreateTokenRequest) (api.CreatedToken, error) {
	m := c.meta(who.ID)
	p, expires, err := c.tokenRequest(who, m.Now, req)
	if err != nil {
		return api.CreatedToken{}, err
	}
	p, err = c.cfg.Ledger.EnsurePrincipal(ctx, m, p)
	if err != nil {
		return api.CreatedToken{}, err
	}
	var raw [20]byte
	_, _ = rand.Read(raw[:])
	secret := tokenPrefix + strings.ToLower(base32.StdEncoding.EncodeToString(raw[:]))
	t := model.Token{
		ID: model.TokenID(model.NewID()), Tenant: p.Tenant, Region: p.Region, Principal: p.ID, Name: req.Name,
		Hash: sha256.Sum256([]byte(secret)), Created: m.Now, Expires: expires,
	}
	if err := c.cfg.Ledger.CreateToken(ctx, m, t); err != nil {
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
	}
	if p.Role == "" {
		p.Role = model.RoleUser
	}
	if err := model.CheckName("token", req.Name); err != nil {
		return p, time.Time{}, err
	}
	if !slices.Contains([]model.Class{model.ClassHuman, model.ClassAgent, model.ClassCI}, p.Class) {
		return p, time.Time{}, errs.New(errs.Invalid, "class %q is not one of human, agent, ci", p.Class).WithHint("leave --class away for human")
	}
	if !slices.Contains([]model.Role{model.RoleAdmin, model.RoleUser, model.RoleNode}, p.Role) {
		return p, time.Time{}, errs.New(errs.Invalid, "role %q is not one of admin, user, node", p.Role).WithHint("leave --role away for user")
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
	recs, err := c.cfg.Ledger.Tokens(ctx)
	if err != nil {
		return nil, err
	}
	out := []api.Token{}
	for _, r := range recs {
		if r.Token.Tenant == who.Tenant {
			out = append(out, tokenView(r.Token, r.Principal))
		}
	}
	return out, nil
}

// DeleteToken implements api.Service.
func (c *Control) DeleteToken(ctx context.Context, who model.Principal, ref string) error {
	err := c.cfg.Ledger.DeleteToken(ctx, c.meta(who.ID), ref)
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

// Events implements api.Service.
func (c *Control) Events(ctx context.Context, who model.Principal, ref string, after int64, limit int) ([]api.Event, error) {
	subject := ""
	if ref != "" {
		ws, err := c.find(ctx, who, ref)
		if err != nil {
			return nil, err
		}
		subject = string(ws.ID)
	}
	if limit <= 0 || limit > maxEvents {
		limit = maxEvents
	}
	evs, err := c.cfg.Ledger.Events(ctx, subject, after, limit)
	if err != nil {
		return nil, err
	}
	out := make([]api.Event, 0, len(evs))
	for _, e := range evs {
		out = append(out, api.Event{Seq: e.Seq, At: e.At, Actor: string(e.Actor), Kind: e.Kind, SubjectKind: e.SubjectKind, Subject: e.Subject, Data: e.Data})
	}
	return out, nil
}

// WaitEvents implements api.Service.
func (c *Control) WaitEvents(ctx context.Context, after int64) error {
	for {
		next := c.changed.next()
		evs, err := c.cfg.Ledger.Events(ctx, "", after, 1)
		if err != nil || len(evs) > 0 {
			return err
		}
		select {
		case <-next:
		case <-ctx.Done():
			return nil
		}
	}
}
