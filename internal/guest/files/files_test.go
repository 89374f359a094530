package files_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/billethq/billet/internal/guest/files"
	"github.com/billethq/billet/internal/testenv"
)

const (
	uid    = 61234
	octets = "Content-Type: application/octet-stream"
)

// world is a service and the home of its user.
type world struct {
	t      *testing.T
	home   string
	server *httptest.Server
}

func newWorld(t *testing.T, token string) *world {
	t.Helper()
	testenv.NeedRoot(t)
	top := testenv.OpenDir(t)
	w := &world{t: t, home: filepath.Join(top, "home")}
	etc := filepath.Join(top, "etc")
	w.must(os.Mkdir(etc, 0o755))
	w.must(os.Mkdir(w.home, 0o755))
	w.must(os.Chown(w.home, uid, uid))
	passwd := fmt.Sprintf("root:x:0:0::/root:/bin/sh\nuser:x:%d:%d::%s:/bin/sh\n", uid, uid, w.home)
	w.must(os.WriteFile(filepath.Join(etc, "passwd"), []byte(passwd), 0o644))
	mux := http.NewServeMux()
	files.New(files.Config{Etc: etc, Token: token, Now: func() time.Time { return time.Unix(1_700_000_000, 0) }}).Register(mux)
	w.server = httptest.NewServer(mux)
	t.Cleanup(w.server.Close)
	return w
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) path(name string) string { return filepath.Join(w.home, name) }

func (w *world) read(name string) string {
	w.t.Helper()
	b, err := os.ReadFile(w.path(name))
	w.must(err)
	return string(b)
}

// do sends a request, with headers given as "Name: value", and returns the
// answer with the body as it came.
func (w *world) do(method, target, body string, headers ...string) (*http.Response, string) {
	w.t.Helper()
	req, err := http.NewRequestWithContext(w.t.Context(), method, w.server.URL+target, strings.NewReader(body))
	w.must(err)
	for _, h := range headers {
		k, v, _ := strings.Cut(h, ": ")
		req.Header.Add(k, v)
	}
	if req.Header.Get("Accept-Encoding") == "" {
		req.Header.Set("Accept-Encoding", "identity") // else the client adds its own
	}
	res, err := w.server.Client().Do(req)
	w.must(err)
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	w.must(err)
	return res, string(b)
}

