// Package apitest is a control plane in memory, for tests of the doors before
// the real one.
//
// It is hostile: a watch is told states twice, wake-ups come without a reason,
// lists come as nil when they are empty, and a workspace reaches its desired
// state only as far as somebody watches it.
package apitest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/clock"
	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/model"
)

// The secrets of the principals that are there from the start.
const (
	AdminToken   = "blt_admin"
	UserToken    = "blt_user"
	NodeToken    = "blt_node"
	GatewayToken = "blt_gateway"
)

// Node is the id of the one node.
const Node = model.NodeID("nbox0000000000000000")

// now is the fake's time; it stands still.
var now = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

// Fake implements api.Service and api.Plane. Use New.
type Fake struct {
	mu         sync.Mutex
	principals map[string]model.Principal // by secret
	tokens     []api.Token
	sshKeys    []api.SSHKey
	secrets    map[model.TokenID]string
	workspaces []*workspace
	images     []api.Image
	nodes      []api.Node
	events     []api.Event
	shares     []api.Share
	keys       map[string]created
	changed    chan struct{}
	requests   []string

	// Gateway is the URL that attachments name, and Ticket makes their tickets:
	// nil takes the target, "agent" or "images".
	Gateway string
	Ticket  func(target string, a api.Attachment) (string, error)
	hook    func(method string) error
}

type created struct {
	body []byte
	id   model.WorkspaceID
}

type workspace struct {
	api.Workspace
	steps []api.WorkspaceState // still to come
}

var (
	_ api.Service  = (*Fake)(nil)
	_ api.Plane    = (*Fake)(nil)
	_ api.SSHPlane = (*Fake)(nil)
)

// New returns a fake with an image "base", the tiers small and large, and one
// principal of each role.
func New() *Fake {
	f := &Fake{
		principals: map[string]model.Principal{}, secrets: map[model.TokenID]string{}, keys: map[string]created{},
		changed: make(chan struct{}), Gateway: "http://127.0.0.1:7481",
	}
	f.principals[AdminToken] = principal("root", model.RoleAdmin)
	f.principals[UserToken] = principal("ann", model.RoleUser)
	f.principals[NodeToken] = principal("box", model.RoleNode)
	f.principals[GatewayToken] = principal("door", model.RoleGateway)
	f.images = []api.Image{image("base", "debian trixie")}
	f.nodes = []api.Node{box()}
	return f
}

func principal(name string, role model.Role) model.Principal {
	return model.Principal{
		ID: model.PrincipalID(ID("p" + name)), Tenant: model.DefaultTenant, Region: model.DefaultRegion,
		Name: name, Class: model.ClassHuman, Role: role, Created: now,
	}
}

// Admin is the principal of whoever opens the Unix socket.
func Admin() model.Principal { return principal("local", model.RoleAdmin) }

// ID is an id that begins with a readable part.
func ID(s string) string { return (s + strings.Repeat("0", 20))[:20] }

// Root is a root that depends on s.
func Root(s string) model.Root {
	return model.Root("b3:" + (fmt.Sprintf("%x", s) + strings.Repeat("0", 64))[:64])
}

func image(name, source string) api.Image {
	g := api.Generation{
		ID: model.GenerationID(ID("g" + name)), Root: Root(name), Source: source,
		DiskBytes: 2 << 30, UsedBytes: 300 << 20, StoredBytes: 90 << 20, Created: now,
	}
	return api.Image{
		ID: model.ImageID(ID("i" + name)), Name: name, Generation: g.ID, Root: g.Root, Source: source, DiskBytes: g.DiskBytes,
		UsedBytes: g.UsedBytes, StoredBytes: g.StoredBytes, Created: now, Updated: now, Generations: []api.Generation{g},
	}
}

// SetHook sets what is called before each method, with its name and under a
// lock; its error is the method's.
func (f *Fake) SetHook(hook func(method string) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.hook = hook
}

// Requests returns what has been asked, one line each.
func (f *Fake) Requests() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.requests)
}

// Change changes a workspace behind everybody's back.
func (f *Fake) Change(name string, fn func(*api.Workspace)) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	ws, err := f.find(name)
	if err == nil {
		fn(&ws.Workspace)
		ws.steps = nil
		f.wake()
	}
	return err
}

// Emit records n events that are about nothing in particular.
func (f *Fake) Emit(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for range n {
		f.record("", "node.seen", "node", ID("nbox"))
	}
}

