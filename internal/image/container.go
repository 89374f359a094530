package image

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/image/tree"
)

// container is a container image whose layers have yet to be applied.
type container struct{ layers []layer }

// layer is one packed layer; diffID is the digest of what it unpacks to.
type layer struct {
	name   string
	size   int64 // packed
	diffID v1.Hash
	open   func() (io.ReadCloser, error)
}

// Bounds of an image's description. maxLayers is above what any builder or
// overlay file system allows; maxNesting is above any index in the field.
const (
	maxLayers  = 512
	maxNesting = 4
)

// verify checks content against its name.
func verify(want v1.Hash, content []byte) error {
	sum := sha256.Sum256(content)
	return sameDigest("the image's description", want, sum[:])
}

func sameDigest(what string, want v1.Hash, got []byte) error {
	if want.Algorithm != "sha256" {
		return errs.New(errs.Invalid, "%s is named by the digest algorithm %q, only sha256 is supported", what, want.Algorithm)
	}
	if hex.EncodeToString(got) != want.Hex {
		return errs.New(errs.Invalid, "%s is damaged: its digest is sha256:%x, not %s", what, got, want).WithHint("fetch or make it again")
	}
	return nil
}

// choose finds the one manifest of an index that is for the platform. blob
// reads nested indexes.
func choose(index v1.IndexManifest, platform v1.Platform, blob func(v1.Descriptor) ([]byte, error)) (v1.Descriptor, error) {
	c := chooser{platform: platform, blob: blob}
	if err := c.visit(index, 0); err != nil {
		return v1.Descriptor{}, err
	}
	switch {
	case len(c.fit) == 1:
		return c.fit[0], nil
	case len(c.fit) == 0 && len(c.open) == 1:
		return c.open[0], nil
	case len(c.fit)+len(c.open) > 1:
		return v1.Descriptor{}, errs.New(errs.Invalid, "%d images are for %s", len(c.fit)+len(c.open), platform).WithHint("import a layout of one image")
	case len(c.other) > 0:
		return v1.Descriptor{}, otherPlatform(platform, strings.Join(c.other, ", "))
	}
	return v1.Descriptor{}, errs.New(errs.Invalid, "the index names no image").WithHint("%s", wanted)
}

func otherPlatform(want v1.Platform, have string) error {
	return errs.New(errs.Invalid, "the image is for %s, not for %s", have, want).WithHint("choose an image that is built for %s", want)
}

// chooser collects the manifests of an index: those that say they fit, those
// that do not say, and the platforms of the others.
type chooser struct {
	platform  v1.Platform
	blob      func(v1.Descriptor) ([]byte, error)
	fit, open []v1.Descriptor
	other     []string
	seen      map[v1.Hash]bool
}

func (c *chooser) visit(index v1.IndexManifest, depth int) error {
	if depth > maxNesting {
		return errs.New(errs.Invalid, "indexes are nested more than %d deep", maxNesting)
	}
	for _, d := range index.Manifests {
		if c.seen[d.Digest] {
			continue
		}
		if c.seen == nil {
			c.seen = map[v1.Hash]bool{}
		}
		c.seen[d.Digest] = true
		if err := c.manifest(d, depth); err != nil {
			return err
		}
	}
	return nil
}

func (c *chooser) manifest(d v1.Descriptor, depth int) error {
	switch {
	case d.MediaType.IsIndex():
		text, err := c.blob(d)
		if err != nil {
			return err
		}
		var inner v1.IndexManifest
		if err := json.Unmarshal(text, &inner); err != nil {
			return errs.Wrap(errs.Invalid, err, "read nested index")
		}
		return c.visit(inner, depth+1)
	case !d.MediaType.IsImage():
	case d.Platform == nil || d.Platform.OS == "":
		c.open = append(c.open, d)
	case d.Platform.Satisfies(c.platform):
		c.fit = append(c.fit, d)
	case d.Platform.OS != "unknown": // that one is a builder's attestation
		c.other = append(c.other, d.Platform.String())
	}
	return nil
}

func parseManifest(text []byte) (*v1.Manifest, error) {
	m, err := v1.ParseManifest(bytes.NewReader(text))
	if err != nil {
		return nil, errs.Wrap(errs.Invalid, err, "read the image's manifest")
	}
	return m, nil
}

// manifested returns the image that manifest m describes.
func (j *job) manifested(m *v1.Manifest, config []byte, open func(v1.Descriptor) (io.ReadCloser, error)) (*container, error) {
	if t := m.Config.MediaType; t != types.OCIConfigJSON && t != types.DockerConfigJSON {
		return nil, errs.New(errs.Invalid, "it is an artifact of type %q, not a container image", t).WithHint("%s", wanted)
	}
	var layers []layer
	for _, d := range m.Layers {
		if !d.MediaType.IsLayer() || !d.MediaType.IsDistributable() {
			return nil, errs.New(errs.Invalid, "layer %s is of the type %q, which is no plain layer", d.Digest, d.MediaType).
				WithHint("choose an image without encrypted or foreign layers")
		}
		layers = append(layers, layer{name: d.Digest.String(), size: d.Size, open: func() (io.ReadCloser, error) { return open(d) }})
	}
	return j.container(config, layers)
}

// container checks the configuration, and gives each layer the digest that it
// has there.
func (j *job) container(text []byte, layers []layer) (*container, error) {
	config, err := v1.ParseConfigFile(bytes.NewReader(text))
	if err != nil {
		return nil, errs.Wrap(errs.Invalid, err, "read the image's configuration")
	}
	have := v1.Platform{OS: config.OS, Architecture: config.Architecture}
	if want := (v1.Platform{OS: j.cfg.Platform.OS, Architecture: j.cfg.Platform.Architecture}); !have.Satisfies(want) {
		return nil, otherPlatform(want, have.String())
	}
	ids := config.RootFS.DiffIDs
	switch {
	case len(layers) == 0:
		return nil, errs.New(errs.Invalid, "the image is empty: it has no layer").WithHint("choose an image with a root file system")
	case len(layers) > maxLayers:
		return nil, errs.New(errs.Invalid, "the image has %d layers, at most %d are supported", len(layers), maxLayers)
	case len(layers) != len(ids):
		return nil, errs.New(errs.Invalid, "the image has %d layers and a configuration for %d", len(layers), len(ids))
	}
	for i := range layers {
		layers[i].diffID = ids[i]
	}
	return &container{layers: layers}, nil
}

// layers applies an image's layers in their order.
func (j *job) layers(ctx context.Context, t *tree.Tree, img *container) error {
	var total, done int64
	for _, l := range img.layers {
		total += l.size
	}
	j.report.begin(StageUnpacking, total)
	for i, l := range img.layers {
		if err := j.layer(ctx, t, l, &done); err != nil {
			return fmt.Errorf("layer %d of %d: %w", i+1, len(img.layers), err)
		}
	}
	return nil
}

// layer applies one, and checks that it was the one that the image names.
func (j *job) layer(ctx context.Context, t *tree.Tree, l layer, done *int64) error {
	packed, err := l.open()
	if err != nil {
		return err
	}
	defer packed.Close()
	in, _, err := j.open(meter{r: packed, report: j.report, done: done})
	if err != nil {
		return err
	}
	defer in.Close()
	sum := sha256.New()
	if err := t.Apply(ctx, io.TeeReader(in, sum), tree.Layer); err != nil {
		return err
	}
	return sameDigest("the layer", l.diffID, sum.Sum(nil))
}
