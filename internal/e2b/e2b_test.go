package e2b

import (
	"encoding/binary"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/billethq/billet/internal/guest/files"
	"github.com/billethq/billet/internal/model"
)

func TestCreate_AnswersWhatAClientNeeds(t *testing.T) {
	w := newWorld(t)
	for _, path := range []string{"/v2/sandboxes", "/sandboxes"} {
		a := w.do("POST", path, `{"templateID":"base","metadata":{"k":"v"}}`)
		if a.status != http.StatusCreated || a.header.Get("Warning") == "" || a.header.Get("X-E2B-Trace-ID") == "" {
			t.Fatalf("%s: %d %s, head %v", path, a.status, a.body, a.header)
		}
		var s sandbox
		a.into(t, &s)
		if !model.IsID(s.SandboxID) || s.TemplateID != "base" || s.ClientID == "" || s.EnvdVersion == "" || len(s.AccessToken) != 64 {
			t.Errorf("%s: %+v", path, s)
		}
		var d detail
		w.do("GET", "/sandboxes/"+s.SandboxID, "").into(t, &d)
		want := map[string]time.Duration{"/v2/sandboxes": 300 * time.Second, "/sandboxes": 15 * time.Second}[path]
		if got := d.EndAt.Sub(d.StartedAt); got < want-time.Second || got > want+time.Second {
			t.Errorf("%s: ends after %v, want %v", path, got, want)
		}
		if d.State != stateRunning || d.Metadata["k"] != "v" || d.Lifecycle.OnTimeout != "kill" || *d.Internet {
			t.Errorf("%s: %+v", path, d)
		}
	}
	if a := w.do("POST", "/v2/sandboxes", `{"templateID":"base","allow_internet_access":false}`); a.header.Get("Warning") != "" {
		t.Errorf("warned although no network was asked for: %v", a.header)
	}
}

// TestErrors_AreTheContracts tries what is refused on every route.
func TestErrors_AreTheContracts(t *testing.T) {
	w := newWorld(t)
	s := w.create(`{}`)
	at := "/sandboxes/" + s.SandboxID
	for name, c := range map[string]struct {
		method, path, body string
		status             int
		says               string
		headers            []string
	}{
		"no key":              {"GET", "/v2/sandboxes", "", 401, "no API key", []string{"X-API-Key", ""}},
		"an unknown key":      {"GET", "/v2/sandboxes", "", 401, "not known", []string{"X-API-Key", "e2b_00"}},
		"an unknown path":     {"GET", "/v2/nothing", "", 404, "nothing at", nil},
		"an unknown template": {"POST", "/v2/sandboxes", `{"templateID":"nosuch"}`, 400, "billet image ls", nil},
		"a negative timeout":  {"POST", "/v2/sandboxes", `{"timeout":-1}`, 400, "timeout", nil},
		"an endless timeout":  {"POST", "/v2/sandboxes", `{"timeout":99999999}`, 400, "timeout", nil},
		"no JSON":             {"POST", "/v2/sandboxes", `{`, 400, "body", nil},
		"mcp":                 {"POST", "/v2/sandboxes", `{"mcp":{"a":1}}`, 400, "mcp", nil},
		"iam":                 {"POST", "/v2/sandboxes", `{"iam":{"a":1}}`, 400, "iam", nil},
		"volumes":             {"POST", "/v2/sandboxes", `{"volumeMounts":[{"name":"v","path":"/v"}]}`, 400, "volume", nil},
		"network rules":       {"POST", "/v2/sandboxes", `{"network":{"rules":{"a.b":[{}]}}}`, 400, "rules", nil},
		"no such sandbox":     {"GET", "/sandboxes/none", "", 404, "not there", nil},
		"kill of none":        {"DELETE", "/sandboxes/none", "", 404, "not there", nil},
		"timeout of none":     {"POST", "/sandboxes/none/timeout", `{"timeout":1}`, 404, "not there", nil},
		"timeout without one": {"POST", at + "/timeout", `{}`, 400, "missing", nil},
		"refresh too long":    {"POST", at + "/refreshes", `{"duration":7200}`, 400, "refresh", nil},
		"refresh of none":     {"POST", "/sandboxes/none/refreshes", `{"duration":1}`, 404, "not there", nil},
		"pause of none":       {"POST", "/sandboxes/none/pause", ``, 404, "not there", nil},
		"connect of none":     {"POST", "/v2/sandboxes/none/connect", ``, 404, "not there", nil},
		"resume of none":      {"POST", "/sandboxes/none/resume", ``, 404, "not there", nil},
		"resume of a running": {"POST", at + "/resume", ``, 409, "running", nil},
		"fork of none":        {"POST", "/sandboxes/none/fork", ``, 404, "not there", nil},
		"forks beyond all":    {"POST", at + "/fork", `{"count":1000}`, 400, "forks", nil},
		"network of none":     {"PUT", "/sandboxes/none/network", `{}`, 404, "not there", nil},
		"an egress proxy":     {"PUT", at + "/network", `{"egressProxy":{"a":1}}`, 400, "proxies", nil},
		"snapshot of none":    {"POST", "/sandboxes/none/snapshots", `{}`, 404, "not there", nil},
		"no such snapshot":    {"DELETE", "/templates/none", "", 404, "not there", nil},
		"an image":            {"DELETE", "/templates/base", "", 403, "billet image rm", nil},
		"metrics of none":     {"GET", "/sandboxes/none/metrics", "", 404, "not there", nil},
		"logs of none":        {"GET", "/v2/sandboxes/none/logs", "", 404, "not there", nil},
		"alias of none":       {"GET", "/templates/aliases/none", "", 404, "not there", nil},
		"a build":             {"POST", "/v3/templates", `{}`, 501, "billet image", nil},
		"a build's state":     {"GET", "/templates/x/builds/y/status", "", 501, "billet image", nil},
		"volumes at all":      {"GET", "/volumes", "", 501, "volumes", nil},
		"secrets":             {"GET", "/secrets/x", "", 501, "secrets", nil},
		"a state":             {"GET", "/v2/sandboxes?state=odd", "", 400, "state", nil},
		"an order":            {"GET", "/v2/sandboxes?order=odd", "", 400, "order", nil},
		"a limit":             {"GET", "/v2/sandboxes?limit=1000", "", 400, "limit", nil},
		"a time":              {"GET", "/v2/sandboxes?startedAfter=now", "", 400, "time", nil},
		"a page":              {"GET", "/v2/sandboxes?nextToken=x", "", 400, "nextToken", nil},
		"metadata":            {"GET", "/v2/sandboxes?metadata=x", "", 400, "metadata", nil},
	} {
		t.Run(name, func(t *testing.T) {
			a := w.do(c.method, c.path, c.body, c.headers...)
			var p problem
			a.into(t, &p)
			if a.status != c.status || p.Code != c.status || !strings.Contains(p.Message, c.says) {
				t.Errorf("got %d %s, want %d with %q", a.status, a.body, c.status, c.says)
			}
			if a.header.Get("Retry-After") != "" {
				t.Error("a Retry-After makes clients repeat what will be refused again")
			}
		})
	}
}

