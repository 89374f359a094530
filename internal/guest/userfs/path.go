package userfs

import (
	"path"
	"strings"

	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/guest/users"
)

// maxPath and maxName bound a path and its elements, at Linux's limits. gVisor
// takes a longer name for one that is not there.
const (
	maxPath = 4096
	maxName = 255
)

// Resolve makes a client's path absolute and clean: relative ones and "~" are
// u's home's, ".." goes up by name.
func Resolve(p string, u users.User) (string, error) {
	switch {
	case strings.HasPrefix(p, "/"):
	case p == "~" || strings.HasPrefix(p, "~/"):
		p = u.Home + "/" + p[1:]
	case strings.HasPrefix(p, "~"):
		return "", errs.New(errs.Invalid, "path %q: only the user's own home is known as ~", shorten(p))
	default:
		p = u.Home + "/" + p
	}
	if p = path.Clean("/" + p); len(p) >= maxPath {
		return "", errs.New(errs.Invalid, "path %q: longer than %d bytes", shorten(p), maxPath-1)
	}
	if strings.Contains(p, "\x00") { // the account file's home may have one too
		return "", errs.New(errs.Invalid, "path %q: a path has no zero byte", shorten(p))
	}
	for elem := range strings.SplitSeq(p, "/") {
		if len(elem) > maxName {
			return "", errs.New(errs.Invalid, "path %q: a name is longer than %d bytes", shorten(p), maxName)
		}
	}
	return p, nil
}

// shorten keeps a message readable, whatever a client sent.
func shorten(p string) string {
	const most = 128
	if len(p) <= most {
		return p
	}
	return p[:most] + "…"
}
