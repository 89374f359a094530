package httpapi

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/api/apitest"
	"github.com/billethq/billet/internal/errs"
)

func TestRefusals_AreProblems(t *testing.T) {
	s := newServer(t)
	big := `{"name":"` + strings.Repeat("a", maxBody) + `"}`
	for name, c := range map[string]struct {
		method, path, body string
		header             []string
		status             int
		kind               errs.Kind
		detail, hint       string
	}{
		"no such path":         {method: "GET", path: "/v1/nothing", status: 404, kind: errs.NotFound, detail: "there is nothing at /v1/nothing", hint: "/v1/openapi.yaml"},
		"the root":             {method: "GET", path: "/", status: 404, kind: errs.NotFound},
		"wrong method":         {method: "DELETE", path: "/v1/tiers", status: 405, kind: errs.Unsupported, detail: "DELETE is not possible", hint: "possible: GET, HEAD"},
		"too large":            {method: "POST", path: "/v1/workspaces", body: big, status: 413, kind: errs.Invalid, detail: "larger than 65536 bytes"},
		"not declared as JSON": {method: "POST", path: "/v1/workspaces", body: `{}`, header: []string{"Content-Type", "text/plain"}, status: 415, kind: errs.Invalid},
		"not JSON":             {method: "POST", path: "/v1/workspaces", body: `{"name":`, status: 400, kind: errs.Invalid, detail: "not JSON"},
		"two values":           {method: "POST", path: "/v1/workspaces", body: `{} {}`, status: 400, kind: errs.Invalid, detail: "more than one"},
		"no object":            {method: "POST", path: "/v1/workspaces", body: `[]`, status: 400, kind: errs.Invalid, detail: "not a JSON object"},
		"no body":              {method: "POST", path: "/v1/workspaces", status: 400, kind: errs.Invalid, detail: "no body"},
		"unknown fields, all of them": {
			method: "POST", path: "/v1/workspaces", body: `{"nmae":"a","Tier":"small","disk":1,"x":{"y":1}}`, status: 400, kind: errs.Invalid,
			detail: "unknown fields: Tier, nmae, x", hint: "known here: class, disk, image, name, stopped, tier",
		},
		"wrong type":                {method: "POST", path: "/v1/workspaces", body: `{"disk":"16GiB"}`, status: 400, kind: errs.Invalid, detail: "field disk: a string does not fit"},
		"unknown parameter":         {method: "DELETE", path: "/v1/workspaces/demo?forse=true", status: 400, kind: errs.Invalid, detail: "parameters: forse", hint: "force"},
		"repeated parameter":        {method: "DELETE", path: "/v1/workspaces/demo?force=true&force=false", status: 400, kind: errs.Invalid, detail: "parameters: force"},
		"a user removes a node":     {method: "DELETE", path: "/v1/nodes/box", header: []string{"Authorization", "Bearer " + apitest.UserToken}, status: 403, kind: errs.Denied},
		"a node that is heard":      {method: "DELETE", path: "/v1/nodes/box?force=true", status: 409, kind: errs.Conflict, detail: "box is heard"},
		"force is no boolean":       {method: "DELETE", path: "/v1/workspaces/demo?force=yes", status: 400, kind: errs.Invalid, detail: `force is "yes"`},
		"until is unknown":          {method: "GET", path: "/v1/workspaces/demo/progress?until=tomorrow", status: 400, kind: errs.Invalid, detail: `until is "tomorrow"`},
		"limit is beyond":           {method: "GET", path: "/v1/events?limit=1001", status: 400, kind: errs.Invalid, detail: `limit is "1001"`},
		"after is negative":         {method: "GET", path: "/v1/events?after=-1", status: 400, kind: errs.Invalid, detail: `after is "-1"`},
		"another version":           {method: "GET", path: "/v1/tiers", header: []string{api.VersionHeader, "2"}, status: 400, kind: errs.Invalid, detail: `this client speaks API version "2", the server version "1"`, hint: "use the billet binary that the server runs"},
		"version before token":      {method: "GET", path: "/v1/tiers", header: []string{api.VersionHeader, "2", "Authorization", ""}, status: 400, kind: errs.Invalid, detail: "API version"},
		"no token":                  {method: "GET", path: "/v1/tiers", header: []string{"Authorization", ""}, status: 401, kind: errs.Unauthenticated, detail: "no bearer token", hint: "--token-file"},
		"another scheme":            {method: "GET", path: "/v1/tiers", header: []string{"Authorization", "Basic Ymxh"}, status: 401, kind: errs.Unauthenticated, detail: "no bearer token"},
		"wrong token":               {method: "GET", path: "/v1/tiers", header: []string{"Authorization", "Bearer wrong"}, status: 401, kind: errs.Unauthenticated, detail: "not known or has expired", hint: "billet token create"},
		"a user makes a token":      {method: "POST", path: "/v1/tokens", body: `{"name":"a"}`, header: []string{"Authorization", "Bearer " + apitest.UserToken}, status: 403, kind: errs.Denied, detail: "ann is a user and may not"},
		"a node lists":              {method: "GET", path: "/v1/workspaces", header: []string{"Authorization", "Bearer " + apitest.NodeToken}, status: 403, kind: errs.Denied},
		"an admin plays node":       {method: "POST", path: "/v1/plane/sync", body: `{}`, status: 403, kind: errs.Denied},
		"a long idempotency key":    {method: "POST", path: "/v1/workspaces", body: `{}`, header: []string{api.IdempotencyHeader, strings.Repeat("k", 256)}, status: 400, kind: errs.Invalid, detail: "Idempotency-Key"},
		"a key with spaces":         {method: "POST", path: "/v1/workspaces", body: `{}`, header: []string{api.IdempotencyHeader, "a b"}, status: 400, kind: errs.Invalid, detail: "Idempotency-Key"},
		"name with path characters": {method: "POST", path: "/v1/workspaces", body: `{"name":"../../etc"}`, status: 400, kind: errs.Invalid, detail: "not a DNS label"},
		"intent of another path": {
			method: "POST", path: "/v1/plane/flushes/" + apitest.ID("other") + "/commit", header: []string{"Authorization", "Bearer " + apitest.NodeToken},
			body: `{"intent":"` + apitest.ID("f") + `"}`, status: 400, kind: errs.Invalid, detail: "the path names intent",
		},
		"a wait beyond the bound": {
			method: "POST", path: "/v1/plane/sync", body: `{"wait_ms":60001}`, header: []string{"Authorization", "Bearer " + apitest.NodeToken}, status: 400, kind: errs.Invalid, detail: "wait_ms",
		},
		"a nested unknown field": {
			method: "POST", path: "/v1/plane/sync", body: `{"observed":[{"phases":[{"nam":"x"}]}]}`, header: []string{"Authorization", "Bearer " + apitest.NodeToken},
			status: 400, kind: errs.Invalid, detail: "unknown fields: observed[0].phases[0].nam",
		},
	} {
		t.Run(name, func(t *testing.T) {
			res, p := s.raw(t, c.method, c.path, c.body, c.header...)
			if res.StatusCode != c.status || p.Status != c.status || p.Kind != string(c.kind) {
				t.Errorf("got %d %+v, want %d %s", res.StatusCode, p, c.status, c.kind)
			}
			if !strings.Contains(p.Detail, c.detail) || !strings.Contains(p.Hint, c.hint) {
				t.Errorf("got %q (hint: %q), want in it %q (hint: %q)", p.Detail, p.Hint, c.detail, c.hint)
			}
			if res.Header.Get(api.VersionHeader) != api.Version || res.Header.Get(api.RequestIDHeader) == "" {
				t.Errorf("head is %v", res.Header)
			}
			if (res.Header.Get("WWW-Authenticate") == "Bearer") != (c.status == 401) {
				t.Errorf("WWW-Authenticate is %q", res.Header.Get("WWW-Authenticate"))
			}
		})
	}
	if made := must[[]api.Workspace](t)(s.client(t, apitest.AdminToken).Workspaces(t.Context())); len(made) != 0 {
		t.Errorf("refused requests made %+v", made)
	}
}

