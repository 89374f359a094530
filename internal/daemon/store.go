package daemon

import (
	"context"
	"errors"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/blob/dir"
	"github.com/billethq/billet/internal/config"
	"github.com/billethq/billet/internal/errs"
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

// CheckStore says whether the object store that the configuration names takes
// an object.
func CheckStore(ctx context.Context, cfg config.Config) error {
	err := takesObject(ctx, cfg.Objects())
	if err == nil || errors.Is(err, dir.ErrNone) {
		return err
	}
	return errs.Wrap(errs.Unavailable, err, "%s takes no objects", cfg.Objects()).(*errs.Error).
		WithHint("see that it is mounted, has room and may be written by the user that runs billet")
}

func takesObject(ctx context.Context, at string) error {
	const key = "check"
	bucket, err := dir.Open(at)
	if err != nil {
		return err
	}
	defer bucket.Close()
	return errors.Join(bucket.Put(ctx, key, []byte("x")), bucket.Delete(ctx, key))
}
