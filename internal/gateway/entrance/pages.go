package entrance

import (
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"strings"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/errs"
)

var page = template.Must(template.New("page").Parse(`<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
{{if .Refresh}}<meta http-equiv="refresh" content="1">{{end}}<title>{{.Title}}</title>
<style>body{font:16px/1.5 system-ui,sans-serif;max-width:34em;margin:15vh auto;padding:0 1em}input,button{font:inherit;padding:.3em}p.hint{color:#555}</style>
</head><body><h1>{{.Title}}</h1><p id="billet">{{.Text}}</p>{{if .Hint}}<p class="hint">{{.Hint}}</p>{{end}}
{{if .Login}}<form method="post" action="{{.Login}}"><input type="hidden" name="next" value="{{.Next}}">
<label>Token <input type="password" name="token" autocomplete="off" autofocus></label> <button>Enter</button></form>{{end}}
</body></html>
`))

// shownPage is what a page says.
type shownPage struct {
	Title, Text, Hint string
	Refresh           bool
	Login, Next       string
}

// acceptsPage reports whether HTML is an answer.
func acceptsPage(r *http.Request) bool {
	return strings.Contains(r.Header.Get("Accept"), "text/html")
}

// answer writes a page, or its text for a program.
func (v *visit) answer(status int, p shownPage) {
	h := v.w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	if !acceptsPage(v.r) {
		h.Set("Content-Type", "text/plain; charset=utf-8")
		v.w.WriteHeader(status)
		text := "billet: " + p.Text + "\n"
		if p.Hint != "" {
			text += "hint: " + p.Hint + "\n"
		}
		_, _ = v.w.Write([]byte(text))
		return
	}
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'")
	v.w.WriteHeader(status)
	_ = page.Execute(v.w, p)
}

func (v *visit) status(status int, title, text, hint string) {
	v.answer(status, shownPage{Title: title, Text: text, Hint: hint})
}

// loginPage asks for a token. It says the same whether there is such a
// workspace or not.
func (v *visit) loginPage(why string) {
	next := v.prefix + v.path
	if v.path == loginPath {
		next = v.prefix + "/"
	} else if v.r.URL.RawQuery != "" && !v.r.URL.Query().Has(api.LinkParameter) {
		next += "?" + v.r.URL.RawQuery
	}
	v.w.Header().Set("WWW-Authenticate", `Bearer realm="billet"`)
	v.answer(http.StatusUnauthorized, shownPage{
		Title: "Private", Text: why, Login: v.prefix + loginPath, Next: next,
		Hint: fmt.Sprintf("open it with a link of: billet ws open %s %d, or send a token as Authorization: Bearer.", v.name, v.port),
	})
}

// waitPage tells a person what the workspace is doing, and comes back.
func (v *visit) waitPage(phase api.ConnectPhaseName) {
	v.w.Header().Set("Retry-After", "1")
	v.answer(http.StatusServiceUnavailable, shownPage{Title: "Waking " + v.name, Text: phaseText(phase), Refresh: true})
}

func phaseText(phase api.ConnectPhaseName) string {
	switch phase {
	case api.PhasePlaced:
		return "placed: a node has it"
	case api.PhaseFetchingBlocks:
		return "fetching_blocks: its disk is on the way"
	case api.PhaseRestoringMemory:
		return "restoring_memory: its processes go on where they were"
	case api.PhaseBooting:
		return "booting: it starts from its disk"
	case api.PhaseAttached:
		return "attached: in a moment"
	case api.PhaseAuthorised:
	}
	return "authorised: it is being woken"
}

// retryAfter is what a program is told to wait, in seconds.
const retryAfter = "5"

// refuse answers with an error. Whoever has shown nothing is told no more of a
// workspace than that it cannot be had.
func (v *visit) refuse(err error) {
	kind, text, hint := errs.KindOf(err), err.Error(), errs.HintOf(err)
	var port *portError
	inGuest := errors.As(err, &port)
	if kind == errs.Unauthenticated && !inGuest {
		v.loginPage(text)
		return
	}
	status, title := answerOf(kind)
	if inGuest && kind != errs.Unavailable && kind != errs.Exhausted {
		status, title = http.StatusBadGateway, "Nobody there"
	}
	if kind == errs.Unavailable || kind == errs.Exhausted {
		v.w.Header().Set("Retry-After", retryAfter)
	}
	if !v.shown && !inGuest && (kind == errs.Conflict || kind == errs.Unavailable || kind == errs.Internal) {
		text, hint = "the workspace is not running", ""
	}
	if kind == errs.Internal {
		v.e.cfg.Log.Error("entrance failed", "workspace", v.name, "port", v.port, "err", err)
		text = "a fault inside billet"
	}
	v.status(status, title, text, hint)
}

// answerOf gives an error's kind its answer.
func answerOf(kind errs.Kind) (int, string) {
	switch kind {
	case errs.Invalid:
		return http.StatusBadRequest, "Not like that"
	case errs.NotFound:
		return http.StatusNotFound, "Not there"
	case errs.Denied:
		return http.StatusForbidden, "Not for you"
	case errs.Conflict, errs.Stale, errs.Exhausted, errs.Unavailable:
		return http.StatusServiceUnavailable, "Not now"
	case errs.Unauthenticated:
		return http.StatusUnauthorized, "Private"
	case errs.Unsupported:
		return http.StatusNotImplemented, "Not here"
	case errs.Internal:
	}
	return http.StatusInternalServerError, "Broken"
}
