package volume

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/billethq/billet/internal/blob"
	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/model"
)

// leafConcurrency bounds the leaves of one manifest in flight.
const leafConcurrency = 16

var errOtherName = errors.New("its content does not hash to its name")

// LoadManifest fetches a root, which may live in either domain, and its leaves.
// Errors: *CorruptError, errs.Unavailable; errs.Denied when the root is another
// tenant's; errs.Unsupported when a newer version wrote it.
func (s *Store) LoadManifest(ctx context.Context, root model.Root) (*Manifest, error) {
	object, err := s.fetchRoot(ctx, root)
	if err != nil {
		return nil, fmt.Errorf("load volume %s: %w", root.Short(), err)
	}
	meta, names, err := decodeRoot(object)
	if err != nil {
		return nil, errs.Wrap(errs.Unsupported, err, "load volume %s", root.Short())
	}
	for slot, name := range meta.Domains {
		if have := s.domains.Name(Slot(slot)); name != "" && name != have {
			return nil, errs.New(errs.Denied, "load volume %s: it is of domain %s, for which there is no key here", root.Short(), name)
		}
	}
	m := &Manifest{root: root, meta: meta, names: names}
	if err := s.fetchLeaves(ctx, m); err != nil {
		return nil, fmt.Errorf("load volume %s: %w", root.Short(), err)
	}
	return m, nil
}

// fetchLeaves fills in the leaves that m's root names.
func (s *Store) fetchLeaves(ctx context.Context, m *Manifest) error {
	m.leaves = make([]*leafTable, len(m.names))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(leafConcurrency)
	for i, name := range m.names {
		if name.IsZero() {
			continue
		}
		group.Go(func() (err error) {
			m.leaves[i], err = s.fetchLeaf(ctx, name)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return errs.Wrap(errs.Internal, m.checkEnd(), "read its leaves")
}

// fetchRoot looks in the tenant's domain and then in the deployment's.
func (s *Store) fetchRoot(ctx context.Context, root model.Root) (object []byte, err error) {
	digest, err := ParseDigest(string(root))
	if err != nil {
		return nil, err
	}
	var failure error
	for _, slot := range []Slot{SlotTenant, SlotDeployment} {
		name := s.domains.Name(slot)
		if name == "" {
			continue
		}
		err := s.fetch(ctx, rootKey(name, digest), func(got []byte) error {
			if rootID(got) != root {
				return errOtherName
			}
			object = got
			return nil
		})
		var corrupt *CorruptError
		if err == nil || !errors.As(err, &corrupt) {
			return object, err
		}
		if failure == nil || corrupt.Why == errOtherName.Error() {
			failure = err // damage says more than absence from the other domain
		}
	}
	return nil, failure
}

func (s *Store) fetchLeaf(ctx context.Context, name Entry) (*leafTable, error) {
	key, err := s.key("leaf", name)
	if err != nil {
		return nil, err
	}
	var object []byte
	err = s.fetch(ctx, key, func(got []byte) error {
		if !s.domains.matches(name, got) {
			return errOtherName
		}
		object = got
		return nil
	})
	if err != nil {
		return nil, err
	}
	leaf, err := decodeLeaf(object, name.Kind == KindTenant)
	if err != nil {
		return nil, errs.Wrap(errs.Unsupported, err, "leaf %s", key)
	}
	return leaf, nil
}

// checkEnd refuses blocks beyond the end of the device: growing it would show
// content that nobody wrote there.
func (m *Manifest) checkEnd() error {
	last := len(m.leaves) - 1
	if m.leaves[last] == nil {
		return nil
	}
	for i := m.Blocks() - int64(last)*LeafEntries; i < LeafEntries; i++ {
		if !m.leaves[last][i].IsZero() {
			return fmt.Errorf("block %d lies beyond the end of the device", int64(last)*LeafEntries+i)
		}
	}
	return nil
}

// Latest returns the newest root of a subject's numbered lineage, without the
// ledger. errs.NotFound when there is none.
func (s *Store) Latest(ctx context.Context, subject model.SubjectID) (model.Root, model.Epoch, model.Seq, error) {
	var newest string // keys sort as their numbers do
	prefix := pointerPrefix(subject)
	err := s.try(ctx, func(ctx context.Context) error {
		return s.bucket.List(ctx, prefix, func(i blob.Info) error {
			newest = max(newest, i.Key)
			return nil
		})
	})
	if err != nil {
		return "", 0, 0, fmt.Errorf("newest root of %s: %w", subject, err)
	}
	if newest == "" {
		return "", 0, 0, errs.New(errs.NotFound, "%s has no root in the object store", subject)
	}
	epoch, seq, err := parsePointer(strings.TrimPrefix(newest, prefix))
	if err != nil {
		return "", 0, 0, errs.Wrap(errs.Internal, err, "newest root of %s", subject)
	}
	var root model.Root
	err = s.fetch(ctx, newest, func(object []byte) error {
		root = model.Root(object)
		return root.Check()
	})
	if err != nil {
		return "", 0, 0, fmt.Errorf("newest root of %s: %w", subject, err)
	}
	return root, epoch, seq, nil
}

func rootKey(domain string, d Digest) string { return "root/" + domain + "/" + d.hex() }

func pointerPrefix(subject model.SubjectID) string { return "roots/" + string(subject) + "/" }

// pointerKey pads both numbers to the 20 digits of the largest, so that keys
// sort as numbers do.
func pointerKey(subject model.SubjectID, epoch model.Epoch, seq model.Seq) string {
	return fmt.Sprintf("%s%020d-%020d", pointerPrefix(subject), epoch, seq)
}

func parsePointer(name string) (model.Epoch, model.Seq, error) {
	first, second, ok := strings.Cut(name, "-")
	if !ok || len(first) != 20 || len(second) != 20 {
		return 0, 0, fmt.Errorf("numbered root %q is not <epoch>-<seq>", name)
	}
	epoch, err := strconv.ParseUint(first, 10, 64)
	if err != nil {
		return 0, 0, fmt.Errorf("numbered root %q: %w", name, err)
	}
	seq, err := strconv.ParseUint(second, 10, 64)
	if err != nil {
		return 0, 0, fmt.Errorf("numbered root %q: %w", name, err)
	}
	return model.Epoch(epoch), model.Seq(seq), nil
}