// form is a multipart body of files by name, and its type.
func form(t *testing.T, parts ...[3]string) (body, header string) {
	t.Helper()
	var b bytes.Buffer
	m := multipart.NewWriter(&b)
	for _, p := range parts {
		part, err := m.CreateFormFile(p[0], p[1])
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(part, p[2])
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String(), "Content-Type: " + m.FormDataContentType()
}

func zipped(s string) string {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, _ = io.WriteString(z, s)
	_ = z.Close()
	return b.String()
}

func query(path string) string { return "/files?path=" + url.QueryEscape(path) }

func TestUpload(t *testing.T) {
	w := newWorld(t, "")
	entry := func(names ...string) string {
		var all []string
		for _, n := range names {
			all = append(all, fmt.Sprintf(`{"name":%q,"type":"file","path":%q}`, filepath.Base(n), w.path(n)))
		}
		return "[" + strings.Join(all, ",") + "]\n"
	}
	one, oneType := form(t, [3]string{"file", "ignored name", "one"})
	several, severalType := form(t, [3]string{"other", "x", "skipped"}, [3]string{"file", "~/m/a", "A"}, [3]string{"file", w.path("m/b"), "B"})
	none, noneType := form(t, [3]string{"other", "x", ""})
	big := strings.Repeat("0123456789", 100_000)
	for _, c := range []struct {
		name, target, body, answer string
		headers                    []string
		content                    map[string]string
	}{
		{"octets", query("new/dir/f"), "raw", entry("new/dir/f"), []string{octets}, map[string]string{"new/dir/f": "raw"}},
		{"octets again", query("new/dir/f"), "r", entry("new/dir/f"), []string{octets}, map[string]string{"new/dir/f": "r"}},
		{"empty", query("empty"), "", entry("empty"), []string{octets}, map[string]string{"empty": ""}},
		{"big", query("big"), big, entry("big"), []string{octets}, map[string]string{"big": big}},
		{"gzip", query("z"), zipped(big), entry("z"), []string{octets, "Content-Encoding: gzip"}, map[string]string{"z": big}},
		{"form to a path", query("~/one"), one, entry("one"), []string{oneType}, map[string]string{"one": "one"}},
		{"form by names", "/files", several, entry("m/a", "m/b"), []string{severalType}, map[string]string{"m/a": "A", "m/b": "B"}},
		{"gzip form", query("zf"), zipped(one), entry("zf"), []string{oneType, "Content-Encoding: gzip"}, map[string]string{"zf": "one"}},
		{"form without files", "/files", none, entry(), []string{noneType}, nil},
	} {
		res, body := w.do("POST", c.target, c.body, c.headers...)
		if res.StatusCode != 200 || body != c.answer || res.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%s: %d %s, want %s", c.name, res.StatusCode, body, c.answer)
		}
		for name, want := range c.content {
			if got := w.read(name); got != want {
				t.Errorf("%s: %s has %.20q (%d bytes), want %.20q", c.name, name, got, len(got), want)
			}
		}
	}
	for _, name := range []string{"new", "new/dir", "new/dir/f"} {
		info, err := os.Stat(w.path(name))
		w.must(err)
		if got := info.Sys(); !strings.Contains(fmt.Sprintf("%+v", got), fmt.Sprintf("Uid:%d Gid:%d", uid, uid)) {
			t.Errorf("%s is not the user's: %+v", name, got)
		}
	}
	if res, _ := w.do("POST", query("/"+strings.TrimPrefix(w.path("roots"), "/"))+"&username=root", "x", octets); res.StatusCode != 200 {
		t.Errorf("as root: %d", res.StatusCode)
	}
	if res, _ := w.do("POST", query("roots"), "mine", octets); res.StatusCode != 500 || w.read("roots") != "x" {
		t.Errorf("root's file as the user: %d, content %q", res.StatusCode, w.read("roots"))
	}
}

func TestUpload_Metadata(t *testing.T) {
	w := newWorld(t, "")
	_, body := w.do("POST", query("f"), "x", octets, "X-Metadata-Author: me", "X-Metadata-Author: you", "X-Metadata-b-c: 2")
	var got []struct{ Metadata map[string]string }
	w.must(json.Unmarshal([]byte(body), &got))
	if d := cmp.Diff(map[string]string{"author": "me", "b-c": "2"}, got[0].Metadata); d != "" {
		t.Errorf("metadata (-want +got):\n%s", d)
	}
	if _, body = w.do("POST", query("f"), "x", octets); strings.Contains(body, "metadata") {
		t.Errorf("after an upload without: %s", body)
	}
}

