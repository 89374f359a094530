package httpapi

import (
	"slices"

	"github.com/billethq/billet/internal/model"
)

// route is one operation of the API.
type route struct {
	method string
	path   string // pattern of http.ServeMux
	roles  []model.Role
	open   bool // without authentication
	serve  func(*exchange) error
}

func (rt route) allows(r model.Role) bool { return slices.Contains(rt.roles, r) }

// routes is the whole API. openapi.yaml has the same operations.
func (h *Handler) routes() []route {
	var (
		anybody = []model.Role{model.RoleAdmin, model.RoleUser, model.RoleNode, model.RoleGateway}
		people  = []model.Role{model.RoleAdmin, model.RoleUser}
		admins  = []model.Role{model.RoleAdmin}
		nodes   = []model.Role{model.RoleNode}
		// The admin too: a gateway on the server's own machine has no token.
		gateways = []model.Role{model.RoleGateway, model.RoleAdmin}
	)
	return []route{
		{"GET", "/v1/health", nil, true, h.health},
		{"GET", "/v1/openapi.yaml", anybody, false, h.openapi},
		{"GET", "/v1/info", anybody, false, h.info},

		{"POST", "/v1/workspaces", people, false, h.createWorkspace},
		{"GET", "/v1/workspaces", people, false, h.listWorkspaces},
		{"GET", "/v1/workspaces/{ref}", people, false, h.showWorkspace},
		{"PATCH", "/v1/workspaces/{ref}", people, false, h.updateWorkspace},
		{"DELETE", "/v1/workspaces/{ref}", people, false, h.deleteWorkspace},
		{"POST", "/v1/workspaces/{ref}/start", people, false, h.startWorkspace},
		{"POST", "/v1/workspaces/{ref}/stop", people, false, h.stopWorkspace},
		{"POST", "/v1/workspaces/{ref}/fork", people, false, h.forkWorkspace},
		{"POST", "/v1/workspaces/{ref}/attach", people, false, h.attachWorkspace},
		{"POST", "/v1/workspaces/{ref}/connect", people, false, h.connectWorkspace},
		{"POST", "/v1/workspaces/{ref}/recover", admins, false, h.recoverWorkspace},
		{"GET", "/v1/killed", people, false, h.listKilled},
		{"POST", "/v1/workspaces/{ref}/links", people, false, h.openPort},
		{"POST", "/v1/workspaces/{ref}/shares", people, false, h.sharePort},
		{"GET", "/v1/workspaces/{ref}/shares", people, false, h.listShares},
		{"DELETE", "/v1/workspaces/{ref}/shares/{port}", people, false, h.unsharePort},
		{"GET", "/v1/workspaces/{ref}/snapshots", people, false, h.listSnapshots},
		{"GET", "/v1/workspaces/{ref}/progress", people, false, h.progress},
		{"GET", "/v1/workspaces/{ref}/events", people, false, h.events},
		{"GET", "/v1/events", people, false, h.events},

		{"GET", "/v1/images", people, false, h.listImages},
		{"POST", "/v1/images/attach", people, false, h.attachImages},
		{"GET", "/v1/images/{ref}", people, false, h.showImage},
		{"DELETE", "/v1/images/{ref}", people, false, h.deleteImage},

		{"GET", "/v1/nodes", people, false, h.listNodes},
		{"DELETE", "/v1/nodes/{ref}", admins, false, h.removeNode},
		{"GET", "/v1/tiers", people, false, h.listTiers},

		{"POST", "/v1/tokens", admins, false, h.createToken},
		{"GET", "/v1/tokens", admins, false, h.listTokens},
		{"DELETE", "/v1/tokens/{ref}", admins, false, h.deleteToken},

		{"GET", "/v1/ssh", people, false, h.showSSH},
		{"GET", "/v1/ssh/keys", people, false, h.listSSHKeys},
		{"POST", "/v1/ssh/keys", people, false, h.addSSHKey},
		{"DELETE", "/v1/ssh/keys/{ref}", people, false, h.removeSSHKey},
		{"POST", "/v1/ssh/certificates", people, false, h.signSSH},

		{"GET", "/v1/gateway/ssh/host", gateways, false, h.sshHost},
		{"POST", "/v1/gateway/ssh/grants", gateways, false, h.grantSSH},
		{"POST", "/v1/gateway/ssh/enter", gateways, false, h.enterSSH},
		{"POST", "/v1/gateway/ports/enter", gateways, false, h.enterPort},
		{"POST", "/v1/gateway/ports/admit", gateways, false, h.admitVisitor},

		{"POST", "/v1/plane/sync", nodes, false, h.sync},
		{"POST", "/v1/plane/flushes", nodes, false, h.beginFlush},
		{"POST", "/v1/plane/flushes/{intent}/commit", nodes, false, h.commitFlush},
		{"POST", "/v1/plane/generations", nodes, false, h.commitGeneration},
	}
}
