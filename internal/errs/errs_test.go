package errs_test

import (
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/billethq/billet/internal/errs"
)

func TestKindAndHint_SurviveWrapping(t *testing.T) {
	full := errs.New(errs.Exhausted, "no node has %d GiB", 64).WithHint("use a smaller tier")
	for _, tc := range []struct {
		name    string
		err     error
		kind    errs.Kind
		hint    string
		message string
	}{
		{"nil", nil, "", "", ""},
		{"foreign", io.EOF, errs.Internal, "", "EOF"},
		{"plain", full, errs.Exhausted, "use a smaller tier", "no node has 64 GiB"},
		{"wrapped", fmt.Errorf("create workspace: %w", full), errs.Exhausted, "use a smaller tier", "create workspace: no node has 64 GiB"},
		{"joined", errors.Join(io.EOF, full), errs.Exhausted, "use a smaller tier", "EOF\nno node has 64 GiB"},
		{
			"outer kind, inner hint", errs.Wrap(errs.Unavailable, fmt.Errorf("place: %w", full), "create"),
			errs.Unavailable, "use a smaller tier", "create: place: no node has 64 GiB",
		},
		{
			"outer hint", &errs.Error{Kind: errs.Denied, Message: "no", Hint: "ask", Cause: full},
			errs.Denied, "ask", "no: no node has 64 GiB",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := errs.KindOf(tc.err); got != tc.kind {
				t.Errorf("kind %q, want %q", got, tc.kind)
			}
			if got := errs.HintOf(tc.err); got != tc.hint {
				t.Errorf("hint %q, want %q", got, tc.hint)
			}
			if tc.err != nil && tc.err.Error() != tc.message {
				t.Errorf("message %q, want %q", tc.err, tc.message)
			}
		})
	}
}

func TestWrap_KeepsTheCause(t *testing.T) {
	if err := errs.Wrap(errs.Internal, nil, "read"); err != nil {
		t.Errorf("wrap of nil is %v", err)
	}
	if err := errs.Wrap(errs.Internal, io.EOF, "read"); !errors.Is(err, io.EOF) {
		t.Errorf("%v lost its cause", err)
	}
}

func TestWithHint_LeavesTheOriginal(t *testing.T) {
	plain := errs.New(errs.NotFound, "no such thing")
	if plain.WithHint("look elsewhere"); plain.Hint != "" {
		t.Errorf("the original has the hint %q", plain.Hint)
	}
}

func TestIs(t *testing.T) {
	for _, k := range errs.Kinds() {
		if errs.Is(nil, k) {
			t.Errorf("nil is %s", k)
		}
		for _, other := range errs.Kinds() {
			if got := errs.Is(fmt.Errorf("x: %w", errs.New(k, "y")), other); got != (k == other) {
				t.Errorf("an error of kind %s is %s: %v", k, other, got)
			}
		}
	}
}