func TestDownload(t *testing.T) {
	w := newWorld(t, "")
	text := strings.Repeat("0123456789", 1000)
	modified := time.Unix(1_600_000_000, 0)
	w.must(os.WriteFile(w.path("f"), []byte(text), 0o644))
	w.must(os.Chtimes(w.path("f"), modified, modified))
	w.must(os.WriteFile(w.path("empty"), nil, 0o644))
	w.must(os.Symlink("f", w.path("link")))
	since := "If-Modified-Since: " + modified.UTC().Format(http.TimeFormat)
	for _, c := range []struct {
		name, path string
		headers    []string
		status     int
		body       string
	}{
		{"whole", "f", nil, 200, text},
		{"home", "~/f", nil, 200, text},
		{"absolute", w.path("f"), nil, 200, text},
		{"link", "link", nil, 200, text},
		{"empty", "empty", nil, 200, ""},
		{"empty gzip", "empty", []string{"Accept-Encoding: gzip"}, 200, ""},
		{"range", "f", []string{"Range: bytes=5-9"}, 206, "56789"},
		{"range wins over gzip", "f", []string{"Range: bytes=5-9", "Accept-Encoding: gzip"}, 206, "56789"},
		{"suffix", "f", []string{"Range: bytes=-3"}, 206, "789"},
		{"beyond", "f", []string{"Range: bytes=20000-"}, 416, "invalid range: failed to overlap\n"},
		{"unchanged", "f", []string{since}, 304, ""},
		{"gzip", "f", []string{"Accept-Encoding: gzip, deflate"}, 200, zipped(text)},
		{"identity preferred", "f", []string{"Accept-Encoding: gzip;q=0.5, identity"}, 200, text},
		{"gzip only", "f", []string{"Accept-Encoding: identity;q=0, *"}, 200, zipped(text)},
		{"unknown", "f", []string{"Accept-Encoding: br"}, 200, text},
		{"anything", "f", []string{"Accept-Encoding: *"}, 200, text},
	} {
		res, body := w.do("GET", query(c.path), "", c.headers...)
		if res.StatusCode != c.status || body != c.body {
			t.Errorf("%s: %d %.40q (%d bytes), want %d %.40q", c.name, res.StatusCode, body, len(body), c.status, c.body)
		}
		if got, want := res.Header.Get("Content-Encoding") == "gzip", c.body == zipped(text); got != want {
			t.Errorf("%s: gzip %v, want %v", c.name, got, want)
		}
		if c.status == 200 && res.Header.Get("Content-Encoding") == "" && res.Header.Get("Content-Length") != strconv.Itoa(len(c.body)) {
			t.Errorf("%s: length %q", c.name, res.Header.Get("Content-Length"))
		}
		if c.status == 200 && (res.Header.Get("Content-Type") != "application/octet-stream" || res.Header.Get("Vary") != "Accept-Encoding") {
			t.Errorf("%s: headers %v", c.name, res.Header)
		}
	}
	// Content that is made up as it is read has no size beforehand.
	if res, body := w.do("GET", query("/proc/version"), ""); res.StatusCode != 200 || !strings.HasPrefix(body, "Linux") {
		t.Errorf("/proc/version: %d %q", res.StatusCode, body)
	}
	if res, body := w.do("HEAD", query("f"), ""); res.StatusCode != 200 || body != "" || res.ContentLength != int64(len(text)) {
		t.Errorf("HEAD: %d %q, %d bytes", res.StatusCode, body, res.ContentLength)
	}
}

func TestCompose(t *testing.T) {
	w := newWorld(t, "")
	for _, name := range []string{"p1", "p2"} {
		w.do("POST", query(name), name, octets)
	}
	res, body := w.do("POST", "/files/compose", `{"source_paths":["p2","~/p1"],"destination":"out/whole"}`)
	if want := fmt.Sprintf(`{"name":"whole","type":"file","path":%q}`+"\n", w.path("out/whole")); res.StatusCode != 200 || body != want {
		t.Errorf("%d %s, want %s", res.StatusCode, body, want)
	}
	if got := w.read("out/whole"); got != "p2p1" {
		t.Errorf("composed %q", got)
	}
	if _, err := os.Stat(w.path("p1")); !os.IsNotExist(err) {
		t.Errorf("a source is left: %v", err)
	}
}

