package api

import (
	"net/http"

	"github.com/billethq/billet/internal/errs"
)

// StatusOf returns the HTTP status of an error kind.
func StatusOf(k errs.Kind) int {
	switch k {
	case errs.Invalid:
		return http.StatusBadRequest
	case errs.Unauthenticated:
		return http.StatusUnauthorized
	case errs.Denied:
		return http.StatusForbidden
	case errs.NotFound:
		return http.StatusNotFound
	case errs.Conflict, errs.Stale:
		return http.StatusConflict
	case errs.Exhausted:
		return http.StatusTooManyRequests
	case errs.Unsupported:
		return http.StatusNotImplemented
	case errs.Unavailable:
		return http.StatusServiceUnavailable
	case errs.Internal:
		return http.StatusInternalServerError
	}
	return http.StatusInternalServerError
}

// ProblemOf describes err on the wire.
func ProblemOf(err error) Problem {
	k := errs.KindOf(err)
	status := StatusOf(k)
	return Problem{Type: "about:blank", Title: http.StatusText(status), Status: status, Kind: string(k), Detail: err.Error(), Hint: errs.HintOf(err)}
}

// Err turns a problem back into the error that the server meant.
func (p Problem) Err() error {
	e := errs.New(errs.Kind(p.Kind), "%s", p.Detail)
	if p.Hint != "" {
		e = e.WithHint("%s", p.Hint)
	}
	return e
}
