package control

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"time"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/model"
)

// EntranceAddress is where a gateway serves servers of workspaces.
type EntranceAddress struct {
	Listen string // host:port
	Domain string // of the names PORT-NAME.Domain
}

const (
	// defaultShare and maxShare bound how long a port is public.
	defaultShare = time.Hour
	maxShare     = 7 * 24 * time.Hour
)

// EnterPort implements api.Entrance.
func (c *Control) EnterPort(ctx context.Context, req api.VisitRequest, tell func(api.ConnectPhase) error) (api.Entered, error) {
	v, err := c.visitor(ctx, req)
	if err != nil {
		return api.Entered{}, err
	}
	a, err := c.Connect(ctx, v.who, string(v.ws.ID), api.ConnectRequest{DeadlineMilli: req.DeadlineMilli}, tell)
	if err != nil {
		return api.Entered{}, err
	}
	if v.public && !c.cfg.Clock.Now().Before(v.until) { // it has expired while the workspace came up
		return api.Entered{}, unknownVisitor()
	}
	return api.Entered{Attachment: a, Public: v.public, Until: v.until}, nil
}

// visitor is somebody at the entrance who may enter.
type visitor struct {
	ws     model.Workspace
	who    model.Principal
	public bool // by a share
	until  time.Time
}

// visitor decides. Without a proof that is known, a workspace that is not there
// is answered as a private one: names are not for everybody.
func (c *Control) visitor(ctx context.Context, req api.VisitRequest) (visitor, error) {
	if err := model.CheckPort(req.Port); err != nil {
		return visitor{}, err
	}
	v, ok, refused := c.shower(ctx, req.Proof, req.Workspace)
	if ok || refused != nil && !errs.Is(refused, errs.NotFound) && !errs.Is(refused, errs.Denied) {
		return v, refused
	}
	share, err := c.sharedPort(ctx, req.Workspace, req.Port)
	if errs.Is(err, errs.NotFound) {
		if refused == nil {
			refused = unknownVisitor()
		}
		return visitor{}, refused
	}
	if err != nil {
		return visitor{}, err
	}
	who := model.Principal{ID: share.Principal, Tenant: share.Tenant, Region: share.Region, Name: "public", Class: model.ClassHuman, Role: model.RoleUser}
	ws, err := c.find(ctx, who, string(share.Workspace))
	return visitor{ws: ws, who: who, public: true, until: share.Expires}, err
}

func unknownVisitor() error {
	return errs.New(errs.Unauthenticated, "this is private, if it is there at all").
		WithHint("send a billet token as Authorization: Bearer, or open a link of: billet ws open NAME PORT")
}

// named finds a workspace by its name, and by nothing else.
func (c *Control) named(ctx context.Context, tenant model.TenantID, name string) (model.Workspace, error) {
	if model.CheckName("workspace", name) != nil {
		return model.Workspace{}, noSuchWorkspace()
	}
	ws, err := c.cfg.Ledger.Workspace(ctx, tenant, name)
	if errs.Is(err, errs.NotFound) {
		err = noSuchWorkspace()
	}
	return ws, err
}

func noSuchWorkspace() error {
	return errs.New(errs.NotFound, "there is no such workspace").WithHint("see: billet ws ls")
}

func (c *Control) sharedPort(ctx context.Context, name string, port int) (model.Share, error) {
	if model.CheckName("workspace", name) != nil {
		return model.Share{}, noSuchWorkspace()
	}
	return c.cfg.Ledger.SharedPort(ctx, c.meta(""), name, port)
}

// Admit implements api.Entrance.
func (c *Control) Admit(ctx context.Context, req api.AdmitRequest) (api.Admitted, error) {
	if link, ok := c.verifyPass(passLink, string(req.Proof)); ok {
		ws, err := c.named(ctx, link.Tenant, req.Workspace)
		if err != nil && !errs.Is(err, errs.NotFound) {
			return api.Admitted{}, err
		}
		if err != nil || link.Workspace != ws.ID || !c.useLink(link) {
			return api.Admitted{}, unknownVisitor()
		}
		return c.givePass(ws, link.Principal)
	}
	v, ok, err := c.shower(ctx, req.Proof, req.Workspace)
	if err == nil && !ok {
		err = unknownVisitor()
	}
	if err != nil {
		return api.Admitted{}, err
	}
	return c.givePass(v.ws, v.who.ID)
}