// Each route with each refusal of the contract.
func TestErrors(t *testing.T) {
	w := newWorld(t, "")
	w.must(os.WriteFile(w.path("file"), []byte("kept"), 0o644))
	w.must(os.Chown(w.path("file"), uid, uid))
	w.must(os.Mkdir(w.path("dir"), 0o755))
	w.must(os.Chown(w.path("dir"), uid, uid))
	w.must(os.WriteFile(w.path("secret"), []byte("root's"), 0o600))
	small := testenv.TmpfsDir(t, "1m")
	testenv.Reachable(t, small)
	w.must(os.Chmod(small, 0o777))
	twice, twiceType := form(t, [3]string{"file", "same", "1"}, [3]string{"file", "./same", "2"})
	nameless, namelessType := form(t, [3]string{"file", "", "1"})
	cut, cutType := form(t, [3]string{"file", "cut", "12345678"})
	for _, c := range []struct {
		name, method, target, body string
		headers                    []string
		status                     int
	}{
		{"missing", "GET", query("none"), "", nil, 404},
		{"below a file", "GET", query("file/x"), "", nil, 404},
		{"directory", "GET", query("dir"), "", nil, 400},
		{"no path: the home", "GET", "/files", "", nil, 400},
		{"device", "GET", query("/dev/null"), "", nil, 400},
		{"another's home", "GET", query("~root/x"), "", nil, 400},
		{"zero byte", "GET", query("a\x00b"), "", nil, 400},
		{"long name", "GET", query(strings.Repeat("x", 256)), "", nil, 400},
		{"unknown user", "GET", query("file") + "&username=nobody-here", "", nil, 401},
		{"malformed authorization", "GET", query("file"), "", []string{"Authorization: Bearer x"}, 401},
		{"no encoding", "GET", query("file"), "", []string{"Accept-Encoding: identity;q=0"}, 406},
		{"forbidden", "GET", query("secret"), "", nil, 500},

		{"directory", "POST", query("dir"), "", []string{octets}, 400},
		{"no path", "POST", "/files", "", []string{octets}, 400},
		{"another's home", "POST", query("~root/x"), "", []string{octets}, 400},
		{"below a file", "POST", query("file/x"), "", []string{octets}, 400},
		{"content type", "POST", query("x"), "", []string{"Content-Type: text/plain"}, 400},
		{"no boundary", "POST", query("x"), "", []string{"Content-Type: multipart/form-data"}, 400},
		{"no form", "POST", query("x"), "no form", []string{"Content-Type: multipart/form-data; boundary=b"}, 400},
		{"cut form", "POST", query("x"), cut[:len(cut)-60], []string{cutType}, 400},
		{"same path twice", "POST", "/files", twice, []string{twiceType}, 400},
		{"no name", "POST", "/files", nameless, []string{namelessType}, 400},
		{"encoding", "POST", query("x"), "", []string{octets, "Content-Encoding: br"}, 400},
		{"no gzip", "POST", query("x"), "plain", []string{octets, "Content-Encoding: gzip"}, 400},
		{"cut gzip", "POST", query("x"), zipped("x")[:15], []string{octets, "Content-Encoding: gzip"}, 400},
		{"metadata", "POST", query("file"), "", []string{octets, "X-Metadata-K: \xff"}, 400},
		{"metadata size", "POST", query("file"), "", []string{octets, "X-Metadata-K: " + strings.Repeat("v", 4096)}, 400},
		{"unknown user", "POST", query("x") + "&username=nobody-here", "", []string{octets}, 401},
		{"forbidden", "POST", query("secret"), "", []string{octets}, 500},
		{"full disk", "POST", query(filepath.Join(small, "f")), strings.Repeat("x", 2<<20), []string{octets}, 507},

		{"no JSON", "POST", "/files/compose", "x", nil, 400},
		{"large", "POST", "/files/compose", `{"destination":"` + strings.Repeat("x", 5<<20), nil, 400},
		{"no sources", "POST", "/files/compose", `{"destination":"x"}`, nil, 400},
		{"no destination", "POST", "/files/compose", `{"source_paths":["file"]}`, nil, 400},
		{"itself", "POST", "/files/compose", `{"source_paths":["file"],"destination":"./file"}`, nil, 400},
		{"source is a directory", "POST", "/files/compose", `{"source_paths":["dir"],"destination":"x"}`, nil, 400},
		{"another's home", "POST", "/files/compose", `{"source_paths":["~root/x"],"destination":"x"}`, nil, 400},
		{"missing", "POST", "/files/compose", `{"source_paths":["file","none"],"destination":"x"}`, nil, 404},
		{"unknown user", "POST", "/files/compose", `{"source_paths":["file"],"destination":"x","username":"nobody-here"}`, nil, 401},
		{"forbidden", "POST", "/files/compose", `{"source_paths":["secret"],"destination":"x"}`, nil, 500},
	} {
		res, body := w.do(c.method, c.target, c.body, c.headers...)
		var e struct {
			Code    int
			Message string
		}
		if err := json.Unmarshal([]byte(body), &e); err != nil || res.StatusCode != c.status || e.Code != c.status || e.Message == "" {
			t.Errorf("%s, %s: %d %.200s, want %d", c.method, c.name, res.StatusCode, body, c.status)
		}
	}
	if got := w.read("file"); got != "kept" {
		t.Errorf("a refused request changed a file to %q", got)
	}
	if res, _ := w.do("DELETE", query("file"), ""); res.StatusCode != 405 {
		t.Errorf("DELETE: %d", res.StatusCode)
	}
}
