package ext4

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/billethq/billet/internal/image/tree"
)

// sample is one of everything that a root can hold, and many of what it holds
// most. The order puts nothing in order.
func sample() []tar.Header {
	at := func(ns int64) time.Time { return time.Unix(1500000000, ns) }
	xattr := func(kv ...string) map[string]string {
		m := map[string]string{}
		for i := 0; i < len(kv); i += 2 {
			m["SCHILY.xattr."+kv[i]] = kv[i+1]
		}
		return m
	}
	capability := "\x01\x00\x00\x02\x00\x20\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
	acl := "\x02\x00\x00\x00\x01\x00\x06\x00\xff\xff\xff\xff\x02\x00\x06\x00\xe8\x03\x00\x00\x04\x00\x04\x00\xff\xff\xff\xff\x10\x00\x06\x00\xff\xff\xff\xff\x20\x00\x04\x00\xff\xff\xff\xff"
	out := []tar.Header{
		{Typeflag: tar.TypeDir, Name: "./", Mode: 0o751, Uid: 3, Gid: 70003, ModTime: at(500), PAXRecords: xattr("user.root", "r")},
		{Typeflag: tar.TypeDir, Name: "usr/", Mode: 0o755, ModTime: at(0)},
		{Typeflag: tar.TypeReg, Name: "usr/ping", Mode: 0o755, Size: 5000, ModTime: at(123456789), PAXRecords: xattr("security.capability", capability)},
		{Typeflag: tar.TypeReg, Name: "usr/sudo", Mode: 0o4755, Size: 100, ModTime: at(0)},
		{Typeflag: tar.TypeReg, Name: "usr/acl", Mode: 0o664, Size: 1, ModTime: at(0), PAXRecords: xattr("system.posix_acl_access", acl)},
		{Typeflag: tar.TypeReg, Name: "usr/many", Mode: 0o600, Size: 1, ModTime: at(0), PAXRecords: xattr("user.a", "1", "user.b", strings.Repeat("x", 3000), "trusted.c", "\x00\x01")},
		{Typeflag: tar.TypeDir, Name: "tmp/", Mode: 0o1777, ModTime: time.Unix(-5, 7)},
		{Typeflag: tar.TypeReg, Name: "tmp/early", Mode: 0o644, ModTime: time.Unix(-2000000000, 999999999)},
		{Typeflag: tar.TypeReg, Name: "tmp/late", Mode: 0o644, ModTime: time.Unix(15000000000, 1)},
		{Typeflag: tar.TypeReg, Name: "tmp/zeros", Mode: 0o644, Size: 20 << 20, ModTime: at(0)},
		{Typeflag: tar.TypeReg, Name: "tmp/who", Mode: 0o640, Uid: 1000000, Gid: 4000000000, ModTime: at(0)},
		{Typeflag: tar.TypeLink, Name: "a-link-to-sudo", Linkname: "usr/sudo"},
		{Typeflag: tar.TypeLink, Name: "usr/z-sudo", Linkname: "usr/sudo"},
		{Typeflag: tar.TypeSymlink, Name: "bin", Linkname: "usr/bin", ModTime: at(7), Uid: 5},
		{Typeflag: tar.TypeSymlink, Name: "long", Linkname: strings.Repeat("a/", 1000), ModTime: at(0)},
		{Typeflag: tar.TypeChar, Name: "null", Mode: 0o666, Devmajor: 1, Devminor: 3, ModTime: at(0)},
		{Typeflag: tar.TypeBlock, Name: "disk", Mode: 0o660, Devmajor: 259, Devminor: 70000, ModTime: at(0)},
		{Typeflag: tar.TypeLink, Name: "c-disk", Linkname: "disk"},
		{Typeflag: tar.TypeLink, Name: "c-bin", Linkname: "bin"},
		{Typeflag: tar.TypeFifo, Name: "fifo", Mode: 0o600, ModTime: at(0)},
		{Typeflag: tar.TypeReg, Name: "quote\"d\nname \\ é\xff", Mode: 0o644, Size: 3, ModTime: at(1)},
		{Typeflag: tar.TypeReg, Name: strings.Repeat("n", 255), Mode: 0o644, ModTime: at(1)},
		{Typeflag: tar.TypeReg, Name: "lost+found/x", Mode: 0o644, ModTime: at(1)},
	}
	for i := range 2000 {
		out = append(out, tar.Header{Typeflag: tar.TypeReg, Name: fmt.Sprintf("usr/d%d/f%d", i%37, i*7919%2000), Mode: 0o644, Size: int64(i), ModTime: at(int64(i % 3))})
	}
	return out
}

