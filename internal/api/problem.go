package api

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	"github.com/billethq/billet/internal/errs"
)

// ProblemType is the media type of Problem.
const ProblemType = "application/problem+json"

// maxProblemBytes bounds what a client reads of an error: a page of text from
// something that is not billet must not fill its memory.
const maxProblemBytes = 64 << 10

// statuses is the one table from kinds to HTTP statuses.
var statuses = map[errs.Kind]int{
	errs.Invalid:         http.StatusBadRequest,
	errs.NotFound:        http.StatusNotFound,
	errs.Conflict:        http.StatusConflict,
	errs.Stale:           http.StatusConflict,
	errs.Exhausted:       http.StatusTooManyRequests,
	errs.Unavailable:     http.StatusServiceUnavailable,
	errs.Unauthenticated: http.StatusUnauthorized,
	errs.Denied:          http.StatusForbidden,
	errs.Unsupported:     http.StatusNotImplemented,
	errs.Internal:        http.StatusInternalServerError,
}

// StatusOf returns the HTTP status of a kind.
func StatusOf(k errs.Kind) int {
	if status, known := statuses[k]; known {
		return status
	}
	return http.StatusInternalServerError
}

// ProblemOf puts err on the wire. Of an internal error only that it happened
// is told: its causes may name files and other tenants' things, and belong in
// the log.
func ProblemOf(err error) Problem {
	kind := errs.KindOf(err)
	if _, known := statuses[kind]; !known {
		kind = errs.Internal
	}
	status := StatusOf(kind)
	p := Problem{
		Type: "about:blank", Title: http.StatusText(status), Status: status,
		Detail: err.Error(), Kind: string(kind), Hint: errs.HintOf(err),
	}
	if kind == errs.Internal && p.Hint == "" {
		p.Detail, p.Hint = "a fault inside billet", "the log of the process that answered has the cause"
	}
	return p
}

// Err is the error that p describes, with its kind and hint.
func (p Problem) Err() error {
	kind := errs.Kind(p.Kind)
	if _, known := statuses[kind]; !known {
		kind = errs.Internal
	}
	msg := p.Detail
	if msg == "" {
		msg = p.Title
	}
	return &errs.Error{Kind: kind, Message: msg, Hint: p.Hint}
}

// responseError reads the error out of a response that is not a success.
// Something that does not answer problem+json is not billet.
func responseError(res *http.Response) error {
	body, err := io.ReadAll(io.LimitReader(res.Body, maxProblemBytes))
	if err != nil {
		return errs.Wrap(errs.Unavailable, err, "read answer")
	}
	var p Problem
	if mediaType(res) != ProblemType || json.Unmarshal(body, &p) != nil || p.Kind == "" {
		return foreign(fmt.Sprintf("answered %s", res.Status))
	}
	return p.Err()
}

// foreign is the error for an answer that no billet server gives.
func foreign(what string) error {
	return errs.New(errs.Unavailable, "the other side is no billet server: it %s", what).
		WithHint("check --address and --socket; see what listens there")
}
