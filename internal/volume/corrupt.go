package volume

import (
	"fmt"

	"github.com/billethq/billet/internal/errs"
)

// NoBlock is the Block of a CorruptError about a leaf or a root.
const NoBlock int64 = -1

// CorruptError says that an object of the store is not what its name says:
// missing, truncated or altered, on a second fetch too. Its errs.Kind is
// Internal. A reader turns it into an input/output error, never into zeros.
type CorruptError struct {
	Block int64  // index in the device, or NoBlock
	Key   string // of the object
	Why   string
}

func (e *CorruptError) Error() string {
	if e.Block == NoBlock {
		return fmt.Sprintf("object %s: %s", e.Key, e.Why)
	}
	return fmt.Sprintf("block %d, object %s: %s", e.Block, e.Key, e.Why)
}

// Unwrap gives the error its kind and hint.
func (e *CorruptError) Unwrap() error {
	return errs.New(errs.Internal, "the object store lost or altered an object").
		WithHint("put %s back from a copy of the object store", e.Key)
}
