package httpapi

import (
	"context"
	"net/http"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/errs"
)

func (h *Handler) showSSH(x *exchange) error {
	info, err := h.cfg.Service.SSH(x.r.Context(), x.who)
	return answer(x, http.StatusOK, info, err)
}

func (h *Handler) addSSHKey(x *exchange) error {
	req, err := body[api.AddSSHKeyRequest](x, maxBody)
	if err != nil {
		return err
	}
	key, err := h.cfg.Service.AddSSHKey(x.r.Context(), x.who, req)
	return answer(x, http.StatusCreated, key, err)
}

func (h *Handler) listSSHKeys(x *exchange) error {
	list, err := h.cfg.Service.SSHKeys(x.r.Context(), x.who)
	return answerList(x, list, err)
}

func (h *Handler) removeSSHKey(x *exchange) error {
	return answerNothing(x, http.StatusNoContent, h.cfg.Service.RemoveSSHKey(x.r.Context(), x.who, x.ref()))
}

func (h *Handler) signSSH(x *exchange) error {
	req, err := body[api.SSHCertificateRequest](x, maxBody)
	if err != nil {
		return err
	}
	cert, err := h.cfg.Service.SignSSH(x.r.Context(), x.who, req)
	return answer(x, http.StatusCreated, cert, err)
}

func (h *Handler) sshPlane() (api.SSHPlane, error) {
	if h.cfg.SSH == nil {
		return nil, errs.New(errs.Unsupported, "gateways do not call on this address")
	}
	return h.cfg.SSH, nil
}

func (h *Handler) sshHost(x *exchange) error {
	plane, err := h.sshPlane()
	if err != nil {
		return err
	}
	host, err := plane.SSHHost(x.r.Context())
	return answer(x, http.StatusOK, host, err)
}

func (h *Handler) grantSSH(x *exchange) error {
	plane, err := h.sshPlane()
	if err != nil {
		return err
	}
	req, err := body[api.SSHGrantRequest](x, maxBody)
	if err != nil {
		return err
	}
	g, err := plane.GrantSSH(x.r.Context(), req)
	return answer(x, http.StatusCreated, g, err)
}

func (h *Handler) enterSSH(x *exchange) error {
	plane, err := h.sshPlane()
	if err != nil {
		return err
	}
	req, err := body[api.EnterRequest](x, maxBody)
	if err != nil {
		return err
	}
	return h.phases(x, func(ctx context.Context, tell func(api.ConnectPhase) error) (api.Attachment, error) {
		return plane.Enter(ctx, req, tell)
	})
}
