package e2b

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/model"
)

const (
	// changeWait bounds the wait for a pause or a resume, below the minute that
	// the clients give a request.
	changeWait = 50 * time.Second
	// maxRefresh bounds an extension by a refresh, as in the contract.
	maxRefresh = time.Hour
	// connectTimeout and resumeTimeout are what a client gets that names none.
	connectTimeout = 300
	resumeTimeout  = 15
)

func (h *Handler) find(x *exchange) (api.OnTerms, error) {
	return h.cfg.Lending.OnTerms(x.r.Context(), x.who, x.id())
}

func (h *Handler) info(x *exchange) error {
	o, err := h.find(x)
	if err != nil {
		return err
	}
	d, err := h.full(o)
	if err != nil {
		return err
	}
	answer(x.w, http.StatusOK, d)
	return nil
}

func (h *Handler) kill(x *exchange) error {
	if err := h.cfg.Lending.KillOnTerms(x.r.Context(), x.who, x.id()); err != nil {
		return err
	}
	x.w.WriteHeader(http.StatusNoContent)
	return nil
}

// setTimeout moves the deadline, also to an earlier time.
func (h *Handler) setTimeout(x *exchange) error {
	req, err := read[struct {
		Timeout *int64 `json:"timeout"`
	}](x)
	if err != nil {
		return err
	}
	if req.Timeout == nil {
		return errs.New(errs.Invalid, "timeout is missing").WithHint("send it in seconds")
	}
	d, err := timeoutOf(req.Timeout, 0)
	if err != nil {
		return err
	}
	return h.move(x, d, false)
}

// refresh moves the deadline to a later time only.
func (h *Handler) refresh(x *exchange) error {
	req, err := read[struct {
		Duration *int64 `json:"duration"`
	}](x)
	if err != nil {
		return err
	}
	d, err := timeoutOf(req.Duration, resumeTimeout)
	if err != nil {
		return err
	}
	if d > maxRefresh {
		return errs.New(errs.Invalid, "a refresh of %v; at most %v are allowed", d, maxRefresh)
	}
	return h.move(x, d, true)
}

func (h *Handler) move(x *exchange, d time.Duration, extend bool) error {
	o, err := h.find(x)
	if err != nil {
		return err
	}
	if stateOf(o.Workspace) != stateRunning {
		return errs.New(errs.NotFound, "sandbox %s is not running", x.id()).WithHint("connect to it first: that resumes it")
	}
	if _, err := h.cfg.Lending.SetDeadline(x.r.Context(), x.who, x.id(), h.cfg.Clock.Now().Add(d), extend, false); err != nil {
		return err
	}
	x.w.WriteHeader(http.StatusNoContent)
	return nil
}

// pause answers when everything is saved.
func (h *Handler) pause(x *exchange) error {
	req, err := read[struct {
		Memory *bool `json:"memory"`
	}](x)
	if err != nil {
		return err
	}
	o, err := h.find(x)
	if err != nil {
		return err
	}
	if stateOf(o.Workspace) == statePaused {
		return errs.New(errs.Conflict, "sandbox %s is paused already", x.id())
	}
	cold := req.Memory != nil && !*req.Memory
	if _, err := h.cfg.Service.StopWorkspace(x.r.Context(), x.who, x.id(), api.StopWorkspaceRequest{Cold: cold}); err != nil {
		return err
	}
	if err := h.paused(x.r.Context(), x.who, x.id()); err != nil {
		return err
	}
	x.w.WriteHeader(http.StatusNoContent)
	return nil
}

// paused waits until a sandbox that is wanted paused is.
func (h *Handler) paused(ctx context.Context, who model.Principal, id string) error {
	ctx, cancel := context.WithTimeout(ctx, changeWait)
	defer cancel()
	var last api.Workspace
	err := h.cfg.Service.Watch(ctx, who, id, func(v api.Workspace) (bool, error) {
		last = v
		done := v.State == api.WorkspaceStopped || v.State == api.WorkspaceFailed || v.Desired == model.DesiredRunning
		return !done, nil
	})
	switch {
	case err != nil && ctx.Err() == nil:
		return err
	case last.State == api.WorkspaceStopped:
		return nil
	case last.State == api.WorkspaceFailed:
		return &refusal{http.StatusInternalServerError, fmt.Sprintf("the sandbox ended as it was paused: %s %s", last.Failure, last.Detail)}
	case last.Desired == model.DesiredRunning:
		return errs.New(errs.Conflict, "sandbox %s was resumed while it was being paused", id)
	}
	return &refusal{http.StatusGatewayTimeout, fmt.Sprintf("the sandbox is not paused after %v and goes on: %s", changeWait, last.FlushError)}
}

