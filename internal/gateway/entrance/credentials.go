package entrance

import (
	"net/http"
	"slices"
	"strings"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/errs"
)

const (
	// cookieName is the cookie with a browser's pass. The guest never sees it.
	cookieName = "billet_session"
	// maxPasses bounds the passes that are tried: a page of another workspace
	// can add cookies of that name for the whole domain.
	maxPasses = 4
)

// shownCredentials is what a visitor shows of billet's.
type shownCredentials struct {
	token  api.Secret
	passes []api.Secret
}

// proofs are what is tried in turn: a token alone, since its holder meant to be
// somebody; else every pass, and at last nothing.
func (c shownCredentials) proofs() []api.Secret {
	if c.token != "" {
		return []api.Secret{c.token}
	}
	return append(slices.Clone(c.passes), "")
}

// credentials reads what is billet's of a request. A foreign page's request has
// no passes.
func credentials(r *http.Request, foreign bool) (c shownCredentials, err error) {
	for _, v := range r.Header.Values("Authorization") {
		token, ok := ownToken(v)
		if !ok {
			continue
		}
		if c.token != "" {
			return c, errs.New(errs.Invalid, "the request has two billet tokens")
		}
		c.token = api.Secret(token)
	}
	if foreign {
		return c, nil
	}
	for _, cookie := range r.CookiesNamed(cookieName) {
		if len(c.passes) < maxPasses && cookie.Value != "" && !api.IsToken(cookie.Value) {
			c.passes = append(c.passes, api.Secret(cookie.Value))
		}
	}
	return c, nil
}

// ownToken returns the billet token of an Authorization header. Any other is
// the guest's.
func ownToken(header string) (string, bool) {
	scheme, token, _ := strings.Cut(strings.TrimSpace(header), " ")
	token = strings.TrimSpace(token)
	return token, strings.EqualFold(scheme, "Bearer") && api.IsToken(token)
}

// strip takes what is billet's out of a request's headers, and leaves the rest
// as it is.
func strip(h http.Header) {
	kept := slices.DeleteFunc(slices.Clone(h["Authorization"]), func(v string) bool { _, own := ownToken(v); return own })
	set(h, "Authorization", kept)
	var cookies []string
	for _, line := range h["Cookie"] {
		parts := slices.DeleteFunc(strings.Split(line, ";"), func(part string) bool {
			name, _, _ := strings.Cut(part, "=")
			return strings.TrimSpace(name) == cookieName || strings.TrimSpace(part) == ""
		})
		if len(parts) > 0 {
			cookies = append(cookies, strings.TrimSpace(strings.Join(parts, ";")))
		}
	}
	set(h, "Cookie", cookies)
	for name := range h {
		if strings.HasPrefix(name, "X-Forwarded-") || strings.HasPrefix(name, "Billet-") || name == "Forwarded" || name == "X-Real-Ip" {
			h.Del(name)
		}
	}
}

func set(h http.Header, name string, values []string) {
	if h.Del(name); len(values) > 0 {
		h[name] = values
	}
}
