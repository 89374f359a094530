package e2b

import "net/http"

// route is one operation of the contract.
type route struct {
	pattern string
	serve   func(*exchange) error
}

// routes is the whole contract: old paths beside new ones, and what is not
// there with its reason.
func (h *Handler) routes() []route {
	old, recent := createDefaults{timeout: 15}, createDefaults{timeout: 300}
	volumes := missing("volumes are not there: what a sandbox keeps is its own disk")
	secrets := missing("secrets are not there: give variables with envs")
	builds := missing("templates are not built here: make an image with billet image import or billet image build, and use its name as the template")
	teams := missing("there is one team")
	return []route{
		{"POST /v2/sandboxes", func(x *exchange) error { return h.create(x, recent) }},
		{"POST /sandboxes", func(x *exchange) error { return h.create(x, old) }},
		{"GET /v2/sandboxes", h.list},
		{"GET /sandboxes", h.listRunning},
		{"GET /sandboxes/metrics", h.metricsOfMany},
		{"GET /sandboxes/{id}", h.info},
		{"DELETE /sandboxes/{id}", h.kill},
		{"POST /sandboxes/{id}/timeout", h.setTimeout},
		{"POST /sandboxes/{id}/refreshes", h.refresh},
		{"POST /sandboxes/{id}/pause", h.pause},
		{"POST /v2/sandboxes/{id}/connect", h.connect},
		{"POST /sandboxes/{id}/connect", h.connect},
		{"POST /sandboxes/{id}/resume", h.resume},
		{"POST /sandboxes/{id}/fork", h.fork},
		{"PUT /sandboxes/{id}/network", h.network},
		{"POST /sandboxes/{id}/snapshots", h.keepSnapshot},
		{"GET /snapshots", h.listSnapshots},
		{"GET /sandboxes/{id}/metrics", h.metrics},
		{"GET /sandboxes/{id}/logs", h.logs},
		{"GET /v2/sandboxes/{id}/logs", h.logs},

		{"GET /templates", h.listTemplates},
		{"GET /v2/templates", h.listTemplates},
		{"GET /templates/aliases/{alias}", h.templateAlias},
		{"DELETE /templates/{id}", h.deleteTemplate},
		{"/templates/", builds}, {"POST /templates", builds}, {"/v2/templates/", builds}, {"POST /v2/templates", builds},
		{"/v3/templates", builds}, {"/v3/templates/", builds},
		{"/volumes", volumes}, {"/volumes/", volumes}, {"/volumecontent/", volumes},
		{"/secrets", secrets}, {"/secrets/", secrets},
		{"/teams", teams}, {"/teams/", teams},
	}
}

// missing answers what the contract has and billet has not.
func missing(why string) func(*exchange) error {
	return func(*exchange) error { return &refusal{http.StatusNotImplemented, why} }
}
