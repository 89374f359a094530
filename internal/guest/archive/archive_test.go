package archive_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/billethq/billet/internal/guest/archive"
)

// entry is what a copy must keep of one file.
type entry struct {
	Mode fs.FileMode
	Time string
	Text string // content or target
}

// tree reads everything below dir.
func tree(t *testing.T, dir string) map[string]entry {
	t.Helper()
	all := map[string]entry{}
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		e := entry{Mode: info.Mode()}
		switch {
		case info.Mode().IsRegular():
			b, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			e.Text = string(b)
		case info.Mode()&fs.ModeSymlink != 0:
			e.Text, err = os.Readlink(p)
		}
		if info.Mode()&fs.ModeSymlink == 0 {
			e.Time = info.ModTime().UTC().Format(time.RFC3339Nano)
		}
		rel, _ := filepath.Rel(dir, p)
		all[rel] = e
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// source makes a tree with everything that a copy keeps.
func source(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "src")
	old := time.Date(2001, 2, 3, 4, 5, 6, 789, time.UTC)
	long := strings.Repeat("long", 50)
	must(t,
		os.MkdirAll(filepath.Join(dir, "sub", long), 0o755),
		os.WriteFile(filepath.Join(dir, "file"), []byte("text"), 0o640),
		os.WriteFile(filepath.Join(dir, "sub", "tool"), []byte("#!/bin/sh\n"), 0o755),
		os.WriteFile(filepath.Join(dir, "sub", long, "ünïcode \n name"), nil, 0o600),
		os.WriteFile(filepath.Join(dir, "locked"), []byte("x"), 0o400),
		os.Symlink("/no/such/absolute", filepath.Join(dir, "abs")),
		os.Symlink("sub/tool", filepath.Join(dir, "rel")),
		os.Mkdir(filepath.Join(dir, "ro"), 0o700),
		os.WriteFile(filepath.Join(dir, "ro", "inside"), []byte("y"), 0o644),
		os.Chmod(filepath.Join(dir, "ro"), 0o500),
		os.Chtimes(filepath.Join(dir, "file"), old, old),
		os.Chtimes(filepath.Join(dir, "ro"), old, old),
	)
	return dir
}

func pack(t *testing.T, paths ...string) *bytes.Buffer {
	t.Helper()
	var b bytes.Buffer
	if err := archive.Pack(&b, paths, func(err error) { t.Errorf("left out: %v", err) }); err != nil {
		t.Fatalf("pack %q: %v", paths, err)
	}
	return &b
}

func TestCopy_KeepsModesTimesAndLinks(t *testing.T) {
	src := source(t)
	want := tree(t, src)
	for _, c := range []struct{ name, from, dest, result string }{
		{"into a directory", src, "", "src"},
		{"to a new name", src, "new", "new"},
		{"the contents", src + "/.", "new", "new"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dest := t.TempDir()
			if err := archive.Unpack(pack(t, c.from), filepath.Join(dest, c.dest)); err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(want, tree(t, filepath.Join(dest, c.result))); d != "" {
				t.Errorf("copy (-want +got):\n%s", d)
			}
		})
	}
}

func TestCopy_ContentsIntoADirectory(t *testing.T) {
	src, dest := source(t), t.TempDir()
	if err := archive.Unpack(pack(t, src+"/."), dest); err != nil {
		t.Fatal(err)
	}
	want, got := tree(t, src), tree(t, dest)
	delete(want, ".")
	delete(got, ".") // was there
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("copy (-want +got):\n%s", d)
	}
}

