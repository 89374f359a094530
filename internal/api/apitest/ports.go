package apitest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/model"
)

var (
	_ api.Ports    = (*Fake)(nil)
	_ api.Entrance = (*Fake)(nil)
)

// OpenPort implements api.Service.
func (f *Fake) OpenPort(_ context.Context, _ model.Principal, ref string, req api.OpenPortRequest) (api.PortLink, error) {
	ws, err := f.with("OpenPort", ref, func(*workspace) error { return model.CheckPort(req.Port) })
	q := "?" + api.LinkParameter + "=blk_1"
	return api.PortLink{URL: portURL(ws.Name, req.Port) + q, PathURL: fmt.Sprintf("http://127.0.0.1:7482/w/%s/%d/%s", ws.Name, req.Port, q), Expires: now.Add(2 * time.Minute)}, err
}

func portURL(name string, port int) string {
	return fmt.Sprintf("http://%d-%s.billet.localhost:7482/", port, name)
}

// SharePort implements api.Service.
func (f *Fake) SharePort(_ context.Context, _ model.Principal, ref string, req api.SharePortRequest) (api.Share, error) {
	var s api.Share
	_, err := f.with("SharePort", ref, func(ws *workspace) error {
		d, err := time.ParseDuration(req.For)
		switch {
		case !req.Public:
			return errs.New(errs.Invalid, "a share makes the port public, which has to be said").WithHint("say it with --public")
		case req.For != "" && err != nil:
			return errs.New(errs.Invalid, "%q is no time", req.For).WithHint("write it as 1h or 45m")
		case req.For == "":
			d = time.Hour
		}
		s = api.Share{Workspace: ws.Name, Port: req.Port, URL: portURL(ws.Name, req.Port), Created: now, Expires: now.Add(d)}
		f.shares = append(f.shares, s)
		return model.CheckPort(req.Port)
	})
	return s, err
}

// Shares implements api.Service.
func (f *Fake) Shares(_ context.Context, _ model.Principal, ref string) ([]api.Share, error) {
	var out []api.Share
	_, err := f.with("Shares", ref, func(ws *workspace) error {
		for _, s := range f.shares {
			if s.Workspace == ws.Name {
				out = append(out, s)
			}
		}
		return nil
	})
	return out, err
}

// UnsharePort implements api.Service.
func (f *Fake) UnsharePort(_ context.Context, _ model.Principal, ref string, port int) error {
	_, err := f.with("UnsharePort", ref, func(ws *workspace) error {
		kept := slices.DeleteFunc(slices.Clone(f.shares), func(s api.Share) bool { return s.Workspace == ws.Name && s.Port == port })
		if len(kept) == len(f.shares) {
			return errs.New(errs.NotFound, "port %d of workspace %s is not shared", port, ws.Name).WithHint("see: billet ws shares %s", ws.Name)
		}
		f.shares = kept
		return nil
	})
	return err
}

// EnterPort implements api.Entrance: a token that is known opens everything.
func (f *Fake) EnterPort(ctx context.Context, req api.VisitRequest, tell func(api.ConnectPhase) error) (api.Entered, error) {
	if !strings.HasPrefix(string(req.Proof), api.TokenPrefix) {
		return api.Entered{}, errs.New(errs.Unauthenticated, "this is private").WithHint("send a token")
	}
	a, err := f.Connect(ctx, principal("ann", model.RoleUser), req.Workspace, api.ConnectRequest{}, tell)
	return api.Entered{Attachment: a, Until: now.Add(time.Minute)}, err
}

// Admit implements api.Entrance.
func (f *Fake) Admit(_ context.Context, req api.AdmitRequest) (api.Admitted, error) {
	defer f.mu.Unlock()
	err := f.enter("Admit", req.Workspace)
	return api.Admitted{Pass: "blp_1", Expires: now.Add(time.Hour)}, err
}
