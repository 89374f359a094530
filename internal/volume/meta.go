package volume

import (
	"time"

	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/model"
)

// Consistency says in what state the file system was when the disk was sealed.
type Consistency string

// The consistencies.
const (
	Crash  Consistency = "crash"  // as after a power cut: the journal must be replayed
	Frozen Consistency = "frozen" // the file system was frozen or unmounted
)

// Writer says whose kernel wrote the file system. It is sticky along a
// lineage: a disk that a guest's kernel wrote raw is never mounted by a host's,
// which a crafted file system would reach as root.
type Writer string

// The writers.
const (
	WriterHost  Writer = "host"
	WriterGuest Writer = "guest"
)

// Meta is what a root says of itself beside its content.
type Meta struct {
	// Home is the domain in which the root and the leaves made for it live.
	Home Slot
	// Subject is whose numbered lineage the root belongs to; empty for an
	// image, which then has no numbered pointer.
	Subject model.SubjectID
	Epoch   model.Epoch
	Seq     model.Seq
	// Parent is the root this one was written on top of. PutManifest sets it.
	Parent model.Root
	// Size of the device in bytes, a multiple of BlockSize.
	Size        int64
	Consistency Consistency
	Writer      Writer
	// Created is kept to the microsecond. An image leaves it zero, so that
	// importing one input twice gives one root.
	Created time.Time
	// Prebuild is the prebuild root this lineage came from, if any.
	Prebuild model.Root
	// BootTrace is the digest of the recorded first-touch trace, if any.
	BootTrace Digest
	// Domains is the domain table, indexed by Slot. PutManifest fills it.
	Domains [MaxDomains]string
}

// Blocks is the number of blocks of the device.
func (m Meta) Blocks() int64 { return m.Size / BlockSize }

// Leaves is the number of leaves of the device.
func (m Meta) Leaves() int { return int((m.Blocks() + LeafEntries - 1) / LeafEntries) }

func (m Meta) check() error {
	switch {
	case m.Size <= 0 || m.Size%BlockSize != 0 || m.Size > MaxDeviceSize:
		return errs.New(errs.Invalid, "device size %d is not a multiple of %d between 1 and %d blocks", m.Size, BlockSize, MaxDeviceSize/BlockSize)
	case m.Home != SlotTenant && m.Home != SlotDeployment:
		return errs.New(errs.Invalid, "home domain %d is not in use", m.Home)
	case m.Consistency != Crash && m.Consistency != Frozen:
		return errs.New(errs.Invalid, "consistency %q is neither crash nor frozen", m.Consistency)
	case m.Writer != WriterHost && m.Writer != WriterGuest:
		return errs.New(errs.Invalid, "writer %q is neither host nor guest", m.Writer)
	case m.Subject != "" && !domainPattern.MatchString(string(m.Subject)):
		return errs.New(errs.Invalid, "subject %q is not 1 to 63 characters of a-z, 0-9 and -", m.Subject)
	case m.Domains[m.Home] == "":
		return errs.New(errs.Invalid, "home domain %d has no name", m.Home)
	case m.Home == SlotDeployment && m.Domains[SlotTenant] != "":
		return errs.New(errs.Invalid, "an image is of the tenant %s", m.Domains[SlotTenant])
	}
	for slot, name := range m.Domains {
		if name != "" && (Slot(slot) > SlotDeployment || !domainPattern.MatchString(name)) {
			return errs.New(errs.Invalid, "domain %d is %q", slot, name)
		}
	}
	return nil
}

// allows reports whether a root with this metadata may name e: its domain is
// in the table. An image therefore never names a tenant's object.
func (m Meta) allows(e Entry) bool {
	if e.IsZero() {
		return e == Entry{}
	}
	slot, ok := e.Slot()
	return ok && m.Domains[slot] != "" && !e.Digest.IsZero()
}
