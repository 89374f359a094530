package entrance

import (
	"net/http"
	"strings"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/errs"
)

const (
	// loginPath is where the login page sends its token. Guests do not get
	// requests for it.
	loginPath = "/.billet/login"
	// maxForm bounds a login: a token and a path.
	maxForm = 8 << 10
)

// login turns a token into a pass.
func (v *visit) login() {
	if v.r.Method != http.MethodPost {
		v.w.Header().Set("Allow", http.MethodPost)
		v.status(http.StatusMethodNotAllowed, "Not this way", "logging in is a POST", "")
		return
	}
	// Another page must not log a browser in as somebody of its choice.
	if v.foreign() {
		v.refuse(errs.New(errs.Denied, "the request comes from another page"))
		return
	}
	v.browser = acceptsPage(v.r)
	v.r.Body = http.MaxBytesReader(v.w, v.r.Body, maxForm)
	if err := v.r.ParseForm(); err != nil {
		v.refuse(errs.Wrap(errs.Invalid, err, "read the form"))
		return
	}
	token := strings.TrimSpace(v.r.PostForm.Get("token"))
	if !api.IsToken(token) {
		v.loginPage("that is no billet token")
		return
	}
	next := v.r.PostForm.Get("next")
	if !strings.HasPrefix(next, v.prefix+"/") || strings.HasPrefix(next, "//") || strings.ContainsAny(next, "\\\r\n\t") {
		next = v.prefix + "/"
	}
	v.letIn(api.Secret(token), next)
}

// link turns the ticket of a link into a pass, and takes it out of the address.
func (v *visit) link() {
	if v.r.Method != http.MethodGet {
		v.refuse(errs.New(errs.Invalid, "a link is opened by GET"))
		return
	}
	q := v.r.URL.Query()
	ticket := q.Get(api.LinkParameter)
	q.Del(api.LinkParameter)
	next := v.prefix + v.path
	if strings.HasPrefix(next, "//") || strings.Contains(next, "\\") {
		next = v.prefix + "/" // as a Location it would name another host
	}
	if len(q) > 0 {
		next += "?" + q.Encode()
	}
	v.letIn(api.Secret(ticket), next)
}

// letIn gives the browser its pass and sends it on.
func (v *visit) letIn(proof api.Secret, next string) {
	in, err := v.e.cfg.Control.Admit(v.r.Context(), api.AdmitRequest{Workspace: v.name, Proof: proof})
	if err != nil {
		if errs.Is(err, errs.Unauthenticated) {
			v.loginPage("that opens nothing here (any more)")
			return
		}
		v.refuse(err)
		return
	}
	http.SetCookie(v.w, &http.Cookie{
		Name: cookieName, Value: string(in.Pass), Path: v.prefix + "/", Expires: in.Expires,
		HttpOnly: true, SameSite: http.SameSiteLaxMode, Secure: v.r.TLS != nil,
	})
	v.redirect(next, http.StatusSeeOther)
}

func (v *visit) redirect(to string, status int) {
	if status == http.StatusPermanentRedirect && v.r.URL.RawQuery != "" {
		to += "?" + v.r.URL.RawQuery
	}
	v.w.Header().Set("Location", to)
	v.w.Header().Set("Cache-Control", "no-store")
	v.w.Header().Set("Referrer-Policy", "no-referrer")
	v.w.WriteHeader(status)
}