func (c *Control) givePass(ws model.Workspace, who model.PrincipalID) (api.Admitted, error) {
	text, p, err := c.signPass(passBrowser, ws, who, passTTL)
	return api.Admitted{Pass: api.Secret(text), Expires: p.Expires}, err
}

// OpenPort implements api.Service.
func (c *Control) OpenPort(ctx context.Context, who model.Principal, ref string, req api.OpenPortRequest) (api.PortLink, error) {
	ws, host, path, err := c.port(ctx, who, ref, req.Port)
	if err != nil {
		return api.PortLink{}, err
	}
	text, p, err := c.signPass(passLink, ws, who.ID, linkTTL)
	q := "?" + api.LinkParameter + "=" + url.QueryEscape(text)
	return api.PortLink{URL: host + q, PathURL: path + q, Expires: p.Expires}, err
}

// port finds a workspace and the two addresses of a port of it.
func (c *Control) port(ctx context.Context, who model.Principal, ref string, port int) (ws model.Workspace, host, path string, err error) {
	if err := model.CheckPort(port); err != nil {
		return ws, "", "", err
	}
	if ws, err = c.find(ctx, who, ref); err != nil {
		return ws, "", "", err
	}
	_, listens, err := net.SplitHostPort(c.cfg.Entrance.Listen)
	if err != nil {
		return ws, "", "", errs.New(errs.Unsupported, "this deployment serves no ports of workspaces").WithHint("set gateway.http in the server's configuration")
	}
	host = fmt.Sprintf("http://%d-%s.%s:%s/", port, ws.Name, c.cfg.Entrance.Domain, listens)
	return ws, host, fmt.Sprintf("http://%s/w/%s/%d/", c.cfg.Entrance.Listen, ws.Name, port), nil
}

// SharePort implements api.Service.
func (c *Control) SharePort(ctx context.Context, who model.Principal, ref string, req api.SharePortRequest) (api.Share, error) {
	if !req.Public {
		return api.Share{}, errs.New(errs.Invalid, "a share makes the port public, which has to be said").
			WithHint("say it with --public; for yourself there is: billet ws open %s %d", ref, req.Port)
	}
	d := defaultShare
	if req.For != "" {
		var err error
		if d, err = time.ParseDuration(req.For); err != nil || d <= 0 || d > maxShare {
			return api.Share{}, errs.New(errs.Invalid, "%q is no time from 1s to %s", req.For, maxShare).WithHint("write it as 1h or 45m")
		}
	}
	ws, _, _, err := c.port(ctx, who, ref, req.Port)
	if err != nil {
		return api.Share{}, err
	}
	m := c.meta(who.ID)
	share, err := c.cfg.Ledger.PutShare(ctx, m, model.Share{Workspace: ws.ID, Tenant: ws.Tenant, Port: req.Port, Expires: m.Now.Add(d)})
	if err != nil {
		return api.Share{}, err
	}
	return c.shareView(ctx, who, ws, share)
}

func (c *Control) shareView(ctx context.Context, who model.Principal, ws model.Workspace, s model.Share) (api.Share, error) {
	_, host, _, err := c.port(ctx, who, string(ws.ID), s.Port)
	return api.Share{Workspace: ws.Name, Port: s.Port, URL: host, Created: s.Created, Expires: s.Expires}, err
}

// Shares implements api.Service.
func (c *Control) Shares(ctx context.Context, who model.Principal, ref string) ([]api.Share, error) {
	ws, err := c.find(ctx, who, ref)
	if err != nil {
		return nil, err
	}
	shares, err := c.cfg.Ledger.Shares(ctx, c.meta(who.ID), ws.Tenant, ws.ID)
	if err != nil {
		return nil, err
	}
	out := []api.Share{}
	for _, s := range shares {
		v, err := c.shareView(ctx, who, ws, s)
		if err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	return out, nil
}

// UnsharePort implements api.Service.
func (c *Control) UnsharePort(ctx context.Context, who model.Principal, ref string, port int) error {
	if err := model.CheckPort(port); err != nil {
		return err
	}
	ws, err := c.find(ctx, who, ref)
	if err != nil {
		return err
	}
	return c.cfg.Ledger.DeleteShare(ctx, c.meta(who.ID), ws.Tenant, ws.ID, port)
}
