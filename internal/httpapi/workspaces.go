package httpapi

import (
	"net/http"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/errs"
)

func (h *Handler) createWorkspace(x *exchange) error {
	key, err := x.key()
	if err != nil {
		return err
	}
	req, err := body[api.CreateWorkspaceRequest](x, maxBody)
	if err != nil {
		return err
	}
	ws, err := h.cfg.Service.CreateWorkspace(x.r.Context(), x.who, key, req)
	return answer(x, http.StatusCreated, ws, err)
}

func (h *Handler) listWorkspaces(x *exchange) error {
	list, err := h.cfg.Service.Workspaces(x.r.Context(), x.who)
	return answerList(x, list, err)
}

func (h *Handler) listKilled(x *exchange) error {
	list, err := h.cfg.Service.KilledWorkspaces(x.r.Context(), x.who)
	return answerList(x, list, err)
}

func (h *Handler) recoverWorkspace(x *exchange) error {
	ws, err := h.cfg.Service.RecoverWorkspace(x.r.Context(), x.who, x.ref())
	return answer(x, http.StatusOK, ws, err)
}

func (h *Handler) showWorkspace(x *exchange) error {
	ws, err := h.cfg.Service.Workspace(x.r.Context(), x.who, x.ref())
	return answer(x, http.StatusOK, ws, err)
}

func (h *Handler) updateWorkspace(x *exchange) error {
	req, err := body[api.UpdateWorkspaceRequest](x, maxBody)
	if err != nil {
		return err
	}
	ws, err := h.cfg.Service.UpdateWorkspace(x.r.Context(), x.who, x.ref(), req)
	return answer(x, http.StatusOK, ws, err)
}

func (h *Handler) deleteWorkspace(x *exchange) error {
	force, err := x.force()
	if err != nil {
		return err
	}
	return answerNothing(x, http.StatusAccepted, h.cfg.Service.DeleteWorkspace(x.r.Context(), x.who, x.ref(), force))
}

// force is the one parameter of what loses something.
func (x *exchange) force() (bool, error) {
	q, err := x.query("force")
	if err != nil {
		return false, err
	}
	switch q["force"] {
	case "", "false", "true":
		return q["force"] == "true", nil
	}
	return false, errs.New(errs.Invalid, "force is %q", q["force"]).WithHint("write force=true or leave it away")
}

func (h *Handler) startWorkspace(x *exchange) error {
	req, err := optionalBody[api.StartWorkspaceRequest](x)
	if err != nil {
		return err
	}
	ws, err := h.cfg.Service.StartWorkspace(x.r.Context(), x.who, x.ref(), req)
	return answer(x, http.StatusAccepted, ws, err)
}

func (h *Handler) stopWorkspace(x *exchange) error {
	req, err := optionalBody[api.StopWorkspaceRequest](x)
	if err != nil {
		return err
	}
	ws, err := h.cfg.Service.StopWorkspace(x.r.Context(), x.who, x.ref(), req)
	return answer(x, http.StatusAccepted, ws, err)
}

func (h *Handler) forkWorkspace(x *exchange) error {
	key, err := x.key()
	if err != nil {
		return err
	}
	req, err := optionalBody[api.ForkWorkspaceRequest](x)
	if err != nil {
		return err
	}
	ctx, release := h.hold(x.r.Context())
	defer release()
	ws, err := h.cfg.Service.ForkWorkspace(ctx, x.who, key, x.ref(), req)
	return answer(x, http.StatusCreated, ws, err)
}

func (h *Handler) attachWorkspace(x *exchange) error {
	a, err := h.cfg.Service.Attach(x.r.Context(), x.who, x.ref())
	return answer(x, http.StatusOK, a, err)
}

func (h *Handler) listSnapshots(x *exchange) error {
	list, err := h.cfg.Service.Snapshots(x.r.Context(), x.who, x.ref())
	return answerList(x, list, err)
}

// ref is the name or id in the path, "" where the path has none.
func (x *exchange) ref() string { return x.r.PathValue("ref") }