// load makes a tree of headers; the content of a file follows from its name.
func load(t testing.TB, headers []tar.Header) *tree.Tree {
	t.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, h := range headers {
		h.Format = tar.FormatPAX
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(content(h.Name, h.Size)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(filepath.Join(t.TempDir(), "spool"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	tr := tree.New(tree.NewSpool(f, 1<<30))
	if err := tr.Apply(context.Background(), &buf, tree.Archive); err != nil {
		t.Fatal(err)
	}
	return tr
}

func content(name string, size int64) []byte {
	if strings.HasSuffix(name, "zeros") {
		return make([]byte, size)
	}
	return bytes.Repeat([]byte(name+"\n"), int(size)/(len(name)+1)+1)[:size]
}

// split keeps hard links after what they link to.
func split(headers []tar.Header) (dirs, files, links []tar.Header) {
	for _, h := range headers {
		switch h.Typeflag {
		case tar.TypeDir:
			dirs = append(dirs, h)
		case tar.TypeLink:
			links = append(links, h)
		default:
			files = append(files, h)
		}
	}
	return dirs, files, links
}

// seen is a file as lstat and the rest show it.
type seen struct {
	Mode, UID, GID uint32
	Rdev, Nlink    uint64
	Size           int64
	Mtime          unix.Timespec
	Target         string
	Xattrs         map[string]string
	Content        string
}

func expected(t testing.TB, tr *tree.Tree, n *tree.Node, links uint64) seen {
	t.Helper()
	s := seen{Mode: n.Mode, UID: n.UID, GID: n.GID, Nlink: links, Size: n.Content.Len, Target: n.Target,
		Mtime: unix.Timespec{Sec: n.ModTime.Sec, Nsec: int64(n.ModTime.Nsec)}, Xattrs: map[string]string{}}
	for _, x := range n.Xattrs {
		s.Xattrs[x.Name] = string(x.Value)
	}
	switch {
	case n.IsRegular() && n.Content.Len < 1<<20:
		b := make([]byte, n.Content.Len)
		if _, err := tr.Open(n).ReadAt(b, 0); err != nil && n.Content.Len > 0 {
			t.Fatal(err)
		}
		s.Content = string(b)
	case n.IsSymlink():
		s.Size = int64(len(n.Target))
	case n.IsDir():
		s.Nlink, s.Size = 0, 0
	case n.Major != 0:
		s.Rdev = unix.Mkdev(n.Major, n.Minor)
	}
	return s
}

func observe(t testing.TB, path string) seen {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		t.Fatal(err)
	}
	s := seen{Mode: st.Mode, UID: st.Uid, GID: st.Gid, Rdev: st.Rdev, Nlink: uint64(st.Nlink), Size: st.Size, Mtime: st.Mtim, Xattrs: map[string]string{}}
	list := make([]byte, 4096)
	n, err := unix.Llistxattr(path, list)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range strings.FieldsFunc(string(list[:n]), func(r rune) bool { return r == 0 }) {
		value := make([]byte, 4096)
		n, err := unix.Lgetxattr(path, name, value)
		if err != nil {
			t.Fatal(err)
		}
		s.Xattrs[name] = string(value[:n])
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		if st.Size < 1<<20 {
			s.Content = string(readAll(t, path))
		}
	case unix.S_IFLNK:
		if s.Target, err = os.Readlink(path); err != nil {
			t.Fatal(err)
		}
	case unix.S_IFDIR:
		s.Nlink, s.Size = 0, 0
	}
	return s
}
