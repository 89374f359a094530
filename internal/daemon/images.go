package daemon

import (
	"context"
	"io"
	"log/slog"
	"path/filepath"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/config"
	"github.com/billethq/billet/internal/image"
	"github.com/billethq/billet/internal/node"
)

// images joins the node's wish for an image to its builder.
type images struct{ builder *image.Builder }

func newImages(ctx context.Context, cfg config.Config, server informer, log *slog.Logger) (images, error) {
	bucket, err := openStore(ctx, cfg.Objects(), server)
	if err != nil {
		return images{}, err
	}
	b, err := image.New(image.Config{Bucket: bucket, Dir: filepath.Join(cfg.NodeDir(), "images"), Log: log})
	return images{b}, err
}

// Build implements node.ImageBuilder.
func (i images) Build(ctx context.Context, req node.ImageRequest, input io.Reader, progress func(api.ImageProgress)) (node.ImageResult, error) {
	r, err := i.builder.Build(ctx, image.Request{Kind: req.Kind, Source: req.Source, Disk: req.Disk, Keys: req.Keys}, input, progress)
	return node.ImageResult(r), err
}
