package tree

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/billethq/billet/internal/errs"
)

const testLimit = 1 << 20

func newTree(t testing.TB) *Tree {
	t.Helper()
	f, err := os.CreateTemp("", "billet-spool-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	if err := os.Remove(f.Name()); err != nil {
		t.Fatal(err)
	}
	return New(NewSpool(f, testLimit))
}

// m is one member: "dir/", "file=content", "link->target", "hard=>target", or
// a whiteout by its name.
func archive(t testing.TB, members ...string) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, m := range members {
		h, body := header(m)
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(body)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func header(m string) (tar.Header, string) {
	h := tar.Header{Mode: 0o644, ModTime: time.Unix(1, 0)}
	if name, target, ok := strings.Cut(m, "=>"); ok {
		h.Typeflag, h.Name, h.Linkname = tar.TypeLink, name, target
		return h, ""
	}
	if name, target, ok := strings.Cut(m, "->"); ok {
		h.Typeflag, h.Name, h.Linkname = tar.TypeSymlink, name, target
		return h, ""
	}
	if strings.HasSuffix(m, "/") {
		h.Typeflag, h.Name, h.Mode = tar.TypeDir, m, 0o700
		return h, ""
	}
	name, body, _ := strings.Cut(m, "=")
	h.Typeflag, h.Name, h.Size = tar.TypeReg, name, int64(len(body))
	return h, body
}

func apply(t testing.TB, tr *Tree, rules Rules, members ...string) error {
	t.Helper()
	return tr.Apply(context.Background(), bytes.NewReader(archive(t, members...)), rules)
}

// list renders a tree as members, implied directories included.
func list(t testing.TB, tr *Tree) []string {
	t.Helper()
	var out []string
	first := map[*Node]string{}
	err := tr.Walk(func(path string, n *Node) error {
		switch {
		case path == "":
		case n.IsDir():
			out = append(out, path+"/")
		case first[n] != "":
			out = append(out, path+"=>"+first[n])
		case n.IsSymlink():
			out = append(out, path+"->"+n.Target)
		default:
			text, err := tr.ReadFile(path)
			if err != nil {
				return err
			}
			first[n] = path
			out = append(out, path+"="+string(text))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestApply_Layers(t *testing.T) {
	for _, c := range []struct {
		name   string
		layers [][]string
		want   []string
	}{
		{"an upper file replaces a lower", [][]string{{"a=1"}, {"a=2"}}, []string{"a=2"}},
		{"directories merge", [][]string{{"d/", "d/a=1"}, {"d/", "d/b=2"}}, []string{"d/", "d/a=1", "d/b=2"}},
		{"a file replaces a directory", [][]string{{"d/", "d/a=1"}, {"d=2"}}, []string{"d=2"}},
		{"a directory replaces a file", [][]string{{"d=1"}, {"d/", "d/a=2"}}, []string{"d/", "d/a=2"}},
		{"a directory replaces a link", [][]string{{"x/", "d->x"}, {"d/"}}, []string{"d/", "x/"}},
		{"missing parents are implied", [][]string{{"a/b/c=1"}}, []string{"a/", "a/b/", "a/b/c=1"}},
		{"a whiteout hides a file", [][]string{{"a=1", "b=2"}, {".wh.a"}}, []string{"b=2"}},
		{"a whiteout hides a directory", [][]string{{"d/", "d/e/f=1"}, {".wh.d"}}, nil},
		{"a whiteout of nothing is no error", [][]string{{"a=1"}, {".wh.b", "d/.wh.c"}}, []string{"a=1", "d/"}},
		{"a whiteout spares its own layer, before", [][]string{{"d/a=1"}, {".wh.d", "d/b=2"}}, []string{"d/", "d/b=2"}},
		{"a whiteout spares its own layer, after", [][]string{{"d/a=1"}, {"d/b=2", ".wh.d"}}, []string{"d/", "d/b=2"}},
		{"opaque hides what is below, before", [][]string{{"d/a=1", "d/s/x=1"}, {"d/", "d/.wh..wh..opq", "d/b=2"}}, []string{"d/", "d/b=2"}},
		{"opaque hides what is below, after", [][]string{{"d/a=1", "d/s/x=1"}, {"d/", "d/s/y=2", "d/.wh..wh..opq"}}, []string{"d/", "d/s/", "d/s/y=2"}},
		{"opaque ends with its layer", [][]string{{"d/a=1"}, {"d/.wh..wh..opq"}, {"d/b=2"}, {"d/c=3"}}, []string{"d/", "d/b=2", "d/c=3"}},
		{"other marks are left out", [][]string{{".wh..wh.plnk/", ".wh..wh.aufs=1", "a=1"}}, []string{"a=1"}},
		{"a hard link reaches a lower layer", [][]string{{"a=1"}, {"b=>a"}}, []string{"a=1", "b=>a"}},
		{"a hard link to a link is a link", [][]string{{"a->x", "b=>a"}}, []string{"a->x", "b->x"}},
		{"a replaced file leaves its other name", [][]string{{"a=1", "b=>a"}, {"a=2"}}, []string{"a=2", "b=1"}},
		{"a link on the way is followed", [][]string{{"usr/lib/", "lib->usr/lib"}, {"lib/x=1"}}, []string{"lib->usr/lib", "usr/", "usr/lib/", "usr/lib/x=1"}},
		{"an absolute link stays inside", [][]string{{"etc/", "x->/etc"}, {"x/passwd=1"}}, []string{"etc/", "etc/passwd=1", "x->/etc"}},
		{"a link with .. inside is followed", [][]string{{"a/b/", "c/", "a/b/l->../../c"}, {"a/b/l/x=1"}}, []string{"a/", "a/b/", "a/b/l->../../c", "c/", "c/x=1"}},
		{"an absolute name begins at the root", [][]string{{"/app/x=1"}}, []string{"app/", "app/x=1"}},
		{"a whiteout goes through a link", [][]string{{"usr/lib/x=1", "lib->usr/lib"}, {"lib/.wh.x"}}, []string{"lib->usr/lib", "usr/", "usr/lib/"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			tr := newTree(t)
			for _, l := range c.layers {
				if err := apply(t, tr, Layer, l...); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(c.want, list(t, tr)); diff != "" {
				t.Errorf("layers %q (-want +got):\n%s", c.layers, diff)
			}
		})
	}
}

func TestApply_RefusesWhatLeavesTheRoot(t *testing.T) {
	long := strings.Repeat("n", 256)
	for _, c := range []struct {
		name    string
		rules   []Rules
		members []string
		member  string // which the error names
	}{
		{"absolute name", []Rules{Archive}, []string{"a=1", "/etc/passwd=x"}, "/etc/passwd"},
		{"parent", []Rules{Archive, Layer}, []string{"../x=1"}, "../x"},
		{"parent inside", []Rules{Archive, Layer}, []string{"a/../b=1"}, "a/../b"},
		{"through a link up", []Rules{Archive, Layer}, []string{"a->../..", "a/x=1"}, "a/x"},
		{"through a link chain up", []Rules{Archive, Layer}, []string{"d/", "a->d/..", "b->a/..", "b/x=1"}, "b/x"},
		{"through an absolute link", []Rules{Archive}, []string{"a->/etc", "a/x=1"}, "a/x"},
		{"through any link", []Rules{Archive}, []string{"d/", "a->d", "a/x=1"}, "a/x"},
		{"hard link up", []Rules{Archive, Layer}, []string{"a=>../../etc/passwd"}, "a"},
		{"absolute hard link", []Rules{Archive}, []string{"e=1", "a=>/e"}, "a"},
		{"hard link through a link", []Rules{Archive}, []string{"d/e=1", "l->d", "a=>l/e"}, "a"},
		{"hard link to nothing", []Rules{Archive, Layer}, []string{"a=>b"}, "a"},
		{"hard link to a directory", []Rules{Archive, Layer}, []string{"d/", "a=>d"}, "a"},
		{"through a file", []Rules{Archive, Layer}, []string{"a=1", "a/b=2"}, "a/b"},
		{"link loop", []Rules{Layer}, []string{"a->b", "b->a", "a/x=1"}, "a/x"},
		{"link to a long name", []Rules{Layer}, []string{"a->" + long, "a/x=1"}, "a/x"},
		{"link to nothing", []Rules{Archive, Layer}, []string{"a->"}, "a"},
		{"component too long", []Rules{Archive, Layer}, []string{long + "=1"}, long[:50]},
		{"whiteout of the parent", []Rules{Layer}, []string{"d/.wh..."}, "d/.wh..."},
		{"whiteout of the directory", []Rules{Layer}, []string{"d/.wh.."}, "d/.wh.."},
		{"whiteout of no name", []Rules{Layer}, []string{"d/.wh."}, "d/.wh."},
	} {
		for _, rules := range c.rules {
			if len(c.members) == 0 {
				continue
			}
			t.Run(fmt.Sprintf("%s/%d", c.name, rules), func(t *testing.T) {
				err := apply(t, newTree(t), rules, c.members...)
				if !errs.Is(err, errs.Invalid) {
					t.Fatalf("members %q: got %v, want an invalid error", c.members, err)
				}
				if want := "member \"" + c.member; !strings.Contains(err.Error(), want) {
					t.Errorf("members %q: error %q does not name %q", c.members, err, c.member)
				}
			})
		}
	}
}

func TestApply_ArchiveTakesWhiteoutsAsNames(t *testing.T) {
	tr := newTree(t)
	if err := apply(t, tr, Archive, "a=1", ".wh.a=x"); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{".wh.a=x", "a=1"}, list(t, tr)); diff != "" {
		t.Error(diff)
	}
}

func TestApply_SaysWhatIsCutOrDamaged(t *testing.T) {
	whole := archive(t, "a=1", "b=2")
	for _, c := range []struct {
		name, says string
		input      []byte
	}{
		{"cut in a header", "cut short", whole[:1024+100]},
		{"cut in a content", "cut short", archive(t, "a="+strings.Repeat("x", 600))[:700]},
		{"cut between members", "cut short", whole[:1024]},
		{"damaged", "damaged", append(append([]byte{}, whole[:1024]...), bytes.Repeat([]byte("x"), 1024)...)},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := newTree(t).Apply(context.Background(), bytes.NewReader(c.input), Archive)
			if !errs.Is(err, errs.Invalid) || !strings.Contains(err.Error(), c.says) || errs.HintOf(err) == "" {
				t.Errorf("got %v, want invalid, %q and a hint", err, c.says)
			}
		})
	}
}

func TestApply_BoundsContents(t *testing.T) {
	err := apply(t, newTree(t), Archive, "a="+strings.Repeat("x", testLimit), "b=x")
	if !errs.Is(err, errs.Exhausted) || !strings.Contains(err.Error(), `"b"`) {
		t.Errorf("got %v, want exhausted at b", err)
	}
}

func TestApply_BoundsText(t *testing.T) {
	tr := newTree(t)
	tr.text = maxText - 3
	if err := apply(t, tr, Archive, "abc="); err != nil {
		t.Fatal(err)
	}
	if err := apply(t, tr, Archive, "d="); !errs.Is(err, errs.Exhausted) {
		t.Errorf("got %v, want exhausted", err)
	}
	tr = newTree(t)
	tr.made = MaxEntries
	if err := apply(t, tr, Layer, ".wh.a"); !errs.Is(err, errs.Exhausted) {
		t.Errorf("whiteout: got %v, want exhausted", err)
	}
}

func TestApply_KeepsAttributes(t *testing.T) {
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	h := tar.Header{
		Format: tar.FormatPAX, Typeflag: tar.TypeChar, Name: "n", Mode: 0o6751, Uid: 70000, Gid: 1 << 31,
		Devmajor: 300, Devminor: 70000, ModTime: time.Unix(-5, 123456789),
		PAXRecords: map[string]string{
			"SCHILY.xattr.user.b": "2", "SCHILY.xattr.user.a": "1\x00", "SCHILY.xattr.security.selinux": "host",
			"SCHILY.xattr.trusted.overlay.opaque": "y", "SCHILY.xattr.security.capability": "cap",
		},
	}
	if err := w.WriteHeader(&h); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	tr := newTree(t)
	if err := tr.Apply(context.Background(), &buf, Archive); err != nil {
		t.Fatal(err)
	}
	got := *tr.Root().Child("n")
	want := Node{
		Mode: 0o020000 | 0o6751, UID: 70000, GID: 1 << 31, Major: 300, Minor: 70000, ModTime: Time{Sec: -5, Nsec: 123456789},
		Xattrs: []Xattr{{"security.capability", []byte("cap")}, {"user.a", []byte("1\x00")}, {"user.b", []byte("2")}},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(Node{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestSpool_ZerosAreHoles(t *testing.T) {
	tr := newTree(t)
	body := strings.Repeat("\x00", 700<<10)
	if err := apply(t, tr, Archive, "zeros="+body, "tail=x", "more="+strings.Repeat("\x00", 1000)); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{"zeros": body, "tail": "x", "more": strings.Repeat("\x00", 1000)} {
		if got, err := tr.ReadFile(path); err != nil || string(got) != want {
			t.Errorf("%s: %d bytes, %v", path, len(got), err)
		}
	}
	f := tr.spool.file
	if off, err := f.Seek(0, 3 /* SEEK_DATA */); err != nil || off < 512<<10 {
		t.Errorf("first data at %d, %v: zeros were written", off, err)
	}
}
