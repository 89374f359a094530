package entrance

import (
	"net/http"
	"strings"
	"testing"
	"time"
)

// invariant 11: what is not one's own is not there.
func TestRefusals(t *testing.T) {
	w := newWorld(t, hello)
	prefix := "/w/web/" + w.port
	bearer := []string{"Authorization", "Bearer " + ann}
	cookie := []string{"Cookie", "billet_session=" + annsMy}
	for _, c := range []struct {
		name, host, path string
		header           []string
		want             int
	}{
		{"nothing shown", w.host(), "/", nil, 401},
		{"nothing shown, no such workspace", w.port + "-none." + domain, "/", nil, 401},
		{"a wrong token", w.host(), "/", []string{"Authorization", "Bearer blt_no"}, 401},
		{"a wrong pass", w.host(), "/", []string{"Cookie", "billet_session=blp_no"}, 401},
		{"a token as a cookie", w.host(), "/", []string{"Cookie", "billet_session=" + ann}, 401},
		{"two tokens", w.host(), "/", append([]string{"Authorization", "Bearer blt_other"}, bearer...), 400},
		{"another's workspace", w.port + "-none." + domain, "/", bearer, 404},
		{"another host", "evil.example", prefix + "/", bearer, 404},
		{"a host that ends alike", w.port + "-web.evil" + domain, "/", bearer, 404},
		{"a host below a name", "x." + w.host(), "/", bearer, 404},
		{"a host with a dot at its end", w.host() + ".", "/", bearer, 404},
		{"a path on the bare domain", domain, "/", bearer, 404},
		{"an address that is not loopback", "10.0.0.1", prefix + "/", bearer, 404},
		{"port 0", "0-web." + domain, "/", bearer, 404},
		{"port 65536", "65536-web." + domain, "/", bearer, 404},
		{"a port with a zero before it", "0" + w.port + "-web." + domain, "/", bearer, 404},
		{"no name", w.port + "-." + domain, "/", bearer, 404},
		{"an id for a name", w.port + "-" + strings.Repeat("a", 20) + "." + domain, "/", bearer, 404},
		{"dots for a name", "localhost", "/w/../" + w.port + "/", bearer, 404},
		{"escaped dots for a name", "localhost", "/w/%2e%2e/" + w.port + "/", bearer, 404},
		{"an escaped slash", "localhost", "/w/web%2f" + w.port + "/", bearer, 404},
		{"an escaped letter", "localhost", "/w/w%65b/" + w.port + "/", bearer, 404},
		{"a path that only begins alike", "localhost", "/web/" + w.port + "/", bearer, 404},
		{"nobody listens", "1-web." + domain, "/", bearer, 502},
		{"the path form without its slash", "localhost", prefix, bearer, 308},

		{"a pass", w.host(), "/", cookie, 200},
		{"a pass after a useless one", w.host(), "/", append([]string{"Cookie", "billet_session=blp_no"}, cookie...), 200},
		{"a pass, another site's script", w.host(), "/", append([]string{"Origin", "https://evil.example"}, cookie...), 401},
		{"a pass, another workspace's script", w.host(), "/", append([]string{"Origin", "http://80-other." + domain}, cookie...), 401},
		{"a pass, a file's script", w.host(), "/", append([]string{"Origin", "null"}, cookie...), 401},
		{"a pass, another workspace's picture", w.host(), "/", append([]string{"Sec-Fetch-Site", "same-site", "Sec-Fetch-Mode", "no-cors", "Sec-Fetch-Dest", "image"}, cookie...), 401},
		{"a pass, another workspace's frame", w.host(), "/", append([]string{"Sec-Fetch-Site", "same-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "iframe"}, cookie...), 401},
		{"a pass, a link that was followed", w.host(), "/", append([]string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document"}, cookie...), 200},
		{"a pass, its own script", w.host(), "/", append([]string{"Origin", "http://" + w.host()}, cookie...), 200},
		{"a pass, a script of its other port", w.host(), "/", append([]string{"Origin", "http://3000-web." + domain}, cookie...), 200},
		{"a token, another site's program", w.host(), "/", append([]string{"Origin", "https://evil.example"}, bearer...), 200},
	} {
		res, body := w.ask("GET", c.host, c.path, c.header...)
		if res.StatusCode != c.want {
			t.Errorf("%s: got %s %q, want %d", c.name, res.Status, body, c.want)
		}
		if (body == "hello") != (c.want == 200) {
			t.Errorf("%s: the guest answered %q", c.name, body)
		}
		if (c.want == 401) != (res.Header.Get("WWW-Authenticate") != "") {
			t.Errorf("%s: WWW-Authenticate is %q", c.name, res.Header.Get("WWW-Authenticate"))
		}
	}
}

// Requests that two programs would read differently reach no guest.
func TestRefusals_Smuggling(t *testing.T) {
	w := newWorld(t, hello)
	auth := "Authorization: Bearer " + ann + "\r\n"
	host := "Host: " + w.host() + "\r\n"
	for name, text := range map[string]string{
		"two lengths":                 "POST / HTTP/1.1\r\n" + host + auth + "Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
		"an unknown transfer coding":  "POST / HTTP/1.1\r\n" + host + auth + "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
		"two transfer codings":        "POST / HTTP/1.1\r\n" + host + auth + "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n",
		"a blank before the colon":    "GET / HTTP/1.1\r\n" + host + auth + "Content-Length : 5\r\n\r\nhello",
		"two hosts":                   "GET / HTTP/1.1\r\n" + host + "Host: evil\r\n" + auth + "\r\n",
		"no host":                     "GET / HTTP/1.1\r\n" + auth + "\r\n",
		"another host in its address": "GET http://" + w.host() + "/ HTTP/1.1\r\nHost: evil\r\n" + auth + "\r\n",
		"a tunnel":                    "CONNECT " + w.host() + ":80 HTTP/1.1\r\n" + host + auth + "\r\n",
	} {
		res, err := http.ReadResponse(w.raw(text), nil)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		_ = res.Body.Close()
		if res.StatusCode < 400 || res.StatusCode > 501 {
			t.Errorf("%s: got %s, want an error", name, res.Status)
		}
	}
	if len(w.got) > 0 {
		t.Errorf("the guest got %v", w.got)
	}
}

// A share opens one port for its time, and a WebSocket no longer than that.
func TestShare_Expires(t *testing.T) {
	w := newWorld(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	w.public = time.Now().Add(time.Second)
	if res, _ := w.ask("GET", w.host(), "/"); res.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("a request that was open when the share expired: got %s, want 503", res.Status)
	}
	if time.Now().Before(w.public) {
		t.Error("it was ended before")
	}
	if res, _ := w.ask("GET", w.host(), "/"); res.StatusCode != http.StatusUnauthorized {
		t.Errorf("after: got %s, want 401", res.Status)
	}
}
