package api

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/model"
)

// Share makes one port of a workspace public until it expires.
type Share struct {
	Workspace string    `json:"workspace"` // name
	Port      int       `json:"port"`
	URL       string    `json:"url"`
	Created   time.Time `json:"created"`
	Expires   time.Time `json:"expires"`
}

// SharePortRequest makes a port public. Shared again, it expires anew.
type SharePortRequest struct {
	Port int `json:"port"`
	// Public has to be said: whoever can reach the gateway can reach the port.
	Public bool `json:"public"`
	// For is how long, as a Go duration; empty is an hour.
	For string `json:"for,omitempty"`
}

// OpenPortRequest asks for a link into a port.
type OpenPortRequest struct {
	Port int `json:"port"`
}

// PortLink opens a port in a browser, once.
type PortLink struct {
	URL     string    `json:"url"`      // PORT-NAME.domain: an origin of its own
	PathURL string    `json:"path_url"` // for where such names do not resolve
	Expires time.Time `json:"expires"`
}

// VisitRequest is a gateway's question for a visitor: may it into that port,
// and by which road.
type VisitRequest struct {
	Workspace string `json:"workspace"` // name
	Port      int    `json:"port"`
	// Proof is what the visitor showed: a token or a pass; "" is nothing, which
	// opens shared ports.
	Proof         Secret `json:"proof,omitempty"`
	DeadlineMilli int64  `json:"deadline_ms,omitempty"` // as ConnectRequest's
}

// Entered is the answer. It is good for EntranceRecheck, and no longer than
// until Until, when what let the visitor in expires.
type Entered struct {
	Attachment Attachment `json:"attachment"`
	Public     bool       `json:"public"` // by a share
	Until      time.Time  `json:"until"`
}

// EntranceRecheck is how long a gateway lets a visitor in again without asking:
// so much longer lasts a share that was ended, or a token that was revoked.
const EntranceRecheck = 5 * time.Second

// VisitUpdate is one message of an entry: a phase, or the last one.
type VisitUpdate struct {
	Phase   *ConnectPhase `json:"phase,omitempty"`
	Entered *Entered      `json:"entered,omitempty"`
	Problem *Problem      `json:"problem,omitempty"`
}

// AdmitRequest turns a token, or the ticket of a link, into a pass.
type AdmitRequest struct {
	Workspace string `json:"workspace"` // name
	Proof     Secret `json:"proof"`
}

// Admitted is a pass for a browser: it opens every port of one workspace.
type Admitted struct {
	Pass    Secret    `json:"pass"`
	Expires time.Time `json:"expires"`
}

// LinkParameter is the query parameter of a link that has its ticket.
const LinkParameter = "billet_ticket"

// TokenPrefix begins a token, so that a leaked one is recognised by scanners;
// E2BTokenPrefix, before hexadecimal digits, is what older clients of the E2B
// API insist on.
const (
	TokenPrefix    = "blt_"
	E2BTokenPrefix = "e2b_"
)

// IsToken tells a token from what is meant for a server in a workspace.
func IsToken(s string) bool {
	return strings.HasPrefix(s, TokenPrefix) || strings.HasPrefix(s, E2BTokenPrefix)
}

// Ports is the part of Service about servers inside workspaces.
type Ports interface {
	// OpenPort makes a link that opens a port in a browser, once.
	OpenPort(ctx context.Context, who model.Principal, ref string, req OpenPortRequest) (PortLink, error)
	// SharePort makes a port public until the share expires.
	SharePort(ctx context.Context, who model.Principal, ref string, req SharePortRequest) (Share, error)
	// Shares lists those that have not expired, by port.
	Shares(ctx context.Context, who model.Principal, ref string) ([]Share, error)
	// UnsharePort makes a port private again; errs.NotFound when it is.
	UnsharePort(ctx context.Context, who model.Principal, ref string, port int) error
}

// Entrance is what gateways ask control for visitors of servers in workspaces.
type Entrance interface {
	// EnterPort resumes the workspace, as Service.Connect does, for a visitor who
	// may enter the port. errs.Unauthenticated without a proof that is known,
	// whether there is such a workspace or not; errs.NotFound for one of
	// another tenant, as for one that is not.
	EnterPort(ctx context.Context, req VisitRequest, tell func(ConnectPhase) error) (Entered, error)
	// Admit gives a browser a pass. A ticket of a link is good once.
	Admit(ctx context.Context, req AdmitRequest) (Admitted, error)
}

// OpenPort makes a link that opens a port in a browser, once.
func (c *Client) OpenPort(ctx context.Context, ref string, req OpenPortRequest) (PortLink, error) {
	return call[PortLink](ctx, c, http.MethodPost, "/v1/workspaces/"+url.PathEscape(ref)+"/links", req)
}

// SharePort makes a port public until the share expires.
func (c *Client) SharePort(ctx context.Context, ref string, req SharePortRequest) (Share, error) {
	return call[Share](ctx, c, http.MethodPost, "/v1/workspaces/"+url.PathEscape(ref)+"/shares", req)
}

// Shares lists the ports of a workspace that are public.
func (c *Client) Shares(ctx context.Context, ref string) ([]Share, error) {
	return list[Share](ctx, c, "/v1/workspaces/"+url.PathEscape(ref)+"/shares")
}

// UnsharePort makes a port private again.
func (c *Client) UnsharePort(ctx context.Context, ref string, port int) error {
	return c.do(ctx, http.MethodDelete, "/v1/workspaces/"+url.PathEscape(ref)+"/shares/"+strconv.Itoa(port), nil, nil, nil)
}

// EnterPort implements Entrance; tell is called with some phases again after a
// restart of the server, which the wait survives.
func (c *Client) EnterPort(ctx context.Context, req VisitRequest, tell func(ConnectPhase) error) (Entered, error) {
	var out Entered
	var problem *Problem
	err := c.stream(ctx, http.MethodPost, "/v1/gateway/ports/enter", "", req, func(m message) (bool, error) {
		var u VisitUpdate
		if err := json.Unmarshal(m.data, &u); err != nil {
			return false, errs.Wrap(errs.Internal, err, "decode the phase of an entry")
		}
		switch {
		case u.Phase != nil:
			return true, tell(*u.Phase)
		case u.Entered != nil:
			out = *u.Entered
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

// Admit implements Entrance.
func (c *Client) Admit(ctx context.Context, req AdmitRequest) (Admitted, error) {
	return call[Admitted](ctx, c, http.MethodPost, "/v1/gateway/ports/admit", req)
}

var _ Entrance = (*Client)(nil)
