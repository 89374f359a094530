package daemon

import (
	"context"
	"errors"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/blob/dir"
)

// informer tells what is known of the deployment.
type informer interface {
	Info(ctx context.Context) (api.Info, error)
}

// informedPlane is what a node calls.
type informedPlane interface {
	api.Plane
	informer
}

// openStore opens the object store. It is made only for a deployment that has
// stored nothing yet: in the place of one that is not mounted, an empty one
// would make every block count as lost. A server that does not answer decides
// nothing.
func openStore(ctx context.Context, name string, server informer) (*dir.Bucket, error) {
	bucket, err := dir.Open(name)
	if !errors.Is(err, dir.ErrNone) {
		return bucket, err
	}
	info, unknown := server.Info(ctx)
	if unknown != nil {
		return nil, errors.Join(err, unknown)
	}
	if info.Stored {
		return nil, err
	}
	return dir.Create(name)
}
