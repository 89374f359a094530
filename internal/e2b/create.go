package e2b

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/model"
)

const (
	// createWait is how long a creation waits for its guest: with what comes
	// before and after, every client is answered within ten seconds.
	createWait = 8 * time.Second
	// maxTimeout bounds a timeout: a month is no lapse of a forgotten script.
	maxTimeout = 30 * 24 * time.Hour
	// defaultTemplate is what the clients name when nobody chose.
	defaultTemplate = "base"
)

// createDefaults differ between the generations of clients.
type createDefaults struct {
	timeout int64 // seconds
}

// create makes a sandbox and answers when it can be used. What is refused
// leaves nothing.
func (h *Handler) create(x *exchange, defaults createDefaults) error {
	req, err := read[createRequest](x)
	if err != nil {
		return err
	}
	timeout, err := timeoutOf(req.Timeout, defaults.timeout)
	if err != nil {
		return err
	}
	network, err := h.checkWishes(x, req)
	if err != nil {
		return err
	}
	now := h.cfg.Clock.Now()
	terms := model.Terms{
		Template: req.TemplateID, Metadata: req.Metadata, Envs: req.Envs, Began: now, Deadline: now.Add(timeout + createWait),
		AutoPause: req.AutoPause, PauseCold: req.AutoPauseKeep != nil && !*req.AutoPauseKeep,
		AutoResume: req.AutoResume != nil && req.AutoResume.Enabled, Network: network,
	}
	if terms.Template == "" {
		terms.Template = defaultTemplate
	}
	ctx := x.r.Context()
	image, from, err := h.template(ctx, x.who, terms.Template)
	if err != nil {
		return err
	}
	tier, err := h.tier(ctx, x.who)
	if err != nil {
		return err
	}
	o, err := h.cfg.Lending.CreateOnTerms(ctx, x.who, api.CreateWorkspaceRequest{Tier: tier.Name, Image: image}, from, terms)
	if err != nil {
		return h.noRoom(ctx, x.who, tier.Name, err)
	}
	if err := h.begin(ctx, x.who, o, timeout); err != nil {
		return err
	}
	s, err := h.short(o)
	if err != nil {
		return err
	}
	answer(x.w, http.StatusCreated, s)
	return nil
}

// begin waits until a new sandbox can be used, and counts its timeout from
// then. One that does not come up, or that nobody waits for any more, is taken
// away: the contract's refusals have changed nothing.
func (h *Handler) begin(ctx context.Context, who model.Principal, o api.OnTerms, timeout time.Duration) error {
	id := string(o.Workspace.ID)
	_, err := h.cfg.Service.Connect(ctx, who, id, api.ConnectRequest{DeadlineMilli: createWait.Milliseconds()}, quietly)
	if err == nil {
		_, err = h.cfg.Lending.SetDeadline(ctx, who, id, h.cfg.Clock.Now().Add(timeout), false, true)
	}
	if err == nil {
		return nil
	}
	failed := err
	if errs.Is(err, errs.Conflict) { // the guest ended at once: the client did nothing wrong
		failed = &refusal{http.StatusInternalServerError, "the sandbox did not start: " + err.Error()}
	}
	if err := h.cfg.Service.DeleteWorkspace(context.WithoutCancel(ctx), who, id, true); err != nil {
		h.cfg.Log.Error("take back a sandbox", "sandbox", id, "error", err)
	}
	return failed
}

// quietly is for waits whose phases nobody is told of.
func quietly(api.ConnectPhase) error { return nil }

// timeoutOf reads a timeout of the wire.
func timeoutOf(seconds *int64, otherwise int64) (time.Duration, error) {
	s := otherwise
	if seconds != nil {
		s = *seconds
	}
	if s < 0 || s > int64(maxTimeout/time.Second) {
		return 0, errs.New(errs.Invalid, "a timeout of %d seconds; 0 to %d are allowed", s, int64(maxTimeout/time.Second))
	}
	return time.Duration(s) * time.Second, nil
}

