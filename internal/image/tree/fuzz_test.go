package tree

import (
	"archive/tar"
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/billethq/billet/internal/errs"
)

// FuzzMembers applies lines of "type name link" as members in two layers, and
// checks what holds whatever they are.
func FuzzMembers(f *testing.F) {
	for _, seed := range []string{
		"5 d\n0 d/a\n2 l /d\n0 l/b\n1 h d/a",
		"2 a ../..\n0 a/x", "0 .wh.a\n0 d/.wh..wh..opq", "0 /abs\n0 a//b/./c", "2 a b\n2 b a\n0 a/b/c",
		"5 d\n2 d e\n5 e\n0 d/x\n0 .wh.e", "1 a /etc/passwd\n0 \x00", "5 ./\n0 .", "2 l .\n1 h l/l/l\n0 l/.wh.l",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, script string) {
		for _, rules := range []Rules{Archive, Layer} {
			tr := newTree(t)
			for half := range 2 {
				tr.layer++
				for i, line := range strings.Split(script, "\n") {
					h, ok := fuzzHeader(line)
					if !ok || i%2 != half && rules == Layer {
						continue
					}
					if err := tr.member(&h, strings.NewReader(""), rules); err != nil && !errs.Is(err, errs.Invalid) {
						t.Fatalf("member %q: %v is not invalid", line, err)
					}
				}
			}
			checkTree(t, tr, rules)
		}
	})
}

func fuzzHeader(line string) (tar.Header, bool) {
	f := strings.SplitN(line, " ", 3)
	if len(f) < 2 || len(f[0]) != 1 {
		return tar.Header{}, false
	}
	h := tar.Header{Typeflag: f[0][0], Name: f[1]}
	if len(f) == 3 {
		h.Linkname = f[2]
	}
	return h, true
}

// checkTree: every name is one that a file system can hold, no directory is
// reached twice (so that walks end), no whiteout became a file.
func checkTree(t *testing.T, tr *Tree, rules Rules) {
	t.Helper()
	seen := map[*Node]bool{}
	_ = tr.Walk(func(path string, n *Node) error {
		if n.IsDir() && seen[n] {
			t.Fatalf("directory %q is reached twice", path)
		}
		seen[n] = true
		for _, name := range n.Names() {
			if name == "" || name == "." || name == ".." || len(name) > 255 || strings.ContainsAny(name, "/\x00") {
				t.Fatalf("impossible name %q in %q", name, path)
			}
			if rules == Layer && strings.HasPrefix(name, whiteoutPrefix) && !n.Child(name).IsDir() {
				t.Fatalf("whiteout %q became a file in %q", name, path)
			}
		}
		if n.IsSymlink() && n.Target == "" {
			t.Fatalf("link %q has no target", path)
		}
		return nil
	})
}

// FuzzApply reads any bytes as an archive: it ends in a tree or in an error of
// a kind that blames the input.
func FuzzApply(f *testing.F) {
	f.Add(archive(f, "a=1", "d/", "l->a", "h=>a"))
	f.Add(archive(f, "a=1")[:600])
	f.Add(make([]byte, 1024))
	f.Fuzz(func(t *testing.T, input []byte) {
		tr := newTree(t)
		err := tr.Apply(context.Background(), bytes.NewReader(input), Layer)
		if err != nil && !errs.Is(err, errs.Invalid) && !errs.Is(err, errs.Exhausted) {
			t.Fatalf("%v blames nobody", err)
		}
		checkTree(t, tr, Layer)
	})
}
