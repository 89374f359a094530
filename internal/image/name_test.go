package image

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/errs"
)

func TestImageName(t *testing.T) {
	for name, want := range map[string]string{
		"root.tar": "root", "root.tar.gz": "root", "root.tgz": "root", "root.tar.zst": "root", "root.tzst": "root", "root.tar.bz2": "root",
		"root.tbz": "root", "root.tbz2": "root", "root.tar.xz": "root", "root.txz": "root", "root.oci.tar": "root", "root.zip": "root", "disk.qcow2": "disk",
		"ROOT.TAR.XZ": "root", "some_root.tar": "some-root", "debian-12.5.tar.gz": "debian-12-5", "my root.tar": "my-root", "stdin": "stdin",
		".tar": "tar", "-.tar": "", "ü.tar": "", "": "", "a:b.tar": "",
	} {
		got, err := Source{Kind: api.ImageStream, Name: name}.ImageName()
		if got != want || (want == "") != errs.Is(err, errs.Invalid) || (err != nil && errs.HintOf(err) == "") {
			t.Errorf("%q: got %q, %v, want %q", name, got, err, want)
		}
	}
	for name, want := range map[string]string{
		"alpine": "alpine", "registry.example/team/tool:1.2": "tool", "host:5000/a/My_App@sha256:00": "my-app",
	} {
		if got, err := (Source{Kind: api.ImageOCI, Name: name}).ImageName(); got != want {
			t.Errorf("reference %q: got %q, %v, want %q", name, got, err, want)
		}
	}
}

// What no node could read is refused before one is asked.
func TestOpenSource_RefusesByContent(t *testing.T) {
	dir := t.TempDir()
	for name, c := range map[string]struct{ content, message, hint string }{
		"root.tar.xz": {"\xfd7zXZ\x00....", "the input is in the xz format, which billet does not read", "decompress it first: xz -d FILE"},
		"root.tar.gz": {"PK\x03\x04....", "the input is in the zip format, which billet does not read", "unpack it and import the directory"},
		"root.tar":    {"hello", "the input is no image: it is text", wanted},
		"none.tar":    {"", "the input is empty", wanted},
	} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(c.content), 0o600); err != nil {
			t.Fatal(err)
		}
		src, err := OpenSource(path)
		if !errs.Is(err, errs.Invalid) || err.Error() != name+": "+c.message || errs.HintOf(err) != c.hint || src.ReadCloser != nil {
			t.Errorf("%s: got %v (hint %q), want %s (hint %q)", name, err, errs.HintOf(err), c.message, c.hint)
		}
	}
	for _, name := range []string{"gone.tar.xz", "gone.tgz", "gone.tzst", "gone.tar.bz2"} {
		if _, err := OpenSource(name); !errs.Is(err, errs.NotFound) {
			t.Errorf("%s: got %v, want not_found: it can only be a path", name, err)
		}
	}
}
