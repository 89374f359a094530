package httpapi

import (
	"context"
	"net/http"
	"time"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/model"
)

// maxSyncWait bounds how long one sync is held open.
const maxSyncWait = time.Minute

func (h *Handler) sync(x *exchange) error {
	req, err := planeBody[api.SyncRequest](h, x)
	if err != nil {
		return err
	}
	if req.WaitMilli < 0 || req.WaitMilli > maxSyncWait.Milliseconds() {
		return errs.New(errs.Invalid, "wait_ms is %d, allowed are 0 to %d", req.WaitMilli, maxSyncWait.Milliseconds())
	}
	ctx, release := h.hold(x.r.Context())
	defer release()
	res, err := h.cfg.Plane.Sync(ctx, req)
	if res.Instances == nil {
		res.Instances = []api.DesiredInstance{}
	}
	if res.Projection.Gateways == nil {
		res.Projection.Gateways = []api.Gateway{}
	}
	if res.Projection.DomainKeys == nil {
		res.Projection.DomainKeys = []model.DomainKey{}
	}
	return answer(x, http.StatusOK, res, err)
}

func (h *Handler) beginFlush(x *exchange) error {
	req, err := planeBody[api.BeginFlushRequest](h, x)
	if err != nil {
		return err
	}
	res, err := h.cfg.Plane.BeginFlush(x.r.Context(), req)
	return answer(x, http.StatusOK, res, err)
}

func (h *Handler) commitFlush(x *exchange) error {
	req, err := planeBody[api.CommitFlushRequest](h, x)
	if err != nil {
		return err
	}
	if in := x.r.PathValue("intent"); in != string(req.Intent) {
		return errs.New(errs.Invalid, "the path names intent %q, the body %q", in, req.Intent)
	}
	res, err := h.cfg.Plane.CommitFlush(x.r.Context(), req)
	return answer(x, http.StatusOK, res, err)
}

func (h *Handler) commitGeneration(x *exchange) error {
	req, err := planeBody[api.CommitGenerationRequest](h, x)
	if err != nil {
		return err
	}
	image, err := h.cfg.Plane.CommitGeneration(x.r.Context(), req)
	return answer(x, http.StatusOK, image, err)
}

func planeBody[T any](h *Handler, x *exchange) (T, error) {
	if h.cfg.Plane == nil {
		var none T
		return none, errs.New(errs.Unsupported, "nodes do not call on this address")
	}
	return body[T](x, maxPlaneBody)
}

// hold returns a context that ends with the request, and when the server goes
// down. It is for what waits; a commit in flight is let end.
func (h *Handler) hold(ctx context.Context) (held context.Context, release func()) {
	held, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(h.drained, func() { cancel(context.Cause(h.drained)) })
	return held, func() { stop(); cancel(nil) }
}
