package httpapi

import (
	_ "embed" // the document of the API
	"net/http"

	"github.com/billethq/billet/internal/api"
)

// Document is openapi.yaml.
//
//go:embed openapi.yaml
var Document []byte

// health says that the process answers; it asks nothing of the ledger.
func (h *Handler) health(x *exchange) error {
	return answer(x, http.StatusOK, api.Health{Status: "ok"}, nil)
}

func (h *Handler) openapi(x *exchange) error {
	x.w.Header().Set("Content-Type", "application/yaml")
	_, _ = x.w.Write(Document)
	return nil
}

func (h *Handler) info(x *exchange) error {
	info, err := h.cfg.Service.Info(x.r.Context())
	return answer(x, http.StatusOK, info, err)
}

func (h *Handler) listImages(x *exchange) error {
	list, err := h.cfg.Service.Images(x.r.Context(), x.who)
	return answerList(x, list, err)
}

func (h *Handler) showImage(x *exchange) error {
	image, err := h.cfg.Service.Image(x.r.Context(), x.who, x.ref())
	return answer(x, http.StatusOK, image, err)
}

func (h *Handler) deleteImage(x *exchange) error {
	return answerNothing(x, http.StatusNoContent, h.cfg.Service.DeleteImage(x.r.Context(), x.who, x.ref()))
}

func (h *Handler) attachImages(x *exchange) error {
	req, err := body[api.AttachImagesRequest](x, maxBody)
	if err != nil {
		return err
	}
	a, err := h.cfg.Service.AttachImages(x.r.Context(), x.who, req)
	return answer(x, http.StatusOK, a, err)
}

func (h *Handler) listNodes(x *exchange) error {
	list, err := h.cfg.Service.Nodes(x.r.Context(), x.who)
	return answerList(x, list, err)
}

func (h *Handler) removeNode(x *exchange) error {
	force, err := x.force()
	if err != nil {
		return err
	}
	removed, err := h.cfg.Service.RemoveNode(x.r.Context(), x.who, x.ref(), force)
	if removed.Lost == nil {
		removed.Lost = []api.LostInstance{}
	}
	return answer(x, http.StatusOK, removed, err)
}

func (h *Handler) listTiers(x *exchange) error {
	list, err := h.cfg.Service.Tiers(x.r.Context(), x.who)
	return answerList(x, list, err)
}

func (h *Handler) createToken(x *exchange) error {
	req, err := body[api.CreateTokenRequest](x, maxBody)
	if err != nil {
		return err
	}
	token, err := h.cfg.Service.CreateToken(x.r.Context(), x.who, req)
	return answer(x, http.StatusCreated, token, err)
}

func (h *Handler) listTokens(x *exchange) error {
	list, err := h.cfg.Service.Tokens(x.r.Context(), x.who)
	return answerList(x, list, err)
}

func (h *Handler) deleteToken(x *exchange) error {
	return answerNothing(x, http.StatusNoContent, h.cfg.Service.DeleteToken(x.r.Context(), x.who, x.ref()))
}