func TestCreate_CeilingIs429AndAFullFleet503(t *testing.T) {
	w := newWorld(t)
	for range 3 {
		w.create(`{}`)
	}
	a := w.do("POST", "/v2/sandboxes", `{}`)
	if a.status != http.StatusTooManyRequests || a.header.Get("Retry-After") != "" || !strings.Contains(a.body, "3 of 3") {
		t.Errorf("beyond the tier's ceiling: %d %s", a.status, a.body)
	}
	w = newWorld(t, 1)
	w.create(`{}`)
	a = w.do("POST", "/v2/sandboxes", `{}`)
	if a.status != http.StatusServiceUnavailable || !strings.Contains(a.body, "1 of 1") {
		t.Errorf("without room: %d %s", a.status, a.body)
	}
}

func TestCreate_AFailedStartLeavesNothing(t *testing.T) {
	w := newWorld(t)
	w.mu.Lock()
	w.broken = true
	w.mu.Unlock()
	a := w.do("POST", "/v2/sandboxes", `{}`)
	if a.status != http.StatusInternalServerError || !strings.Contains(a.body, "did not start") {
		t.Errorf("got %d %s", a.status, a.body)
	}
	if a := w.do("GET", "/v2/sandboxes", ""); strings.TrimSpace(a.body) != "[]" {
		t.Errorf("left: %s", a.body)
	}
}