func TestCopy_ReplacesFilesAndJoinsDirectories(t *testing.T) {
	dest := t.TempDir()
	outside := filepath.Join(t.TempDir(), "outside")
	src := filepath.Join(t.TempDir(), "d")
	must(t,
		os.Mkdir(src, 0o755),
		os.WriteFile(filepath.Join(src, "a"), []byte("new"), 0o600),
		os.WriteFile(filepath.Join(src, "b"), []byte("new"), 0o600),
		os.WriteFile(outside, []byte("untouched"), 0o600),
		os.Mkdir(filepath.Join(dest, "d"), 0o755),
		os.WriteFile(filepath.Join(dest, "d", "a"), []byte("old and longer"), 0o644),
		os.WriteFile(filepath.Join(dest, "d", "kept"), []byte("kept"), 0o644),
		os.Symlink(outside, filepath.Join(dest, "d", "b")),
	)
	if err := archive.Unpack(pack(t, src), dest); err != nil {
		t.Fatal(err)
	}
	got := tree(t, filepath.Join(dest, "d"))
	if got["a"].Text != "new" || got["a"].Mode != 0o600 || got["kept"].Text != "kept" || got["b"].Text != "new" {
		t.Errorf("got %+v", got)
	}
	if b, err := os.ReadFile(outside); err != nil || string(b) != "untouched" {
		t.Errorf("the file behind a link of the destination became %q, %v", b, err)
	}
}

func TestPack_LeavesOutWhatIsNoFile(t *testing.T) {
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "file"), []byte("x"), 0o644), mkfifo(filepath.Join(dir, "pipe")))
	var b bytes.Buffer
	var warned []string
	err := archive.Pack(&b, []string{dir, filepath.Join(dir, "missing")}, func(err error) { warned = append(warned, err.Error()) })
	if err == nil || err.Error() != "2 files were not copied" || len(warned) != 2 {
		t.Errorf("pack: %v, warnings %q; want 2 files left out", err, warned)
	}
	dest := t.TempDir()
	if err := archive.Unpack(&b, dest); err != nil {
		t.Fatal(err)
	}
	if got := tree(t, dest); got[filepath.Base(dir)+"/file"].Text != "x" {
		t.Errorf("the rest was not copied: %v", got)
	}
}

// member is one of a hand-made archive.
type member struct {
	name string
	kind byte
	link string
	text string
	mode int64
}

func build(t testing.TB, members ...member) *bytes.Buffer {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, m := range members {
		h := &tar.Header{Name: m.name, Typeflag: m.kind, Linkname: m.link, Size: int64(len(m.text)), Mode: m.mode | 0o700}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(m.text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &b
}

// hostile are archives that try to leave their destination, which has a
// directory "outside" with a file "secret" beside it.
var hostile = map[string][]member{
	"absolute":         {{name: "/tmp/billet-escape", kind: tar.TypeReg, text: "x"}},
	"parent":           {{name: "../outside/new", kind: tar.TypeReg, text: "x"}},
	"parent within":    {{name: "a/../../outside/new", kind: tar.TypeReg, text: "x"}},
	"parent directory": {{name: "..", kind: tar.TypeDir}},
	"empty name":       {{name: "", kind: tar.TypeReg, text: "x"}},
	"through a link": {
		{name: "l", kind: tar.TypeSymlink, link: "../outside"},
		{name: "l/new", kind: tar.TypeReg, text: "x"},
	},
	"through a link's directory": {
		{name: "l", kind: tar.TypeSymlink, link: "../outside"},
		{name: "l/d/", kind: tar.TypeDir},
	},
	"through a chain": {
		{name: "d/", kind: tar.TypeDir},
		{name: "d/up", kind: tar.TypeSymlink, link: ".."},
		{name: "d/out", kind: tar.TypeSymlink, link: "up/../outside"},
		{name: "d/out/new", kind: tar.TypeReg, text: "x"},
	},
	"hard link to outside": {{name: "h", kind: tar.TypeLink, link: "../outside/secret"}},
	"hard link through a link": {
		{name: "l", kind: tar.TypeSymlink, link: "../outside"},
		{name: "h", kind: tar.TypeLink, link: "l/secret"},
	},
	"device":                {{name: "dev", kind: tar.TypeChar}},
	"directory over a link": {{name: "l", kind: tar.TypeSymlink, link: "../outside"}, {name: "l/", kind: tar.TypeDir}},
}

func TestUnpack_RefusesToLeave(t *testing.T) {
	for name, members := range hostile {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			dest, outside := filepath.Join(dir, "dest"), filepath.Join(dir, "outside")
			must(t, os.Mkdir(dest, 0o755), os.Mkdir(outside, 0o755), os.WriteFile(filepath.Join(outside, "secret"), []byte("s"), 0o600))
			before := tree(t, outside)
			if err := archive.Unpack(build(t, members...), dest); err == nil {
				t.Error("it was unpacked")
			}
			if d := cmp.Diff(before, tree(t, outside)); d != "" {
				t.Errorf("outside changed (-before +after):\n%s", d)
			}
		})
	}
}

