package httpapi

import (
	"context"
	"errors"
	"net/http"
	"strconv"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/errs"
)

func (h *Handler) openPort(x *exchange) error {
	req, err := body[api.OpenPortRequest](x, maxBody)
	if err != nil {
		return err
	}
	link, err := h.cfg.Service.OpenPort(x.r.Context(), x.who, x.ref(), req)
	return answer(x, http.StatusCreated, link, err)
}

func (h *Handler) sharePort(x *exchange) error {
	req, err := body[api.SharePortRequest](x, maxBody)
	if err != nil {
		return err
	}
	share, err := h.cfg.Service.SharePort(x.r.Context(), x.who, x.ref(), req)
	return answer(x, http.StatusCreated, share, err)
}

func (h *Handler) listShares(x *exchange) error {
	list, err := h.cfg.Service.Shares(x.r.Context(), x.who, x.ref())
	return answerList(x, list, err)
}

func (h *Handler) unsharePort(x *exchange) error {
	port, err := strconv.Atoi(x.r.PathValue("port"))
	if err != nil {
		return errs.New(errs.Invalid, "%q is no port", x.r.PathValue("port"))
	}
	return answerNothing(x, http.StatusNoContent, h.cfg.Service.UnsharePort(x.r.Context(), x.who, x.ref(), port))
}

// enterPort streams the phases of an entry and then its road.
func (h *Handler) enterPort(x *exchange) error {
	req, err := entranceBody[api.VisitRequest](h, x)
	if err != nil {
		return err
	}
	s, err := h.openStream(x)
	if err != nil {
		return err
	}
	defer h.closeStream(s)
	ctx, release := h.hold(x.r.Context())
	defer release()
	in, err := h.cfg.Entrance.EnterPort(ctx, req, func(p api.ConnectPhase) error {
		return s.send(api.StreamEntry, "", api.VisitUpdate{Phase: &p})
	})
	switch {
	case err == nil:
		return s.send(api.StreamEntry, "", api.VisitUpdate{Entered: &in})
	case ctx.Err() != nil: // given up by the server or the client, who comes again
		return context.Cause(ctx)
	case !s.begun() || errors.Is(err, errHungUp):
		return err
	}
	problem := api.ProblemOf(err)
	return s.send(api.StreamEntry, "", api.VisitUpdate{Problem: &problem})
}

func (h *Handler) admitVisitor(x *exchange) error {
	req, err := entranceBody[api.AdmitRequest](h, x)
	if err != nil {
		return err
	}
	in, err := h.cfg.Entrance.Admit(x.r.Context(), req)
	return answer(x, http.StatusOK, in, err)
}

func entranceBody[T any](h *Handler, x *exchange) (T, error) {
	if h.cfg.Entrance == nil {
		var none T
		return none, errs.New(errs.Unsupported, "gateways do not call on this address")
	}
	return body[T](x, maxBody)
}