func TestList_FiltersAndPages(t *testing.T) {
	w := newWorld(t)
	one, two := w.create(`{"metadata":{"a b":"c&d"}}`), w.create(`{"metadata":{"x":"y"}}`)
	three := w.create(`{"metadata":{"x":"y"}}`)
	if a := w.do("POST", "/sandboxes/"+three.SandboxID+"/pause", `{}`); a.status != http.StatusNoContent {
		t.Fatalf("pause: %d %s", a.status, a.body)
	}
	ids := func(path string) (out []string) {
		var all []detail
		w.do("GET", path, "").into(t, &all)
		for _, d := range all {
			out = append(out, d.SandboxID)
		}
		return out
	}
	for path, want := range map[string][]string{
		"/v2/sandboxes":                                   {three.SandboxID, two.SandboxID, one.SandboxID},
		"/v2/sandboxes?order=asc":                         {one.SandboxID, two.SandboxID, three.SandboxID},
		"/v2/sandboxes?state=running":                     {two.SandboxID, one.SandboxID},
		"/v2/sandboxes?state=paused":                      {three.SandboxID},
		"/v2/sandboxes?state=running,paused&template=x":   nil,
		"/v2/sandboxes?metadata=a%252520b%3Dc%252526d":    {one.SandboxID},
		"/v2/sandboxes?startedAfter=2100-01-01T00:00:00Z": nil,
		"/sandboxes?metadata=x%3Dy":                       {two.SandboxID},
	} {
		if got := ids(path); !slices.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", path, got, want)
		}
	}
	var seen []string
	for token := ""; ; {
		a := w.do("GET", "/v2/sandboxes?limit=1&nextToken="+token, "")
		var page []detail
		a.into(t, &page)
		for _, d := range page {
			seen = append(seen, d.SandboxID)
		}
		if a.header.Get("X-Total-Running") != "2" {
			t.Errorf("X-Total-Running is %q", a.header.Get("X-Total-Running"))
		}
		if token = a.header.Get("X-Next-Token"); token == "" {
			break
		}
	}
	if want := []string{three.SandboxID, two.SandboxID, one.SandboxID}; !slices.Equal(seen, want) {
		t.Errorf("pages gave %v, want %v", seen, want)
	}
}

func TestLife_PauseConnectTimeoutKill(t *testing.T) {
	w := newWorld(t)
	s := w.create(`{"timeout":100}`)
	at := "/sandboxes/" + s.SandboxID
	left := func() time.Duration {
		var d detail
		w.do("GET", at, "").into(t, &d)
		return time.Until(d.EndAt).Round(10 * time.Second)
	}
	want := func(method, path, body string, status int) {
		t.Helper()
		if a := w.do(method, path, body); a.status != status {
			t.Errorf("%s %s %s: %d %s, want %d", method, path, body, a.status, a.body, status)
		}
	}
	want("POST", at+"/timeout", `{"timeout":50}`, 204)
	if got := left(); got != 50*time.Second {
		t.Errorf("shortened: %v left", got)
	}
	want("POST", at+"/refreshes", `{"duration":10}`, 204)
	if got := left(); got != 50*time.Second {
		t.Errorf("a refresh shortened it: %v left", got)
	}
	want("POST", "/v2"+at+"/connect", `{"timeout":10}`, 200)
	if got := left(); got != 50*time.Second {
		t.Errorf("connect shortened it: %v left", got)
	}
	want("POST", at+"/pause", ``, 204)
	want("POST", at+"/pause", ``, 409)
	want("POST", at+"/timeout", `{"timeout":50}`, 404)
	want("GET", at+"/metrics", "", 200)
	want("POST", "/v2"+at+"/connect", `{"timeout":200}`, 201)
	if got := left(); got != 200*time.Second {
		t.Errorf("resumed: %v left", got)
	}
	want("POST", at+"/pause", ``, 204)
	want("POST", "/v2"+at+"/connect", `{"timeout":10}`, 201)
	if got := left(); got != 200*time.Second {
		t.Errorf("resumed for less than it had: %v left", got)
	}
	want("POST", at+"/pause", `{"memory":false}`, 204)
	want("POST", at+"/resume", ``, 201)
	want("POST", at+"/pause", ``, 204)
	want("POST", at+"/connect", `{"timeout":20,"memory":false}`, 201)
	want("PUT", at+"/network", `{"denyOut":["0.0.0.0/0"]}`, 204)
	if a := w.do("GET", at, ""); !strings.Contains(a.body, `"denyOut":["0.0.0.0/0"]`) {
		t.Errorf("the policy is not shown: %s", a.body)
	}
	want("DELETE", at, "", 204)
	want("DELETE", at, "", 404)
	want("POST", "/v2"+at+"/connect", ``, 404)
}

func TestObserve_MetricsLogsTemplates(t *testing.T) {
	w := newWorld(t)
	s := w.create(`{}`)
	var samples []metric
	w.do("GET", "/sandboxes/"+s.SandboxID+"/metrics", "").into(t, &samples)
	if len(samples) != 1 || samples[0].MemTotal != 1024 || samples[0].Timestamp.Unix() != 1700000000 {
		t.Errorf("metrics: %+v", samples)
	}
	for path, says := range map[string]string{
		"/sandboxes/" + s.SandboxID + "/metrics?start=1800000000": "[]",
		"/sandboxes/metrics?sandbox_ids=" + s.SandboxID + ",none": s.SandboxID,
		"/v2/sandboxes/" + s.SandboxID + "/logs":                  "workspace.created",
		"/sandboxes/" + s.SandboxID + "/logs?direction=backward":  "terms.created",
		"/templates":              `"base"`,
		"/templates/aliases/base": `"public":true`,
		"/snapshots":              "[]",
	} {
		if a := w.do("GET", path, ""); a.status != http.StatusOK || !strings.Contains(a.body, says) {
			t.Errorf("%s: %d %s, want %s in it", path, a.status, a.body, says)
		}
	}
}