func TestUnpack_WritesNoFileThroughItsOwnLink(t *testing.T) {
	dir := t.TempDir()
	dest, outside := filepath.Join(dir, "dest"), filepath.Join(dir, "outside")
	must(t, os.Mkdir(dest, 0o755), os.WriteFile(outside, []byte("s"), 0o600))
	err := archive.Unpack(build(t,
		member{name: "l", kind: tar.TypeSymlink, link: "../outside"},
		member{name: "l", kind: tar.TypeReg, text: "changed"}), dest)
	if err != nil {
		t.Fatal(err) // the second replaces the first, as with tar
	}
	if b, _ := os.ReadFile(outside); string(b) != "s" {
		t.Errorf("the file outside became %q", b)
	}
}

func TestUnpack_DropsSetID(t *testing.T) {
	dest := t.TempDir()
	if err := archive.Unpack(build(t, member{name: "su", kind: tar.TypeReg, text: "x", mode: 0o6755}), dest); err != nil {
		t.Fatal(err)
	}
	if got := tree(t, dest)["su"].Mode; got != 0o755 {
		t.Errorf("mode %v, want 0755", got)
	}
}

func TestUnpack_Refuses(t *testing.T) {
	whole := build(t, member{name: "a", kind: tar.TypeReg, text: "text"}).Bytes()
	two := build(t, member{name: "a", kind: tar.TypeReg}, member{name: "b", kind: tar.TypeReg}).Bytes()
	for _, c := range []struct {
		name, dest, want string
		data             []byte
	}{
		{"without its end", "", "cut off", whole[:len(whole)-1024]},
		{"with half of its end", "", "cut off", whole[:len(whole)-512]},
		{"cut within a file", "", "unexpected EOF", whole[:514]},
		{"empty", "", "cut off", nil},
		{"no archive", "", "invalid tar header", bytes.Repeat([]byte("x"), 4096)},
		{"two things as one", "new", "several things", two},
		{"below what is missing", "no/such", "no such file", whole},
		{"a missing directory", "new/", "no such directory", whole},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := archive.Unpack(bytes.NewReader(c.data), t.TempDir()+"/"+c.dest)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

func FuzzUnpack(f *testing.F) {
	for _, members := range hostile {
		f.Add(build(f, members...).Bytes(), "")
	}
	f.Add(build(f, member{name: "./", kind: tar.TypeDir}, member{name: "./a", kind: tar.TypeReg, text: "x"}).Bytes(), "new")
	f.Fuzz(func(t *testing.T, data []byte, name string) {
		if strings.ContainsAny(name, "/\x00") || name == ".." || len(name) > 100 {
			t.Skip()
		}
		dir := t.TempDir()
		dest, outside := filepath.Join(dir, "dest"), filepath.Join(dir, "outside")
		must(t, os.Mkdir(dest, 0o755), os.Mkdir(outside, 0o755), os.WriteFile(filepath.Join(outside, "secret"), []byte("s"), 0o600))
		before := tree(t, outside)
		_ = archive.Unpack(bytes.NewReader(data), dest+"/"+name)
		if d := cmp.Diff(before, tree(t, outside)); d != "" {
			t.Errorf("outside changed (-before +after):\n%s", d)
		}
		if names, err := os.ReadDir(dir); err != nil || len(names) != 2 {
			t.Errorf("beside the destination there are %v, %v", names, err)
		}
	})
}
