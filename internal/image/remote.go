package image

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/image/tree"
)

// parseReference refuses what is no image reference.
func parseReference(s string) (name.Reference, error) {
	ref, err := name.ParseReference(s)
	if err != nil {
		return nil, errs.Wrap(errs.Invalid, err, "%q is no image reference", s).(*errs.Error).
			WithHint("write REGISTRY/NAME:TAG, or the path of a file or directory that exists")
	}
	return ref, nil
}

// pull fetches this platform's image of a reference, with the credentials that
// docker login left for the node's user.
func (j *job) pull(ctx context.Context) (*tree.Tree, string, error) {
	ref, err := parseReference(j.req.Source)
	if err != nil {
		return nil, "", err
	}
	ctx, stop := j.watch(ctx)
	defer stop()
	j.report.begin(StageFetching, 0)
	img, digest, err := j.fetch(ctx, ref)
	if err != nil {
		return nil, "", fmt.Errorf("fetch %s: %w", ref, interrupted(ctx, err))
	}
	t, err := j.newTree()
	if err != nil {
		return nil, "", err
	}
	if err := j.layers(ctx, t, img); err != nil {
		return nil, "", fmt.Errorf("fetch %s: %w", ref, interrupted(ctx, err))
	}
	return t, ref.Context().Digest(digest.String()).String(), nil
}

// maxStall is how long a registry may send nothing: longer than any pause of
// one that works, and short enough to give the build's slot back.
const maxStall = 2 * time.Minute

// watch returns a context that ends when nothing is read for j.stall.
func (j *job) watch(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	timer := time.AfterFunc(j.stall, func() {
		cancel(errs.New(errs.Unavailable, "the registry sent nothing for %s", j.stall).WithHint("try again later"))
	})
	j.alive = func() { timer.Reset(j.stall) }
	return ctx, func() { timer.Stop(); cancel(nil) }
}

func (j *job) fetch(ctx context.Context, ref name.Reference) (*container, v1.Hash, error) {
	options := []remote.Option{
		remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain), remote.WithPlatform(j.cfg.Platform),
	}
	desc, err := remote.Get(ref, options...)
	if err != nil {
		return nil, v1.Hash{}, registryError(err)
	}
	if desc.MediaType.IsIndex() {
		d, err := j.chooseRemote(desc)
		if err != nil {
			return nil, v1.Hash{}, err
		}
		if desc, err = remote.Get(ref.Context().Digest(d.Digest.String()), options...); err != nil {
			return nil, v1.Hash{}, registryError(err)
		}
	}
	m, err := parseManifest(desc.Manifest)
	if err != nil {
		return nil, v1.Hash{}, err
	}
	img, err := desc.Image()
	if err != nil {
		return nil, v1.Hash{}, errs.Wrap(errs.Invalid, err, "read the image")
	}
	config, err := img.RawConfigFile()
	if err != nil {
		return nil, v1.Hash{}, registryError(err)
	}
	c, err := j.manifested(m, config, func(d v1.Descriptor) (io.ReadCloser, error) {
		l, err := img.LayerByDigest(d.Digest)
		if err != nil {
			return nil, registryError(err)
		}
		body, err := l.Compressed()
		if err != nil {
			return nil, registryError(err)
		}
		return alive{body, j.alive}, nil
	})
	return c, desc.Digest, err
}

func (j *job) chooseRemote(desc *remote.Descriptor) (v1.Descriptor, error) {
	index, err := desc.ImageIndex()
	if err != nil {
		return v1.Descriptor{}, errs.Wrap(errs.Invalid, err, "read the index")
	}
	top, err := index.IndexManifest()
	if err != nil {
		return v1.Descriptor{}, errs.Wrap(errs.Invalid, err, "read the index")
	}
	return choose(*top, j.cfg.Platform, func(d v1.Descriptor) ([]byte, error) {
		inner, err := index.ImageIndex(d.Digest)
		if err != nil {
			return nil, registryError(err)
		}
		return inner.RawManifest()
	})
}

// alive tells of every read that something came.
type alive struct {
	io.ReadCloser
	tell func()
}

func (a alive) Read(p []byte) (int, error) {
	n, err := a.ReadCloser.Read(p)
	if n > 0 {
		a.tell()
	}
	return n, err
}

// registryError gives a registry's answer, or silence, a kind.
func registryError(err error) error {
	if err == nil {
		return nil
	}
	var answer *transport.Error
	if !errors.As(err, &answer) {
		return errs.Wrap(errs.Unavailable, err, "ask the registry").(*errs.Error).
			WithHint("check that the node reaches the registry, or import an archive: docker save IMAGE -o FILE")
	}
	switch answer.StatusCode {
	case http.StatusNotFound:
		return errs.Wrap(errs.NotFound, err, "the registry has no such image").(*errs.Error).WithHint("check the name and the tag")
	case http.StatusUnauthorized, http.StatusForbidden:
		return errs.Wrap(errs.Denied, err, "the registry refuses").(*errs.Error).
			WithHint("check the name, or log the node's user in: docker login REGISTRY")
	}
	return errs.Wrap(errs.Unavailable, err, "the registry does not serve the image").(*errs.Error).WithHint("try again later")
}
