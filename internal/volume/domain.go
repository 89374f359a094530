package volume

import (
	"bytes"
	"regexp"
	"sync"

	"github.com/zeebo/blake3"

	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/model"
)

// Slot is a place in a root's domain table.
type Slot uint8

// The slots in use. The format has room for MaxDomains.
const (
	SlotTenant     Slot = 0
	SlotDeployment Slot = 1

	MaxDomains = 4
)

// Kind is the kind of entry that names an object of slot s.
func (s Slot) Kind() EntryKind {
	if s == SlotDeployment {
		return KindDeployment
	}
	return KindTenant
}

const domainKeyBytes = 32

// domainPattern keeps a domain's name one segment of an object key.
var domainPattern = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,62}$`)

// Domains holds the key of each dedup domain. Content is hashed under its
// domain's key, so that nobody who lacks the key can ask whether the store
// holds some known content. Domains is immutable and safe for concurrent use;
// it never prints a key.
type Domains struct {
	slots [MaxDomains]domain
}

type domain struct {
	name    string
	hashers *sync.Pool // of *blake3.Hasher, reset and keyed
}

// NewDomains takes the tenant's and the deployment's keys. A zero key leaves
// its slot unused: an image needs no tenant.
func NewDomains(tenant, deployment model.DomainKey) (*Domains, error) {
	d := &Domains{}
	for slot, k := range []model.DomainKey{SlotTenant: tenant, SlotDeployment: deployment} {
		if k.Domain == "" && len(k.Key) == 0 {
			continue
		}
		if !domainPattern.MatchString(k.Domain) {
			return nil, errs.New(errs.Invalid, "domain %q is not 1 to 63 characters of a-z, 0-9 and -", k.Domain)
		}
		if len(k.Key) != domainKeyBytes {
			return nil, errs.New(errs.Invalid, "key of domain %s has %d bytes, want %d", k.Domain, len(k.Key), domainKeyBytes)
		}
		proto, err := blake3.NewKeyed(bytes.Clone(k.Key))
		if err != nil {
			return nil, errs.Wrap(errs.Invalid, err, "key of domain %s", k.Domain)
		}
		d.slots[slot] = domain{name: k.Domain, hashers: &sync.Pool{New: func() any { return proto.Clone() }}}
	}
	if d.slots[SlotTenant].name == "" && d.slots[SlotDeployment].name == "" {
		return nil, errs.New(errs.Invalid, "no domain key")
	}
	if d.slots[SlotTenant].name == d.slots[SlotDeployment].name {
		return nil, errs.New(errs.Invalid, "domain %s is given twice", d.slots[SlotTenant].name)
	}
	return d, nil
}

// Name returns the domain in slot s, "" when there is none.
func (d *Domains) Name(s Slot) string { return d.slots[s].name }

// Sum hashes content under the key of slot s, which must be in use.
func (d *Domains) Sum(s Slot, content []byte) Digest {
	pool := d.slots[s].hashers
	h := pool.Get().(*blake3.Hasher)
	defer pool.Put(h)
	h.Reset()
	_, _ = h.Write(content) // a hash never refuses a write
	var out Digest
	h.Sum(out[:0])
	return out
}

// Identify returns the entry of a raw block written to slot s, without storing
// anything. raw has BlockSize bytes; nothing but zeros gives the zero Entry.
func (d *Domains) Identify(s Slot, raw []byte) Entry {
	if isZero(raw) {
		return Entry{}
	}
	return Entry{Kind: s.Kind(), Digest: d.Sum(s, raw)}
}

// matches reports whether content is what e names.
func (d *Domains) matches(e Entry, content []byte) bool {
	slot, ok := e.Slot()
	return ok && d.Name(slot) != "" && d.Sum(slot, content) == e.Digest
}

// isZero compares b with itself shifted by one byte, which the runtime does
// with vector instructions: zero is what begins with zero and equals that.
func isZero(b []byte) bool {
	return len(b) == 0 || b[0] == 0 && bytes.Equal(b[1:], b[:len(b)-1])
}