// TestRoles_HoldOnEveryRoute tries every route with every role.
func TestRoles_HoldOnEveryRoute(t *testing.T) {
	s := newServer(t)
	tokens := map[string]string{"admin": apitest.AdminToken, "user": apitest.UserToken, "node": apitest.NodeToken, "gateway": apitest.GatewayToken, "nobody": ""}
	want := map[string]string{
		"plane": "node", "tokens": "admin", "gateway": "gateway admin", "info": "admin user node gateway", "openapi.yaml": "admin user node gateway",
		"health": "admin user node gateway nobody",
	}
	for _, rt := range s.handler.routes() {
		group := strings.Split(rt.path, "/")[2]
		allowed, special := want[group]
		if !special {
			allowed = "admin user"
		}
		if rt.method == "DELETE" && group == "nodes" || strings.HasSuffix(rt.path, "/recover") {
			allowed = "admin"
		}
		for role, token := range tokens {
			header := []string{"Authorization", ""}
			if token != "" {
				header[1] = "Bearer " + token
			}
			path := strings.NewReplacer("{ref}", "none", "{intent}", apitest.ID("f")).Replace(rt.path)
			if group == "events" {
				path += "?limit=1"
			}
			res, _ := s.raw(t, rt.method, path, "", header...)
			refused := res.StatusCode == http.StatusForbidden || res.StatusCode == http.StatusUnauthorized
			if refused == strings.Contains(allowed, role) {
				t.Errorf("%s %s as %s: got %d", rt.method, rt.path, role, res.StatusCode)
			}
		}
	}
}

