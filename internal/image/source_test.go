package image

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/testenv"
)

func TestOpenSource(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	if err := os.WriteFile("root.tar", make([]byte, 1024), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir("debian", 0o700); err != nil {
		t.Fatal(err)
	}
	if l, err := net.Listen("unix", "sock"); err != nil {
		t.Fatal(err)
	} else {
		defer l.Close()
	}
	for _, c := range []struct {
		in   string
		want Source
		kind errs.Kind
	}{
		{"root.tar", Source{Kind: api.ImageStream, Name: "root.tar", Size: 1024}, ""},
		{dir + "/root.tar", Source{Kind: api.ImageStream, Name: "root.tar", Size: 1024}, ""},
		{"debian", Source{Kind: api.ImageStream, Name: "debian", Size: -1}, ""},
		{".", Source{Kind: api.ImageStream, Name: filepath.Base(dir), Size: -1}, ""},
		{"debian:bookworm", Source{Kind: api.ImageOCI, Name: "debian:bookworm"}, ""},
		{"host:5000/a/b@sha256:" + strings.Repeat("a", 64), Source{Kind: api.ImageOCI, Name: "host:5000/a/b@sha256:" + strings.Repeat("a", 64)}, ""},
		{"", Source{}, errs.Invalid},
		{"sock", Source{}, errs.Invalid},
		{"No Such Thing", Source{}, errs.Invalid},
		{"./none", Source{}, errs.NotFound},
		{"none.tar.gz", Source{}, errs.NotFound},
		{"/none/at/all", Source{}, errs.NotFound},
	} {
		t.Run(c.in, func(t *testing.T) {
			got, err := OpenSource(c.in)
			if errs.KindOf(err) != c.kind || (err != nil && errs.HintOf(err) == "") {
				t.Fatalf("got %v (%s), hint %q; want %q", err, errs.KindOf(err), errs.HintOf(err), c.kind)
			}
			if got.ReadCloser != nil {
				if err := got.Close(); err != nil {
					t.Error(err)
				}
				got.ReadCloser = nil
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestPack_KeepsEverything reads the members of a directory of one of each.
func TestPack_KeepsEverything(t *testing.T) {
	testenv.NeedRoot(t)
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.Mkdir(in("b"), 0o750))
	must(os.WriteFile(in("b/file"), []byte("text"), 0o640))
	must(os.Chown(in("b/file"), 70000, 7)) // takes the bit of the next line away
	must(os.Chmod(in("b/file"), 0o640|os.ModeSetuid))
	must(unix.Setxattr(in("b/file"), "user.k", []byte("v\x00"), 0))
	must(os.Link(in("b/file"), in("z")))
	must(os.Symlink("nowhere", in("a")))
	must(unix.Mknod(in("dev"), unix.S_IFCHR|0o600, int(unix.Mkdev(300, 70000))))
	must(unix.Mkfifo(in("fifo"), 0o600))
	l, err := net.Listen("unix", in("sock"))
	must(err)
	defer l.Close()
	when := time.Unix(1600000000, 123456789)
	must(os.Chtimes(in("b/file"), time.Time{}, when))

	src, err := OpenSource(dir)
	must(err)
	defer src.Close()
	type member struct {
		Name, Link string
		Type       byte
		Mode       int64
		UID        int
		Major      int64
		Xattr      string
	}
	var got []member
	var mtime time.Time
	tr := tar.NewReader(src)
	for {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		must(err)
		if h.Name == "b/file" {
			mtime = h.ModTime
		}
		if h.Typeflag == tar.TypeSymlink {
			h.Mode = 0
		}
		if h.Name == "./" {
			h.Mode = 0
		}
		got = append(got, member{h.Name, h.Linkname, h.Typeflag, h.Mode, h.Uid, h.Devmajor, h.PAXRecords["SCHILY.xattr.user.k"]})
	}
	want := []member{
		{Name: "./", Type: tar.TypeDir},
		{Name: "a", Link: "nowhere", Type: tar.TypeSymlink},
		{Name: "b/", Type: tar.TypeDir, Mode: 0o750},
		{Name: "b/file", Type: tar.TypeReg, Mode: 0o4640, UID: 70000, Xattr: "v\x00"},
		{Name: "dev", Type: tar.TypeChar, Mode: 0o600, Major: 300},
		{Name: "fifo", Type: tar.TypeFifo, Mode: 0o600},
		{Name: "z", Link: "b/file", Type: tar.TypeLink, Mode: 0o4640, UID: 70000},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if !mtime.Equal(when) {
		t.Errorf("time %v, want %v", mtime, when)
	}
}

// TestPack_StaysOnItsFileSystem shows the directory that is mounted on, empty.
func TestPack_StaysOnItsFileSystem(t *testing.T) {
	testenv.NeedRoot(t)
	dir := t.TempDir()
	on := filepath.Join(dir, "on")
	if err := os.Mkdir(on, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", on, "tmpfs", 0, "size=64k"); err != nil {
		t.Skipf("testenv: need mount: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(on, 0); err != nil {
			t.Error(err)
		}
	})
	if err := os.WriteFile(filepath.Join(on, "secret"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var buf bytes.Buffer
	if err := pack(dir, &buf); err != nil {
		t.Fatal(err)
	}
	tr, _, err := streamTree(t, buf.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	if got, want := names(t, tr), "dev on proc run run/billet run/billet-guest sys tmp"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestPacking_EndsWhenClosed: a client that gives up leaves no goroutine.
func TestPacking_EndsWhenClosed(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "f"), make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	p := packing(dir)
	if _, err := p.Read(make([]byte, 10)); err != nil {
		t.Fatal(err)
	}
	if err := p.Close(); err != nil { // waits for the writer
		t.Fatal(err)
	}
	if _, err := p.Read(make([]byte, 10)); err == nil {
		t.Error("a closed stream was read")
	}
}
