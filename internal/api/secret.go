package api

import "log/slog"

// Secret is text that must never be printed or logged: a bearer token or a
// ticket. Convert it to a string only where it goes on the wire.
type Secret string

const redacted = "[secret]"

// String hides it from fmt.
func (Secret) String() string { return redacted }

// GoString hides it from %#v.
func (Secret) GoString() string { return redacted }

// LogValue hides it from slog.
func (Secret) LogValue() slog.Value { return slog.StringValue(redacted) }
