// Package road carries bytes between a client and a guest, past the control
// plane: tickets that control signs, streams that a client opens at a gateway,
// and the sessions that nodes keep to gateways.
package road

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"strings"
	"time"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/model"
)

// Target is what a ticket opens on its node.
type Target string

// The targets.
const (
	TargetAgent   Target = "agent"   // a stream to the guest agent of one instance
	TargetImages  Target = "images"  // a stream to the node's image builder
	TargetSession Target = "session" // a node's own session with a gateway
)

// Ticket is a short-lived capability, signed by the control plane.
type Ticket struct {
	Deployment string            `json:"dep"`
	Node       model.NodeID      `json:"node"`
	Target     Target            `json:"tgt"`
	Instance   model.InstanceID  `json:"ins,omitempty"`
	Epoch      model.Epoch       `json:"ep,omitempty"`
	Tenant     model.TenantID    `json:"ten,omitempty"`
	Principal  model.PrincipalID `json:"who,omitempty"`
	// Of an images ticket: the one image that it makes, from which kind of
	// source, and the user to whom that belongs, "" when an admin makes it.
	Image   string            `json:"img,omitempty"`
	Kind    api.ImageKind     `json:"knd,omitempty"`
	Owner   model.PrincipalID `json:"own,omitempty"`
	Expires time.Time         `json:"exp"`
}

// maxTicketBytes bounds what Verify parses before it knows the signer.
const maxTicketBytes = 2 << 10

// Sign returns the ticket as text: base64url(JSON) "." base64url(signature).
func Sign(key ed25519.PrivateKey, t Ticket) (string, error) {
	body, err := json.Marshal(t)
	if err != nil {
		return "", errs.Wrap(errs.Internal, err, "encode ticket")
	}
	enc := base64.RawURLEncoding
	return enc.EncodeToString(body) + "." + enc.EncodeToString(ed25519.Sign(key, body)), nil
}

// Verify returns the ticket in s when key signed it and it has not expired at
// now. Everything else is errs.Unauthenticated.
func Verify(key ed25519.PublicKey, s string, now time.Time) (Ticket, error) {
	bad := func(why string) (Ticket, error) {
		return Ticket{}, errs.New(errs.Unauthenticated, "ticket refused: %s", why).WithHint("ask for a new attachment")
	}
	if len(key) != ed25519.PublicKeySize {
		return bad("no key to verify it with")
	}
	if len(s) > maxTicketBytes {
		return bad("too long")
	}
	head, tail, ok := strings.Cut(s, ".")
	if !ok {
		return bad("malformed")
	}
	enc := base64.RawURLEncoding
	body, err := enc.DecodeString(head)
	if err != nil {
		return bad("malformed")
	}
	sig, err := enc.DecodeString(tail)
	if err != nil || !ed25519.Verify(key, body, sig) {
		return bad("not signed by this deployment")
	}
	var t Ticket
	if err := json.Unmarshal(body, &t); err != nil {
		return bad("malformed")
	}
	if !now.Before(t.Expires) {
		return bad("expired")
	}
	return t, nil
}
