package image

import (
	"path"
	"strings"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/model"
)

// endings are those of what people import, and of what they try to: a name is
// made without them, and it is for the content to be refused.
var endings = [...]string{
	".tar", ".tgz", ".tzst", ".tbz", ".tbz2", ".gz", ".zst", ".bz2", ".oci",
	".txz", ".xz", ".lzma", ".lz4", ".zip", ".7z", ".qcow2", ".squashfs", ".sqsh", ".ext4", ".img",
}

// ImageName makes a name for the image out of that of its source: the last
// element of a path or reference without tag, digest and endings, as a DNS
// label. errs.Invalid when none comes out.
func (s Source) ImageName() (string, error) {
	name := s.Name
	if s.Kind == api.ImageOCI {
		name = path.Base(name)
		name, _, _ = strings.Cut(name, "@")
		name, _, _ = strings.Cut(name, ":")
	}
	name = withoutEndings(strings.ToLower(name))
	name = strings.Trim(strings.NewReplacer("_", "-", ".", "-", " ", "-").Replace(name), "-")
	if model.CheckName("image", name) != nil {
		return "", errs.New(errs.Invalid, "no name for the image can be made out of %q", s.Name).
			WithHint("give it one: billet image import SOURCE NAME")
	}
	return name, nil
}

func withoutEndings(name string) string {
	for cut := true; cut; {
		cut = false
		for _, e := range endings {
			if rest, ok := strings.CutSuffix(name, e); ok && rest != "" {
				name, cut = rest, true
			}
		}
	}
	return name
}
