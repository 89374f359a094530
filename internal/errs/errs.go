// Package errs gives every error a person or a program meets one of ten kinds.
//
// Kinds cross the wire (the problem+json field "kind") and choose the exit
// code; messages are for people; causes stay in logs. A layer wraps once, with
// what was being done, by fmt.Errorf("renew lease %s: %w", id, err), which keeps
// kind and hint. A layer that knows better gives another kind by Wrap: then the
// outermost kind holds, and the outermost hint.
package errs

import (
	"errors"
	"fmt"
)

// Kind classifies an error for programs.
type Kind string

// The kinds. Their text is part of the API.
const (
	Invalid         Kind = "invalid"         // the request can never succeed as it is
	NotFound        Kind = "not_found"       // what was named is not there
	Conflict        Kind = "conflict"        // the state of what was named forbids it now
	Stale           Kind = "stale"           // the caller's epoch, generation or parent has been overtaken
	Exhausted       Kind = "exhausted"       // a limit or a capacity is used up
	Unavailable     Kind = "unavailable"     // a part that is needed does not answer; trying again may help
	Unauthenticated Kind = "unauthenticated" // the caller is not known
	Denied          Kind = "denied"          // the caller is known and may not
	Unsupported     Kind = "unsupported"     // this build, host or driver cannot do it
	Internal        Kind = "internal"        // a fault of ours
)

// Kinds lists every kind, in the order above.
func Kinds() []Kind {
	return []Kind{Invalid, NotFound, Conflict, Stale, Exhausted, Unavailable, Unauthenticated, Denied, Unsupported, Internal}
}

// Error is an error with a kind and, for people, a hint that says what to do
// next. The message carries no "failed to", no capital and no full stop.
type Error struct {
	Kind    Kind
	Message string
	Hint    string
	Cause   error
}

func (e *Error) Error() string {
	if e.Cause != nil {
		return e.Message + ": " + e.Cause.Error()
	}
	return e.Message
}

func (e *Error) Unwrap() error { return e.Cause }

// New returns an error of kind k without a cause; Wrap gives one a cause.
func New(k Kind, format string, args ...any) *Error {
	return &Error{Kind: k, Message: fmt.Sprintf(format, args...)}
}

// Wrap gives err a kind and says what was being done. A nil err gives nil.
func Wrap(k Kind, err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return &Error{Kind: k, Message: fmt.Sprintf(format, args...), Cause: err}
}

// WithHint returns a copy of e that says what to do next.
func (e *Error) WithHint(format string, args ...any) *Error {
	c := *e
	c.Hint = fmt.Sprintf(format, args...)
	return &c
}

// KindOf returns the kind of the outermost *Error in err's chain, Internal when
// there is none, and "" for nil.
func KindOf(err error) Kind {
	if err == nil {
		return ""
	}
	var e *Error
	if errors.As(err, &e) {
		return e.Kind
	}
	return Internal
}

// HintOf returns the outermost hint in err's chain, or "".
func HintOf(err error) string {
	for err != nil {
		var e *Error
		if !errors.As(err, &e) {
			return ""
		}
		if e.Hint != "" {
			return e.Hint
		}
		err = e.Cause
	}
	return ""
}

// Is reports whether err is of kind k.
func Is(err error, k Kind) bool { return err != nil && KindOf(err) == k }