func TestData_TheTokenOpensAndStaysOutside(t *testing.T) {
	w := newWorld(t)
	s := w.create(`{"envVars":{"A":"1"}}`)
	id, port, tok := []string{headerSandbox, s.SandboxID}, []string{headerPort, agentPort}, []string{headerToken, s.AccessToken}
	all := slices.Concat(id, port, tok)
	hosted := []string{"Host", agentPort + "-" + s.SandboxID + ".any.test", headerToken, s.AccessToken}
	for name, headers := range map[string][]string{"by headers": all, "by host": hosted, "without a port": slices.Concat(id, tok)} {
		a := w.do("GET", "/files?path=x", "", headers...)
		var got seenRequest
		a.into(t, &got)
		if a.status != http.StatusOK || got.URI != "/files?path=x" {
			t.Fatalf("%s: %d %s", name, a.status, a.body)
		}
		for _, secret := range []string{headerToken, "X-API-Key", headerSandbox} {
			if got.Header.Get(secret) != "" {
				t.Errorf("%s: the guest was shown %s", name, secret)
			}
		}
	}
	sign := "/files?path=x&signature=" + strings.ReplaceAll(files.Sign(s.AccessToken, "x", "read", "", ""), "+", "%2B")
	if a := w.do("GET", sign, "", slices.Concat(id, port)...); a.status != http.StatusOK || strings.Contains(a.body, "signature") {
		t.Errorf("signed: %d %s", a.status, a.body)
	}
	for name, c := range map[string]struct {
		path    string
		headers []string
		status  int
	}{
		"no token":          {"/files?path=x", slices.Concat(id, port), 401},
		"another token":     {"/files?path=x", slices.Concat(id, port, []string{headerToken, "x"}), 401},
		"what is the hosts": {"/billet/version", all, 404},
		"init":              {"/init", all, 404},
		"no such sandbox":   {"/health", []string{headerSandbox, "wnosuch0000000000000"}, 502},
		"health":            {"/health", slices.Concat(id, port), 204},
		"envs":              {"/envs", all, 200},
	} {
		if a := w.do("GET", c.path, "", c.headers...); a.status != c.status {
			t.Errorf("%s: %d %s, want %d", name, a.status, a.body, c.status)
		}
	}
}

func TestData_VariablesJoinEveryStart(t *testing.T) {
	w := newWorld(t)
	s := w.create(`{"envVars":{"A":"1"}}`)
	message := `{"process":{"cmd":"sh"}}`
	body := string(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message)))) + message
	headers := []string{headerSandbox, s.SandboxID, headerToken, s.AccessToken, "Content-Type", "application/connect+json"}
	var got seenRequest
	w.do("POST", "/process.Process/Start", body, headers...).into(t, &got)
	if !strings.Contains(strings.ReplaceAll(got.Body, " ", ""), `"envs":{"A":"1"}`) {
		t.Errorf("the guest got %q", got.Body)
	}
	if a := w.do("POST", "/process.Process/Start", "x", headers...); a.status != http.StatusBadRequest {
		t.Errorf("a broken start: %d %s", a.status, a.body)
	}
}

func TestData_APausedSandboxResumesWhereItsTermsSaySo(t *testing.T) {
	w := newWorld(t)
	for body, status := range map[string]int{
		`{"autoPause":true,"autoResume":{"enabled":true}}`: http.StatusNoContent,
		`{"autoPause":true}`: http.StatusBadGateway,
	} {
		s := w.create(body)
		if a := w.do("POST", "/sandboxes/"+s.SandboxID+"/pause", ``); a.status != http.StatusNoContent {
			t.Fatalf("pause: %d %s", a.status, a.body)
		}
		if a := w.do("GET", "/health", "", headerSandbox, s.SandboxID); a.status != status {
			t.Errorf("%s: %d %s, want %d", body, a.status, a.body, status)
		}
	}
}

func TestClaims_LeavesBilletsOwn(t *testing.T) {
	w := newWorld(t)
	for path, want := range map[string]bool{
		"/v1/workspaces": false, "/v1/health": false, "/sandboxes": true, "/v2/sandboxes": true, "/sandboxesx": false, "/": false, "/templates/x": true,
	} {
		r, err := http.NewRequest(http.MethodGet, "http://127.0.0.1"+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := w.h.Claims(r); got != want {
			t.Errorf("%s: claimed %t, want %t", path, got, want)
		}
		r.Header.Set(headerSandbox, "x")
		if !w.h.Claims(r) {
			t.Errorf("%s to a sandbox is not claimed", path)
		}
	}
}
