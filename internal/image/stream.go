package image

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"path"
	"regexp"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/image/tree"
)

// unpack reads a stream to its end. Whether it was a root file system or an
// archive of an image is known by the files it turned out to hold: docker save
// puts the one that tells last.
func (j *job) unpack(ctx context.Context, input io.Reader) (*tree.Tree, string, error) {
	t, err := j.newTree()
	if err != nil {
		return nil, "", err
	}
	j.report.begin(StageFetching, 0)
	var done int64
	in, packing, err := j.open(meter{r: input, report: j.report, done: &done})
	if err != nil {
		return nil, "", err
	}
	defer in.Close()
	if err := t.Apply(ctx, in, tree.Archive); err != nil {
		return nil, "", err
	}
	img, what, err := j.archived(t)
	if err != nil {
		return nil, "", err
	}
	if img == nil {
		return t, describe(j.req.Source, "root file system, "+packing), nil
	}
	root, err := j.newTree()
	if err != nil {
		return nil, "", err
	}
	if err := j.layers(ctx, root, img); err != nil {
		return nil, "", err
	}
	return root, describe(j.req.Source, what), nil
}

// archived returns the container image that t holds, or nil when t is a root
// file system itself.
func (j *job) archived(t *tree.Tree) (*container, string, error) {
	if saved := readSaved(t); saved != nil {
		img, err := j.saved(t, saved)
		return img, "docker archive", err
	}
	if index := readLayout(t); index != nil {
		img, err := j.layout(t, *index)
		return img, "OCI layout", err
	}
	return nil, "", nil
}

// savedImage is one image of a docker archive's manifest.json.
type savedImage struct {
	Config   string
	RepoTags []string
	Layers   []string
}

// readSaved returns the images of a docker archive, nil when t is none.
func readSaved(t *tree.Tree) []savedImage {
	text, err := t.ReadFile("manifest.json")
	if err != nil {
		return nil
	}
	var images []savedImage
	if json.Unmarshal(text, &images) != nil || len(images) == 0 || images[0].Config == "" {
		return nil
	}
	return images
}

// saved opens the one image of a docker archive.
func (j *job) saved(t *tree.Tree, images []savedImage) (*container, error) {
	if len(images) != 1 {
		var tags []string
		for _, i := range images {
			tags = append(tags, i.RepoTags...)
		}
		return nil, errs.New(errs.Invalid, "the archive holds %d images: %s", len(images), strings.Join(tags, ", ")).
			WithHint("save one: docker save IMAGE")
	}
	img := images[0]
	text, err := t.ReadFile(img.Config)
	if err != nil {
		return nil, lacks("archive", img.Config)
	}
	if err := namedByContent(img.Config, text); err != nil {
		return nil, err
	}
	var layers []layer
	for _, name := range img.Layers {
		n, err := t.Lookup(name)
		if err != nil || !n.IsRegular() {
			return nil, lacks("archive", name)
		}
		layers = append(layers, layer{
			name: name,
			size: n.Content.Len,
			open: func() (io.ReadCloser, error) { return io.NopCloser(t.Open(n)), nil },
		})
	}
	return j.container(text, layers)
}

func lacks(what, name string) error {
	return errs.New(errs.Invalid, "the %s lacks its part %q", what, name).WithHint("fetch or make it again")
}

var hexDigest = regexp.MustCompile(`[0-9a-f]{64}`)

// namedByContent checks text against the digest in its name, which every
// docker puts there.
func namedByContent(name string, text []byte) error {
	want := hexDigest.FindString(path.Base(name))
	if want == "" {
		return nil
	}
	return verify(v1.Hash{Algorithm: "sha256", Hex: want}, text)
}

// readLayout returns the index of an OCI image layout, nil when t is none.
func readLayout(t *tree.Tree) *v1.IndexManifest {
	mark, err := t.ReadFile("oci-layout")
	if err != nil {
		return nil
	}
	var version struct{ ImageLayoutVersion string }
	if json.Unmarshal(mark, &version) != nil || version.ImageLayoutVersion == "" {
		return nil
	}
	text, err := t.ReadFile("index.json")
	if err != nil {
		return nil
	}
	var index v1.IndexManifest
	if json.Unmarshal(text, &index) != nil {
		return nil
	}
	return &index
}

// layout opens this platform's image of an OCI layout.
func (j *job) layout(t *tree.Tree, index v1.IndexManifest) (*container, error) {
	blob := func(d v1.Descriptor) ([]byte, error) {
		text, err := t.ReadFile(blobPath(d))
		if err != nil {
			return nil, lacks("layout", blobPath(d))
		}
		return text, verify(d.Digest, text)
	}
	d, err := choose(index, j.cfg.Platform, blob)
	if err != nil {
		return nil, err
	}
	text, err := blob(d)
	if err != nil {
		return nil, err
	}
	m, err := parseManifest(text)
	if err != nil {
		return nil, err
	}
	config, err := blob(m.Config)
	if err != nil {
		return nil, err
	}
	return j.manifested(m, config, func(d v1.Descriptor) (io.ReadCloser, error) {
		n, err := t.Lookup(blobPath(d))
		if err != nil || !n.IsRegular() {
			return nil, lacks("layout", blobPath(d))
		}
		return io.NopCloser(t.Open(n)), nil
	})
}

func blobPath(d v1.Descriptor) string {
	return fmt.Sprintf("blobs/%s/%s", d.Digest.Algorithm, d.Digest.Hex)
}