// checkWishes refuses what cannot be kept, and warns of what will not be: there
// is no network. The policy is returned as it is recorded.
func (h *Handler) checkWishes(x *exchange, req createRequest) (string, error) {
	for what, wish := range map[string]json.RawMessage{"mcp": req.MCP, "iam": req.IAM} {
		if given(wish) {
			return "", errs.New(errs.Invalid, "%s is not supported by billet", what).WithHint("leave it away")
		}
	}
	if len(req.Volumes) > 0 {
		return "", errs.New(errs.Invalid, "volume mounts are not supported by billet").WithHint("what a sandbox keeps is its own disk")
	}
	if !given(req.Network) {
		if req.Internet == nil || *req.Internet {
			warnOfNoNetwork(x)
		}
		return "", nil
	}
	return h.checkNetwork(x, req.Network)
}

// checkNetwork refuses a policy that asks for what nothing here does; one that
// only allows and denies is kept, since no network is within what it allows.
func (h *Handler) checkNetwork(x *exchange, raw json.RawMessage) (string, error) {
	var wish networkWish
	if err := json.Unmarshal(raw, &wish); err != nil {
		return "", errs.New(errs.Invalid, "the network policy cannot be read: %v", err)
	}
	if len(wish.Rules) > 0 || given(wish.EgressProxy) {
		return "", errs.New(errs.Invalid, "network rules and egress proxies are not supported: sandboxes have no network yet").WithHint("leave network.rules and network.egressProxy away")
	}
	warnOfNoNetwork(x)
	return string(raw), nil
}

func given(raw json.RawMessage) bool {
	s := strings.TrimSpace(string(raw))
	return s != "" && s != "null" && s != "{}" && s != "[]"
}

// warnOfNoNetwork says in a header what no field of the contract can.
func warnOfNoNetwork(x *exchange) {
	x.w.Header().Set("Warning", `299 billet "sandboxes have no network yet: nothing outside can be reached from them"`)
}

// template finds what a client calls a template: a kept snapshot or an image,
// each by id or name.
func (h *Handler) template(ctx context.Context, who model.Principal, ref string) (image string, from model.SnapshotID, err error) {
	kept, err := h.cfg.Lending.KeptSnapshots(ctx, who)
	if err != nil {
		return "", "", err
	}
	name := strings.TrimSuffix(ref, ":default")
	for _, k := range kept {
		if string(k.ID) == name || k.Name != "" && k.Name == name {
			return "", k.ID, nil
		}
	}
	img, err := h.cfg.Service.Image(ctx, who, name)
	if errs.Is(err, errs.NotFound) || errs.Is(err, errs.Invalid) {
		return "", "", &refusal{http.StatusBadRequest, "template " + ref + " is not there: a template is an image or a snapshot; see: billet image ls"}
	}
	return img.Name, "", err
}

// tier is the first that agents may use.
func (h *Handler) tier(ctx context.Context, who model.Principal) (api.Tier, error) {
	tiers, err := h.cfg.Service.Tiers(ctx, who)
	if err != nil {
		return api.Tier{}, err
	}
	for _, t := range tiers {
		if len(t.Classes) == 0 || slices.Contains(t.Classes, model.ClassAgent) {
			return t, nil
		}
	}
	return api.Tier{}, &refusal{http.StatusServiceUnavailable, "no tier is for class agent; see: billet tier ls"}
}

// noRoom tells a ceiling, which the client must not run against again, from a
// fleet that is full or has no such node just now.
func (h *Handler) noRoom(ctx context.Context, who model.Principal, tier string, err error) error {
	if errs.Is(err, errs.Unsupported) {
		return &refusal{http.StatusServiceUnavailable, problemOf(err).Message}
	}
	if !errs.Is(err, errs.Exhausted) {
		return err
	}
	tiers, again := h.cfg.Service.Tiers(ctx, who)
	if again != nil {
		return err
	}
	for _, t := range tiers {
		if t.Name == tier && t.Max > 0 && t.Live >= t.Max {
			return err // 429 without Retry-After
		}
	}
	return &refusal{http.StatusServiceUnavailable, problemOf(err).Message}
}