// enter notes the call and locks; the caller unlocks.
func (f *Fake) enter(method string, args ...any) error {
	f.mu.Lock()
	f.requests = append(f.requests, strings.TrimSpace(method+" "+fmt.Sprintln(args...)))
	if f.hook != nil {
		return f.hook(method)
	}
	return nil
}

func (f *Fake) wake() {
	close(f.changed)
	f.changed = make(chan struct{})
}

func (f *Fake) record(who model.PrincipalID, kind, subjectKind, subject string) {
	f.events = append(f.events, api.Event{
		Seq: int64(len(f.events) + 1), At: now, Actor: string(who), Kind: kind, SubjectKind: subjectKind, Subject: subject,
	})
	f.wake()
}

// Info implements api.Service.
func (f *Fake) Info(context.Context) (api.Info, error) {
	defer f.mu.Unlock()
	return api.Info{Version: "v0.0.0-fake", APIVersion: api.Version, Deployment: ID("d"), TicketKey: bytes.Repeat([]byte{7}, 32), API: "http://127.0.0.1:7480"}, f.enter("Info")
}

// Authenticate implements api.Service.
func (f *Fake) Authenticate(_ context.Context, secret string) (model.Principal, error) {
	defer f.mu.Unlock()
	if err := f.enter("Authenticate"); err != nil {
		return model.Principal{}, err
	}
	p, ok := f.principals[secret]
	if !ok {
		return p, errs.New(errs.Unauthenticated, "the token is not known or has expired").WithHint("make one with: billet token create NAME")
	}
	return p, nil
}

// Tiers implements api.Service.
func (f *Fake) Tiers(context.Context, model.Principal) ([]api.Tier, error) {
	defer f.mu.Unlock()
	return []api.Tier{
		{Name: "small", Shape: shape(1), Image: "base", Drivers: []model.DriverName{model.DriverGVisor}, Max: 10, Live: 1},
		{Name: "large", Shape: shape(4), Image: "base", Drivers: []model.DriverName{model.DriverGVisor}, Classes: []model.Class{model.ClassHuman}},
	}, f.enter("Tiers")
}

func shape(vcpus int) model.Shape {
	return model.Shape{VCPUs: vcpus, Memory: int64(vcpus) << 30, Disk: 16 << 30, Processes: 4096, OpenFiles: 65536}
}

// Images implements api.Service.
func (f *Fake) Images(context.Context, model.Principal) ([]api.Image, error) {
	defer f.mu.Unlock()
	err := f.enter("Images")
	var out []api.Image
	for _, i := range f.images {
		i.Generations = nil
		out = append(out, i)
	}
	return out, err
}

// Image implements api.Service.
func (f *Fake) Image(_ context.Context, _ model.Principal, ref string) (api.Image, error) {
	defer f.mu.Unlock()
	if err := f.enter("Image", ref); err != nil {
		return api.Image{}, err
	}
	for _, i := range f.images {
		if i.Name == ref || string(i.ID) == ref {
			return i, nil
		}
	}
	return api.Image{}, errs.New(errs.NotFound, "image %q is not there", ref).WithHint("see: billet image ls")
}

// DeleteImage implements api.Service.
func (f *Fake) DeleteImage(_ context.Context, who model.Principal, ref string) error {
	defer f.mu.Unlock()
	if err := f.enter("DeleteImage", ref); err != nil {
		return err
	}
	if who.Role != model.RoleAdmin && ref == "base" {
		return errs.New(errs.Denied, "%s is a user and may not remove image base", who.Name).WithHint("ask an admin")
	}
	n := len(f.images)
	f.images = slices.DeleteFunc(f.images, func(i api.Image) bool { return i.Name == ref || string(i.ID) == ref })
	if len(f.images) == n {
		return errs.New(errs.NotFound, "image %q is not there", ref).WithHint("see: billet image ls")
	}
	f.record(who.ID, "image.deleted", "image", ref)
	return nil
}

// AttachImages implements api.Service.
func (f *Fake) AttachImages(_ context.Context, who model.Principal, req api.AttachImagesRequest) (api.Attachment, error) {
	defer f.mu.Unlock()
	if err := f.enter("AttachImages", req.Name, req.Kind); err != nil {
		return api.Attachment{}, err
	}
	if err := model.CheckName("image", req.Name); err != nil {
		return api.Attachment{}, err
	}
	if who.Role != model.RoleAdmin && (req.Name == "base" || req.Kind == api.ImageDebian) {
		return api.Attachment{}, errs.New(errs.Denied, "%s is a user and may not make image %s", who.Name, req.Name).WithHint("ask an admin")
	}
	return f.attachment("images", api.Attachment{})
}

