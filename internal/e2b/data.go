package e2b

import (
	"context"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/guest/files"
	"github.com/billethq/billet/internal/guest/startenv"
	"github.com/billethq/billet/internal/model"
)

const (
	headerSandbox = "E2b-Sandbox-Id"
	headerPort    = "E2b-Sandbox-Port"
	headerToken   = "X-Access-Token"
	// agentPort is where clients look for the guest's services.
	agentPort = "49983"
	// dataWait bounds how long a request waits for a sandbox that is on its way
	// up: less than the minute that clients give a request.
	dataWait = 30 * time.Second
)

// target is what a request is to reach.
type target struct {
	id   model.WorkspaceID
	port string
}

// hostForm is the host name of a sandbox's port, before any domain.
var hostForm = regexp.MustCompile(`^([0-9]{1,5})-([a-z0-9]{20})\.`)

// targetOf reads the target of a request: from headers, else from the host.
func targetOf(r *http.Request) (target, bool) {
	if id := r.Header.Get(headerSandbox); id != "" {
		port := r.Header.Get(headerPort)
		if port == "" {
			port = agentPort
		}
		return target{model.WorkspaceID(id), port}, true
	}
	if m := hostForm.FindStringSubmatch(r.Host); m != nil {
		return target{model.WorkspaceID(m[2]), m[1]}, true
	}
	return target{}, false
}

// offered are the guest's routes that the contract gives to clients. Whatever
// else the agent serves is the host's.
var offered = regexp.MustCompile(`^/(health|metrics|envs|files|files/compose|process\.Process/[A-Za-z]+|filesystem\.Filesystem/[A-Za-z]+)$`)

// unreachable is the answer for a sandbox, or a port, that cannot be reached.
type unreachable struct {
	SandboxID string `json:"sandboxId"`
	Port      string `json:"port,omitempty"`
	Message   string `json:"message"`
	Code      int    `json:"code"`
}

func (h *Handler) refuseData(w http.ResponseWriter, t target, status int, message string) {
	answer(w, status, unreachable{SandboxID: string(t.id), Port: t.port, Message: message, Code: status})
}

// toSandbox passes a request on to a sandbox.
func (h *Handler) toSandbox(w http.ResponseWriter, r *http.Request, t target) {
	if t.port == agentPort && !h.mayPass(w, r, t) {
		return
	}
	ctx := r.Context()
	o, who, err := h.lent(ctx, t.id)
	if errs.Is(err, errs.NotFound) {
		h.refuseData(w, t, http.StatusBadGateway, "the sandbox is not there: it was killed, or its timeout has passed")
		return
	}
	if err == nil && t.port == agentPort && r.URL.Path == "/envs" {
		answer(w, http.StatusOK, orNone(o.Terms.Envs))
		return
	}
	var a api.Attachment
	if err == nil {
		a, err = h.attach(ctx, who, o)
	}
	if err != nil {
		if ctx.Err() == nil {
			p := problemOf(err)
			h.refuseData(w, t, http.StatusBadGateway, p.Message)
		}
		return
	}
	if t.port == agentPort && len(o.Terms.Envs) > 0 && startenv.Applies(r) {
		if err := startenv.Add(r, o.Terms.Envs); err != nil {
			p := problemOf(err)
			h.refuseData(w, t, p.Code, p.Message)
			return
		}
	}
	h.pass(w, r, t, a)
}

func orNone(envs map[string]string) map[string]string {
	if envs == nil {
		return map[string]string{}
	}
	return envs
}

// mayPass checks what a request shows, and takes it off: a guest that is never
// shown its token has none in its memory images.
func (h *Handler) mayPass(w http.ResponseWriter, r *http.Request, t target) bool {
	if !offered.MatchString(r.URL.Path) {
		h.refuseData(w, t, http.StatusNotFound, "there is nothing at "+r.URL.Path+" for clients")
		return false
	}
	if r.URL.Path != "/health" { // a client asks whether it runs before it has anything to show
		token, err := h.cfg.Lending.DoorToken(t.id)
		if err == nil {
			err = files.Authorize(r, token, h.cfg.Clock.Now())
		}
		if err != nil {
			p := problemOf(err)
			answer(w, p.Code, p)
			return false
		}
	}
	q := r.URL.Query()
	if q.Has("signature") || q.Has("signature_expiration") {
		q.Del("signature")
		q.Del("signature_expiration")
		r.URL.RawQuery = q.Encode()
	}
	return true
}

// lent finds a sandbox by id alone, and in whose name its road is opened.
func (h *Handler) lent(ctx context.Context, id model.WorkspaceID) (api.OnTerms, model.Principal, error) {
	tenant, err := h.tenantOf(ctx, id)
	if err != nil {
		return api.OnTerms{}, model.Principal{}, err
	}
	who := model.Principal{Tenant: tenant, Region: model.DefaultRegion, Class: model.ClassAgent, Role: model.RoleUser, Name: "sandbox-door"}
	o, err := h.cfg.Lending.OnTerms(ctx, who, string(id))
	return o, who, err
}

func (h *Handler) tenantOf(ctx context.Context, id model.WorkspaceID) (model.TenantID, error) {
	h.mu.Lock()
	tenant, known := h.tenants[id]
	h.mu.Unlock()
	if known {
		return tenant, nil
	}
	tenant, err := h.cfg.Lending.DoorTenant(ctx, id)
	if err != nil {
		return "", err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.tenants) >= maxTenants {
		clear(h.tenants) // asked again, once each
	}
	h.tenants[id] = tenant
	return tenant, nil
}

// attach opens the road, waiting for a sandbox that is on its way up, and
// resuming one whose terms say so.
func (h *Handler) attach(ctx context.Context, who model.Principal, o api.OnTerms) (api.Attachment, error) {
	id := string(o.Workspace.ID)
	if stateOf(o.Workspace) == statePaused {
		if !o.Terms.AutoResume {
			return api.Attachment{}, errs.New(errs.Conflict, "the sandbox is paused").WithHint("connect to it: that resumes it")
		}
		// It gets what it had been given last, at least.
		timeout := max(o.Terms.Deadline.Sub(o.Terms.Began), connectTimeout*time.Second)
		if err := h.wake(ctx, who, o, timeout, false); err != nil {
			return api.Attachment{}, err
		}
	}
	a, err := h.cfg.Service.Attach(ctx, who, id)
	if !errs.Is(err, errs.Conflict) {
		return a, err
	}
	return h.cfg.Service.Connect(ctx, who, id, api.ConnectRequest{DeadlineMilli: dataWait.Milliseconds()}, quietly)
}

// strip takes off what is between client and door.
func strip(header http.Header) {
	for name := range header {
		switch lower := strings.ToLower(name); {
		case lower == strings.ToLower(headerToken), lower == "x-api-key", strings.HasPrefix(lower, "e2b-"):
			header.Del(name)
		}
	}
}

// hostOf names the connections that may serve a request: those to one port of
// one instance.
func hostOf(t target, a api.Attachment) *url.URL {
	return &url.URL{Scheme: "http", Host: string(a.Instance) + ":" + t.port}
}