func TestLocal_NeedsNoTokenButHonoursOne(t *testing.T) {
	s := newServer(t, func(c *Config) { c.Local = local() })
	for header, status := range map[string]int{"": 200, "Bearer " + apitest.UserToken: 403, "Bearer wrong": 401} {
		if res, _ := s.raw(t, "GET", "/v1/tokens", "", "Authorization", header); res.StatusCode != status {
			t.Errorf("with %q: got %d, want %d", header, res.StatusCode, status)
		}
	}
}

func TestFaults_AreHiddenAndLogged(t *testing.T) {
	s := newServer(t)
	s.fake.SetHook(func(method string) error {
		switch method {
		case "Tiers":
			panic("index of something secret")
		case "Nodes":
			return errors.New("open /secret/path: boom")
		case "Images":
			return errs.New(errs.Internal, "the ledger is corrupt").WithHint("restore it from a copy")
		}
		return nil
	})
	for path, want := range map[string]api.Problem{
		"/v1/tiers":  {Detail: "a fault inside billet", Hint: "the server's log has it under request "},
		"/v1/nodes":  {Detail: "a fault inside billet", Hint: "the log of the process that answered has the cause"},
		"/v1/images": {Detail: "the ledger is corrupt", Hint: "restore it from a copy"},
	} {
		res, p := s.raw(t, "GET", path, "")
		if res.StatusCode != 500 || p.Detail != want.Detail || !strings.HasPrefix(p.Hint, want.Hint) {
			t.Errorf("%s: got %d %+v, want %+v", path, res.StatusCode, p, want)
		}
		if id := res.Header.Get(api.RequestIDHeader); !strings.Contains(s.log.String(), id) {
			t.Errorf("%s: the log does not know request %s:\n%s", path, id, s.log)
		}
	}
	for _, cause := range []string{"index of something secret", "open /secret/path: boom"} {
		if !strings.Contains(s.log.String(), cause) {
			t.Errorf("the log lacks %q", cause)
		}
	}
}

func TestLog_HasNoSecrets(t *testing.T) {
	s := newServer(t)
	s.raw(t, "POST", "/v1/tokens", `{"name":"secretive"}`)
	s.raw(t, "GET", "/v1/tiers?token=inthequery", "", "Authorization", "Bearer wrongsecret")
	for _, secret := range []string{apitest.AdminToken, "blt_secret_secretive", "wrongsecret", "inthequery"} {
		if strings.Contains(s.log.String(), secret) {
			t.Errorf("the log has %q:\n%s", secret, s.log)
		}
	}
	if !strings.Contains(s.log.String(), `"route":"POST /v1/tokens"`) {
		t.Errorf("the log lacks the request:\n%s", s.log)
	}
}

func TestNew_WantsItsDependencies(t *testing.T) {
	if _, err := New(Config{}); !errs.Is(err, errs.Internal) {
		t.Errorf("got %v", err)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"name":"a","disk":1}`))
	f.Add([]byte(`{"observed":[{"phases":[{"nam":1}]}],"capacity":null}`))
	f.Add([]byte(`{"a":{"b":[[[{}]]]}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, v := range []any{&api.SyncRequest{}, &api.CreateWorkspaceRequest{}} {
			if err := decode(data, v); err != nil && !errs.Is(err, errs.Invalid) {
				t.Fatalf("kind of %v is %s", err, errs.KindOf(err))
			}
		}
	})
}
