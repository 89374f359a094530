// Package model holds the nouns of the fleet and their rules, as pure values.
package model

import (
	"crypto/rand"
	"fmt"
	"regexp"

	"github.com/billethq/billet/internal/errs"
)

// Ids are opaque, 20 characters of [a-z0-9], never reused. Each noun has its
// own type, so that two ids cannot be swapped in a call.
type (
	TenantID     string
	RegionID     string
	PrincipalID  string
	TokenID      string
	SSHKeyID     string
	NodeID       string
	WorkspaceID  string
	InstanceID   string
	SnapshotID   string
	ImageID      string
	GenerationID string
	IntentID     string
	// SubjectID is the id of whatever an instance runs for: a WorkspaceID, a
	// job's, a prebuild's or a probe's id.
	SubjectID string
)

// The tenant and region of every record until someone says otherwise.
const (
	DefaultTenant TenantID = "default"
	DefaultRegion RegionID = "local"
)

// Epoch is a subject's fencing token: it rises with every instance of the
// subject and never falls.
type Epoch uint64

// Seq numbers the snapshots of one subject; it rises with every commit.
type Seq uint64

// Generation numbers the answers a node is given; a larger one is newer.
type Generation uint64

const (
	idLength   = 20
	idAlphabet = "abcdefghijklmnopqrstuvwxyz0123456789"
)

// NewID returns a fresh random id (103 bits) as text; the caller gives it its
// type: model.InstanceID(model.NewID()).
func NewID() string {
	out := make([]byte, 0, idLength)
	for len(out) < idLength {
		var buf [32]byte
		_, _ = rand.Read(buf[:]) // never fails since Go 1.24
		for _, b := range buf {
			// 252 is the largest multiple of 36 in a byte: no bias.
			if b < 252 && len(out) < idLength {
				out = append(out, idAlphabet[int(b)%len(idAlphabet)])
			}
		}
	}
	return string(out)
}

var (
	idPattern   = regexp.MustCompile(`^[a-z0-9]{20}$`)
	namePattern = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?$`)
)

// IsID reports whether s has the shape of an id.
func IsID(s string) bool { return idPattern.MatchString(s) }

// MaxNameLength bounds names so that PORT-NAME still is one DNS label.
const MaxNameLength = 40

// CheckName refuses anything but a DNS label of at most 40 characters that
// cannot be taken for an id.
func CheckName(noun, s string) error {
	switch {
	case len(s) == 0:
		return errs.New(errs.Invalid, "%s name is empty", noun).WithHint("use 1 to %d characters of a-z, 0-9 and -", MaxNameLength)
	case len(s) > MaxNameLength:
		return errs.New(errs.Invalid, "%s name has %d characters, at most %d are allowed", noun, len(s), MaxNameLength).WithHint("choose a shorter name")
	case !namePattern.MatchString(s):
		return errs.New(errs.Invalid, "%s name %q is not a DNS label", noun, s).WithHint("use a-z, 0-9 and -, beginning and ending with a letter or digit")
	case IsID(s):
		return errs.New(errs.Invalid, "%s name %q looks like an id", noun, s).WithHint("choose a name that is not exactly %d letters and digits", idLength)
	}
	return nil
}

// Root names an immutable volume by content: "b3:" and 64 hexadecimal digits.
// The empty Root means none.
type Root string

var rootPattern = regexp.MustCompile(`^b3:[0-9a-f]{64}$`)

// Check refuses a malformed root.
func (r Root) Check() error {
	if !rootPattern.MatchString(string(r)) {
		return fmt.Errorf("root %q: %w", string(r), errs.New(errs.Invalid, "not b3: and 64 hexadecimal digits"))
	}
	return nil
}

// Short returns the first twelve digits, for people.
func (r Root) Short() string {
	if len(r) < 15 {
		return string(r)
	}
	return string(r[3:15])
}
