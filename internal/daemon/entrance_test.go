package daemon

import (
	"bufio"
	"context"
	"crypto/sha1"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/testenv"
)

// The servers of the guest are busybox scripts: one connection a time, which is
// what tells a connection that was kept by mistake.
const (
	servePage = `mkdir -p /www/cgi-bin; echo '<!doctype html><title>t</title><p id=it>hello from the guest</p>' > /www/index.html
printf '#!/bin/sh\necho; echo "$REQUEST_METHOD $HTTP_COOKIE auth=$HTTP_AUTHORIZATION"; head -c "${CONTENT_LENGTH:-0}"\n' > /www/cgi-bin/echo
chmod 755 /www/cgi-bin/echo; busybox httpd -p 127.0.0.1:8080 -h /www`
	// A WebSocket that echoes one frame: the answer's frame has no mask, so the
	// test sends with a mask of zero and the payload comes back as it was.
	serveSocket = `cat > /ws.sh <<'E'
while read -r line; do line="${line%?}"
  case "$line" in [Ss]ec-[Ww]eb[Ss]ocket-[Kk]ey:*) key="${line#*: }";; "") break;; esac
done
accept=$(printf '%s258EAFA5-E914-47DA-95CA-C5AB0DC85B11' "$key" | busybox sha1sum | busybox cut -c1-40 | busybox xxd -r -p | busybox base64)
printf 'HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: %s\r\n\r\n' "$accept"
busybox dd bs=1 count=6 of=/dev/null 2>/dev/null
printf '\201\005'; busybox dd bs=1 count=5 2>/dev/null
sleep 60
E
busybox nc -ll -p 9090 -e /bin/sh /ws.sh >/dev/null 2>&1 &`
)

// page opens an address in a browser and returns what it shows in the end.
func (d *deployment) page(address string) string {
	d.t.Helper()
	chromium := testenv.NeedBinary(d.t, "chromium")
	ctx, cancel := context.WithTimeout(d.t.Context(), 90*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, chromium, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
		"--no-first-run", "--user-data-dir="+d.t.TempDir(), "--timeout=45000", "--virtual-time-budget=20000", "--dump-dom", address)
	cmd.Env = append(os.Environ(), "HOME="+d.t.TempDir())
	out, err := cmd.Output()
	if err != nil {
		d.t.Fatalf("chromium %s: %v", address, err)
	}
	return string(out)
}

// ask makes a request of the entrance by the host form.
func (d *deployment) ask(method, host, path string, body io.Reader, header ...string) (int, string) {
	d.t.Helper()
	req, err := http.NewRequestWithContext(d.t.Context(), method, "http://"+d.cfg.EntranceListen+path, body)
	if err != nil {
		d.t.Fatal(err)
	}
	req.Host = host
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		d.t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		d.t.Fatal(err)
	}
	return res.StatusCode, string(text)
}

func TestEntrance_ServesWhatRunsInAWorkspace(t *testing.T) {
	testenv.NeedRoot(t)
	testenv.NeedFUSE(t)
	testenv.NeedLoop(t)
	testenv.LeakCheck(t)
	d := up(t, home(t))
	defer d.down()
	d.image("base")
	if _, err := d.client.CreateWorkspace(t.Context(), "", api.CreateWorkspaceRequest{Name: "web"}); err != nil {
		t.Fatal(err)
	}
	defer d.delete("web")
	d.until("web", api.WorkspaceRunning)
	d.exec("web", "/bin/sh", "-c", servePage)
	d.exec("web", "/bin/sh", "-c", serveSocket)
	token, err := d.client.CreateToken(t.Context(), api.CreateTokenRequest{Name: "ann"})
	if err != nil {
		t.Fatal(err)
	}
	bearer := "Bearer " + token.Secret
	host := "8080-web." + d.cfg.EntranceDomain

	t.Run("GET", func(t *testing.T) {
		d := d.in(t)
		if code, body := d.ask("GET", host, "/", nil, "Authorization", bearer); code != 200 || !strings.Contains(body, "hello from the guest") {
			t.Errorf("got %d %q", code, body)
		}
		if code, body := d.ask("GET", d.cfg.EntranceListen, "/w/web/8080/index.html", nil, "Authorization", bearer); code != 200 || !strings.Contains(body, "hello from the guest") {
			t.Errorf("by the path: got %d %q", code, body)
		}
	})
	t.Run("POST", func(t *testing.T) {
		d := d.in(t)
		sent := strings.Repeat("x", 100_000)
		code, body := d.ask("POST", host, "/cgi-bin/echo", strings.NewReader(sent), "Authorization", bearer, "Cookie", "a=1; billet_session=secret; b=2")
		if want := "POST a=1; b=2 auth=\n" + sent; code != 200 || body != want {
			t.Errorf("got %d and %d bytes %.60q, want %d bytes %.60q", code, len(body), body, len(want), want)
		}
	})
	t.Run("WebSocket", func(t *testing.T) { d.in(t).webSocket("9090-web."+d.cfg.EntranceDomain, bearer) })
	t.Run("refused", func(t *testing.T) {
		d := d.in(t)
		for name, c := range map[string]struct {
			host, path, auth string
			want             int
		}{
			"without a token":        {host, "/", "", 401},
			"with a wrong token":     {host, "/", "Bearer blt_wrong", 401},
			"no such workspace":      {"8080-other." + d.cfg.EntranceDomain, "/", "", 401},
			"no such workspace, ann": {"8080-other." + d.cfg.EntranceDomain, "/", bearer, 404},
			"nobody listens":         {"8081-web." + d.cfg.EntranceDomain, "/", bearer, 502},
			"no port":                {"0-web." + d.cfg.EntranceDomain, "/", bearer, 404},
			"another host":           {"evil.example", "/w/web/8080/", bearer, 404},
			"a path that climbs":     {d.cfg.EntranceListen, "/w/web/..%2f8080/", bearer, 404},
		} {
			if code, body := d.ask("GET", c.host, c.path, nil, "Authorization", c.auth); code != c.want {
				t.Errorf("%s: got %d %q, want %d", name, code, body, c.want)
			}
		}
	})
	t.Run("share", func(t *testing.T) {
		d := d.in(t)
		if _, err := d.client.SharePort(t.Context(), "web", api.SharePortRequest{Port: 8080, Public: true, For: "1h"}); err != nil {
			t.Fatal(err)
		}
		if code, body := d.ask("GET", host, "/", nil); code != 200 {
			t.Errorf("shared: got %d %q", code, body)
		}
		if code, _ := d.ask("GET", "9090-web."+d.cfg.EntranceDomain, "/", nil); code != 401 {
			t.Errorf("another port: got %d, want 401", code)
		}
		if err := d.client.UnsharePort(t.Context(), "web", 8080); err != nil {
			t.Fatal(err)
		}
		testenv.Await(t, 3*api.EntranceRecheck, func() error {
			if code, _ := d.ask("GET", host, "/", nil); code != 401 {
				return fmt.Errorf("ended: got %d, want 401", code)
			}
			return nil
		})
	})
	t.Run("browser", func(t *testing.T) { d.in(t).browse() })
	t.Run("hibernated", func(t *testing.T) {
		d := d.in(t)
		d.hibernate("web")
		if code, body := d.ask("GET", host, "/", nil, "Authorization", bearer); code != 200 || !strings.Contains(body, "hello from the guest") {
			t.Errorf("a program: got %d %q", code, body)
		}
		d.hibernate("web")
		d.browse()
	})
}

