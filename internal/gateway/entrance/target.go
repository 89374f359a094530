package entrance

import (
	"net"
	"net/netip"
	"net/url"
	"regexp"
	"strconv"
	"strings"

	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/model"
)

// target is the port that a request is for.
type target struct {
	name   string
	port   int
	prefix string // of the path form: /w/NAME/PORT
	path   string // what follows it, as it was escaped; begins with /
}

var portPattern = regexp.MustCompile(`^[1-9][0-9]{0,4}$`)

// locate finds out which port a request is for. Nothing but the exact forms is
// taken: what two programs would read differently must not choose a workspace.
func (e *Entrance) locate(v *visit) error {
	if v.r.URL.Host != "" || !strings.HasPrefix(v.r.URL.Path, "/") {
		return errs.New(errs.Invalid, "this is no proxy: ask for a path")
	}
	host := hostname(v.r.Host)
	t, ok := e.hostForm(host)
	if ok {
		t.path = v.r.URL.EscapedPath()
		v.target = t
		return nil
	}
	if !e.servesPaths(host) {
		return nothingHere()
	}
	if v.target, ok = pathForm(v.r.URL.EscapedPath()); !ok {
		return nothingHere()
	}
	return nil
}

func nothingHere() error {
	return errs.New(errs.NotFound, "there is nothing here").
		WithHint("servers in workspaces are at PORT-NAME.domain, or at /w/NAME/PORT/; see: billet ws open NAME PORT")
}

// hostname is the host of a Host header, in small letters; "" when it is none.
func hostname(host string) string {
	if h, port, err := net.SplitHostPort(host); err == nil {
		if _, err := strconv.ParseUint(port, 10, 16); err != nil {
			return ""
		}
		host = h
	}
	return strings.ToLower(strings.Trim(host, "[]"))
}

// hostForm reads PORT-NAME.domain.
func (e *Entrance) hostForm(host string) (target, bool) {
	label, ok := strings.CutSuffix(host, "."+e.cfg.Domain)
	if !ok {
		return target{}, false
	}
	port, name, _ := strings.Cut(label, "-")
	return named(name, port)
}

// servesPaths says by which hosts the path form is found: a name that somebody
// else points at this machine is none of them.
func (e *Entrance) servesPaths(host string) bool {
	if host == e.cfg.Domain || host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback()
}

// pathForm reads /w/NAME/PORT and what follows it.
func pathForm(escaped string) (target, bool) {
	rest, ok := strings.CutPrefix(escaped, "/w/")
	if !ok {
		return target{}, false
	}
	name, rest, ok := strings.Cut(rest, "/")
	if !ok {
		return target{}, false
	}
	port, rest, slash := strings.Cut(rest, "/")
	t, ok := named(name, port)
	t.prefix = "/w/" + name + "/" + port
	if slash {
		t.path = "/" + rest
	}
	return t, ok
}

func named(name, port string) (target, bool) {
	if !portPattern.MatchString(port) || model.CheckName("workspace", name) != nil {
		return target{}, false
	}
	n, err := strconv.Atoi(port)
	return target{name: name, port: n}, err == nil && model.CheckPort(n) == nil
}

// foreign reports whether a page of somebody else's makes the request: what the
// browser keeps for this workspace is not that page's to use. Workspaces are
// one site to a browser, so SameSite alone does not tell them apart. The path
// form has one origin for all.
func (v *visit) foreign() bool {
	h := v.r.Header
	if origin := h.Get("Origin"); origin != "" {
		return !v.own(origin)
	}
	switch h.Get("Sec-Fetch-Site") {
	case "", "none", "same-origin":
		return false
	}
	if h.Get("Sec-Fetch-Mode") == "navigate" && h.Get("Sec-Fetch-Dest") == "document" {
		return false // a link that was followed
	}
	return !v.own(h.Get("Referer"))
}

// own reports whether an address is of this origin, or of another port of the
// same workspace.
func (v *visit) own(address string) bool {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" {
		return false
	}
	if strings.EqualFold(u.Host, v.r.Host) {
		return true
	}
	other, ok := v.e.hostForm(hostname(u.Host))
	return ok && v.prefix == "" && other.name == v.name
}
