package image

import (
	"context"

	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/image/tree"
)

func (j *job) bootstrap(ctx context.Context) (*tree.Tree, string, error) {
	return nil, "", errs.New(errs.Unsupported, "the Debian bootstrap is not built in yet")
}
