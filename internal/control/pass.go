package control

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"strings"
	"time"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/model"
)

const (
	// linkTTL is how long a link into a port can be opened: long enough to be
	// copied into a browser.
	linkTTL = 2 * time.Minute
	// passTTL is how long a browser stays let in: a working day.
	passTTL = 12 * time.Hour
	// maxUsed bounds the tickets of links that are remembered as used.
	maxUsed = 4096
	// maxPassBytes bounds what is parsed before its signer is known.
	maxPassBytes = 1 << 10
)

// passKind tells a link's ticket from what a browser keeps.
type passKind string

const (
	passLink    passKind = "blk_" // good once
	passBrowser passKind = "blp_"
)

// pass lets its holder into every port of one workspace, as a principal.
type pass struct {
	Kind      passKind          `json:"knd"`
	ID        string            `json:"id"`
	Workspace model.WorkspaceID `json:"ws"`
	Tenant    model.TenantID    `json:"ten"`
	Principal model.PrincipalID `json:"who"`
	Issued    time.Time         `json:"iat"`
	Expires   time.Time         `json:"exp"`
}

// passContext keeps a pass from being taken for anything else that the same key
// signs, such as a ticket of the road.
const passContext = "billet pass 1\x00"

func (c *Control) signPass(kind passKind, ws model.Workspace, who model.PrincipalID, ttl time.Duration) (string, pass, error) {
	now := c.cfg.Clock.Now()
	p := pass{Kind: kind, ID: model.NewID(), Workspace: ws.ID, Tenant: ws.Tenant, Principal: who, Issued: now, Expires: now.Add(ttl)}
	body, err := json.Marshal(p)
	if err != nil {
		return "", p, errs.Wrap(errs.Internal, err, "encode a pass")
	}
	enc := base64.RawURLEncoding
	sig := ed25519.Sign(c.signer, append([]byte(passContext), body...))
	return string(kind) + enc.EncodeToString(body) + "." + enc.EncodeToString(sig), p, nil
}

// verifyPass returns the pass in text, ok when it opens anything now.
func (c *Control) verifyPass(kind passKind, text string) (p pass, ok bool) {
	text, ok = strings.CutPrefix(text, string(kind))
	head, tail, dot := strings.Cut(text, ".")
	if !ok || !dot || len(text) > maxPassBytes {
		return pass{}, false
	}
	enc := base64.RawURLEncoding.Strict() // one text for each pass
	body, err := enc.DecodeString(head)
	if err != nil {
		return pass{}, false
	}
	sig, err := enc.DecodeString(tail)
	if err != nil || !ed25519.Verify(c.TicketKey(), append([]byte(passContext), body...), sig) {
		return pass{}, false
	}
	if json.Unmarshal(body, &p) != nil || p.Kind != kind || !c.cfg.Clock.Now().Before(p.Expires) {
		return pass{}, false
	}
	return p, true
}

// useLink spends a link's ticket. What was used is kept in memory: a server that
// has started since takes no ticket from before.
func (c *Control) useLink(p pass) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.cfg.Clock.Now()
	for id, expires := range c.used {
		if !now.Before(expires) {
			delete(c.used, id)
		}
	}
	if _, spent := c.used[p.ID]; spent || p.Issued.Before(c.began) || len(c.used) >= maxUsed {
		return false
	}
	c.used[p.ID] = p.Expires
	return true
}

// principal finds who a pass was given to, while that may act: by a token that
// is good, or as root on the server's machine.
func (c *Control) principal(ctx context.Context, tenant model.TenantID, id model.PrincipalID) (model.Principal, bool, error) {
	tokens, err := c.cfg.Ledger.Tokens(ctx, tenant)
	if err != nil {
		return model.Principal{}, false, err
	}
	now := c.cfg.Clock.Now()
	for _, t := range tokens {
		if t.Principal.ID == id && (t.Token.Expires.IsZero() || now.Before(t.Token.Expires)) {
			return t.Principal, true, nil
		}
	}
	local, err := c.Local(ctx)
	return local, err == nil && local.ID == id && local.Tenant == tenant, err
}

// shower finds who shows a token or a pass, and the workspace of that name that
// this lets in. A token that is not known is an error, since its holder meant
// to be somebody; a pass that opens nothing (any more) is no proof: ok is false.
func (c *Control) shower(ctx context.Context, proof api.Secret, name string) (v visitor, ok bool, err error) {
	now := c.cfg.Clock.Now()
	if api.IsToken(string(proof)) {
		// The token may never expire; whoever it let in is asked about again.
		v.until = now.Add(passTTL)
		v.who, err = c.Authenticate(ctx, string(proof))
	} else {
		p, good := c.verifyPass(passBrowser, string(proof))
		if !good {
			return v, false, nil
		}
		v.until = p.Expires
		if v.who, ok, err = c.principal(ctx, p.Tenant, p.Principal); err != nil || !ok {
			return v, false, err
		}
		if v.ws, err = c.named(ctx, p.Tenant, name); errs.Is(err, errs.NotFound) || err == nil && v.ws.ID != p.Workspace {
			return v, false, nil
		}
		return v, err == nil, err
	}
	if err != nil {
		return v, false, err
	}
	if v.who.Role != model.RoleAdmin && v.who.Role != model.RoleUser {
		return v, false, errs.New(errs.Denied, "%s is a %s and enters no workspace", v.who.Name, v.who.Role).WithHint("use a token of another role")
	}
	v.ws, err = c.named(ctx, v.who.Tenant, name)
	return v, err == nil, err
}