// in is the deployment for a subtest.
func (d *deployment) in(t *testing.T) *deployment {
	sub := *d
	sub.t = t
	return &sub
}

// browse opens a link into the page, in a browser that has nothing of ours.
func (d *deployment) browse() {
	d.t.Helper()
	link, err := d.client.OpenPort(d.t.Context(), "web", api.OpenPortRequest{Port: 8080})
	if err != nil {
		d.t.Fatal(err)
	}
	if dom := d.page(link.URL); !strings.Contains(dom, "hello from the guest") {
		d.t.Errorf("the browser shows %s", dom)
	}
	u, err := url.Parse(link.URL)
	if err != nil {
		d.t.Fatal(err)
	}
	if dom := d.page(link.URL); strings.Contains(dom, "hello from the guest") || !strings.Contains(dom, "<form") {
		d.t.Errorf("the link was good twice, for %s: %s", u.Host, dom)
	}
}

func (d *deployment) hibernate(name string) {
	d.t.Helper()
	if _, err := d.client.StopWorkspace(d.t.Context(), name, api.StopWorkspaceRequest{}); err != nil {
		d.t.Fatal(err)
	}
	d.until(name, api.WorkspaceStopped)
}

func (d *deployment) delete(name string) {
	d.t.Helper()
	if err := d.client.DeleteWorkspace(d.t.Context(), name, true); err != nil {
		d.t.Error(err)
		return
	}
	d.gone(name)
}

// webSocket sends one frame and wants it back.
func (d *deployment) webSocket(host, bearer string) {
	d.t.Helper()
	conn, err := net.Dial("tcp", d.cfg.EntranceListen)
	if err != nil {
		d.t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	const key = "dGhlIHNhbXBsZSBub25jZQ=="
	fmt.Fprintf(conn, "GET /chat HTTP/1.1\r\nHost: %s\r\nAuthorization: %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: %s\r\n\r\n", host, bearer, key)
	r := bufio.NewReader(conn)
	res, err := http.ReadResponse(r, nil)
	if err != nil {
		d.t.Fatal(err)
	}
	sum := sha1.Sum([]byte(key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	if want := base64.StdEncoding.EncodeToString(sum[:]); res.StatusCode != 101 || res.Header.Get("Sec-WebSocket-Accept") != want {
		body, _ := io.ReadAll(res.Body)
		d.t.Fatalf("got %s accept %q, want 101 and %q: %s", res.Status, res.Header.Get("Sec-WebSocket-Accept"), want, body)
	}
	if _, err := conn.Write([]byte("\x81\x85\x00\x00\x00\x00hello")); err != nil {
		d.t.Fatal(err)
	}
	got := make([]byte, 7)
	if _, err := io.ReadFull(r, got); err != nil || string(got) != "\x81\x05hello" {
		d.t.Errorf("got frame %q, %v", got, err)
	}
}