// attachment completes a; its ticket is good for a minute of the machine's
// clock, by which the road goes.
func (f *Fake) attachment(target string, a api.Attachment) (api.Attachment, error) {
	a.Gateway, a.Ticket, a.Node, a.Expires = f.Gateway, target, Node, clock.Real{}.Now().Add(time.Minute)
	if f.Ticket == nil {
		return a, nil
	}
	var err error
	a.Ticket, err = f.Ticket(target, a)
	return a, err
}

// CreateToken implements api.Service.
func (f *Fake) CreateToken(_ context.Context, who model.Principal, req api.CreateTokenRequest) (api.CreatedToken, error) {
	defer f.mu.Unlock()
	if err := f.enter("CreateToken", mustJSON(req)); err != nil {
		return api.CreatedToken{}, err
	}
	if err := model.CheckName("token", req.Name); err != nil {
		return api.CreatedToken{}, err
	}
	if slices.ContainsFunc(f.tokens, func(t api.Token) bool { return t.Name == req.Name }) {
		return api.CreatedToken{}, errs.New(errs.Conflict, "token %s is there already", req.Name).WithHint("choose another name")
	}
	p := principal(req.Name, orDefault(req.Role, model.RoleUser))
	p.Class = orDefault(req.Class, model.ClassHuman)
	t := api.Token{ID: model.TokenID(ID("t" + req.Name)), Name: req.Name, Principal: req.Name, Class: p.Class, Role: p.Role, Created: now}
	if d, err := time.ParseDuration(req.Expires); err == nil {
		end := now.Add(d)
		t.Expires = &end
	}
	secret := "blt_secret_" + req.Name
	f.tokens, f.secrets[t.ID], f.principals[secret] = append(f.tokens, t), secret, p
	f.record(who.ID, "token.created", "token", string(t.ID))
	return api.CreatedToken{Token: t, Secret: secret}, nil
}

// Tokens implements api.Service.
func (f *Fake) Tokens(context.Context, model.Principal) ([]api.Token, error) {
	defer f.mu.Unlock()
	err := f.enter("Tokens")
	return slices.Clone(f.tokens), err
}

// DeleteToken implements api.Service.
func (f *Fake) DeleteToken(_ context.Context, who model.Principal, ref string) error {
	defer f.mu.Unlock()
	if err := f.enter("DeleteToken", ref); err != nil {
		return err
	}
	for i, t := range f.tokens {
		if t.Name == ref || string(t.ID) == ref {
			delete(f.principals, f.secrets[t.ID])
			f.tokens = slices.Delete(f.tokens, i, i+1)
			f.record(who.ID, "token.deleted", "token", string(t.ID))
			return nil
		}
	}
	return errs.New(errs.NotFound, "token %q is not there", ref).WithHint("see: billet token ls")
}

// Events implements api.Service.
func (f *Fake) Events(_ context.Context, _ model.Principal, ref string, after int64, limit int) ([]api.Event, error) {
	defer f.mu.Unlock()
	if err := f.enter("Events", ref, after, limit); err != nil {
		return nil, err
	}
	subject := ""
	if ref != "" {
		ws, err := f.find(ref)
		if err != nil {
			return nil, err
		}
		subject = string(ws.ID)
	}
	var out []api.Event
	for _, e := range f.events {
		if e.Seq > after && (subject == "" || e.Subject == subject) && len(out) < limit {
			out = append(out, e)
		}
	}
	return out, nil
}

// WaitEvents implements api.Service.
func (f *Fake) WaitEvents(ctx context.Context, _ model.Principal, after int64) error {
	f.mu.Lock()
	n, next := int64(len(f.events)), f.changed
	f.mu.Unlock()
	if n > after {
		return nil
	}
	select {
	case <-next: // perhaps for nothing
	case <-ctx.Done():
	}
	return nil
}

func orDefault[T comparable](v, d T) T {
	var zero T
	if v == zero {
		return d
	}
	return v
}

func mustJSON(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // wire types only
	}
	return string(b)
}
