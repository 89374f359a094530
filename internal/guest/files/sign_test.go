package files_test

import (
	"net/url"
	"os"
	"testing"

	"github.com/billethq/billet/internal/guest/files"
)

// The values are those of the contract's own client, e2b@2.51.0.
func TestSign_IsTheContracts(t *testing.T) {
	for _, c := range []struct{ path, operation, user, expires, want string }{
		{"a.txt", "read", "", "", "v1_gDv73H8R9a10OdCSX0/JNMqMYLPpmCQAYJY+U68oQjM"},
		{"/home/user/ü b", "write", "root", "", "v1_S31boNfObtpeF8GRd8l0lnbQyNECMc3eno7AciJk2GQ"},
		{"a.txt", "read", "", "1700000060", "v1_VWdD8LnJwsu460yjnd8UVwV0bWURnZDC61ZV7O9KN1E"},
	} {
		if got := files.Sign("tok", c.path, c.operation, c.user, c.expires); got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
	}
}

func TestAuthorize(t *testing.T) {
	w := newWorld(t, "tok")
	w.must(os.WriteFile(w.path("f"), []byte("x"), 0o644))
	w.must(os.Chown(w.path("f"), uid, uid))
	signed := func(path, sig, user, expires string) string {
		q := url.Values{"path": {path}, "signature": {sig}}
		if user != "" {
			q.Set("username", user)
		}
		if expires != "" {
			q.Set("signature_expiration", expires)
		}
		return "/files?" + q.Encode()
	}
	read := files.Sign("tok", "f", "read", "", "")
	write := files.Sign("tok", "f", "write", "", "")
	asRoot := files.Sign("tok", w.path("f"), "read", "root", "")
	compose := `{"source_paths":["none"],"destination":"x"}`
	// The service's clock says 1,700,000,000.
	for _, c := range []struct {
		name, method, target string
		headers              []string
		status               int
	}{
		{"token", "GET", query("f"), []string{"X-Access-Token: tok"}, 200},
		{"another token", "GET", query("f"), []string{"X-Access-Token: nope"}, 401},
		{"another token and a signature", "GET", signed("f", read, "", ""), []string{"X-Access-Token: nope"}, 401},
		{"nothing", "GET", query("f"), nil, 401},
		{"signature", "GET", signed("f", read, "", ""), nil, 200},
		{"signature to write", "GET", signed("f", write, "", ""), nil, 401},
		{"signature to read", "POST", signed("f", read, "", ""), []string{octets}, 401},
		{"signature of another path", "GET", signed("g", read, "", ""), nil, 401},
		{"the same path otherwise", "GET", signed("./f", read, "", ""), nil, 401},
		{"signature for another user", "GET", signed("f", read, "root", ""), nil, 401},
		{"signature for root", "GET", signed(w.path("f"), asRoot, "root", ""), nil, 200},
		{"write", "POST", signed("f", write, "", ""), []string{octets}, 200},
		{"in time", "GET", signed("f", files.Sign("tok", "f", "read", "", "1700000000"), "", "1700000000"), nil, 200},
		{"too late", "GET", signed("f", files.Sign("tok", "f", "read", "", "1699999999"), "", "1699999999"), nil, 401},
		{"no number", "GET", signed("f", files.Sign("tok", "f", "read", "", "x"), "", "x"), nil, 401},
		{"an end that was not signed", "GET", signed("f", read, "", "1800000000"), nil, 401},
		{"compose without", "POST", "/files/compose", nil, 401},
		{"compose signed", "POST", "/files/compose?signature=" + url.QueryEscape(write), nil, 401},
		{"compose", "POST", "/files/compose", []string{"X-Access-Token: tok"}, 404},
	} {
		body := ""
		if c.target[:8] == "/files/c" {
			body = compose
		}
		if res, got := w.do(c.method, c.target, body, c.headers...); res.StatusCode != c.status {
			t.Errorf("%s: %d %s, want %d", c.name, res.StatusCode, got, c.status)
		}
	}
}