// connectRequest is also a resume's.
type connectRequest struct {
	Timeout *int64 `json:"timeout"`
	Memory  *bool  `json:"memory"`
}

// connect extends the timeout of a sandbox that runs and resumes one that does
// not.
func (h *Handler) connect(x *exchange) error {
	req, err := read[connectRequest](x)
	if err != nil {
		return err
	}
	return h.comeBack(x, req, connectTimeout, false)
}

// resume is the older form, for a sandbox that is paused.
func (h *Handler) resume(x *exchange) error {
	req, err := read[connectRequest](x)
	if err != nil {
		return err
	}
	return h.comeBack(x, req, resumeTimeout, true)
}

func (h *Handler) comeBack(x *exchange, req connectRequest, otherwise int64, mustBePaused bool) error {
	timeout, err := timeoutOf(req.Timeout, otherwise)
	if err != nil {
		return err
	}
	o, err := h.find(x)
	if err != nil {
		return err
	}
	status := http.StatusOK
	if stateOf(o.Workspace) == statePaused {
		status = http.StatusCreated
		cold := req.Memory != nil && !*req.Memory
		if err := h.wake(x.r.Context(), x.who, o, timeout, cold); err != nil {
			return h.noRoom(x.r.Context(), x.who, o.Workspace.Tier, err)
		}
	} else {
		if mustBePaused {
			return errs.New(errs.Conflict, "sandbox %s is running already", x.id())
		}
		if _, err := h.cfg.Lending.SetDeadline(x.r.Context(), x.who, x.id(), h.cfg.Clock.Now().Add(timeout), true, false); err != nil {
			return err
		}
		if _, err := h.cfg.Service.Connect(x.r.Context(), x.who, x.id(), api.ConnectRequest{DeadlineMilli: changeWait.Milliseconds()}, quietly); err != nil {
			return err
		}
	}
	s, err := h.short(o)
	if err != nil {
		return err
	}
	answer(x.w, status, s)
	return nil
}

// wake starts a sandbox that is paused and waits until it can be used. The
// deadline is moved first: an old one would end it as it comes up.
func (h *Handler) wake(ctx context.Context, who model.Principal, o api.OnTerms, timeout time.Duration, cold bool) error {
	id := string(o.Workspace.ID)
	if _, err := h.cfg.Lending.SetDeadline(ctx, who, id, h.cfg.Clock.Now().Add(timeout+changeWait), true, false); err != nil {
		return err
	}
	if cold {
		// Whatever saves its memory must be over before that is forgotten.
		if err := h.paused(ctx, who, id); err != nil {
			return err
		}
		if err := h.cfg.Lending.ForgetMemory(ctx, who, id); err != nil {
			return err
		}
	}
	if _, err := h.cfg.Service.StartWorkspace(ctx, who, id, api.StartWorkspaceRequest{}); err != nil {
		return err
	}
	if _, err := h.cfg.Service.Connect(ctx, who, id, api.ConnectRequest{DeadlineMilli: changeWait.Milliseconds()}, quietly); err != nil {
		return err
	}
	deadline := h.cfg.Clock.Now().Add(timeout)
	if o.Terms.Deadline.After(deadline) {
		deadline = o.Terms.Deadline // connecting never takes time away
	}
	_, err := h.cfg.Lending.SetDeadline(ctx, who, id, deadline, false, true)
	return err
}

// network replaces the policy.
func (h *Handler) network(x *exchange) error {
	raw, err := read[rawObject](x)
	if err != nil {
		return err
	}
	network, err := h.checkNetwork(x, orEmpty(raw))
	if err != nil {
		return err
	}
	if err := h.cfg.Lending.SetTermsNetwork(x.r.Context(), x.who, x.id(), network); err != nil {
		return err
	}
	x.w.WriteHeader(http.StatusNoContent)
	return nil
}
