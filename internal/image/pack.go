package image

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/image/tree"
)

// pack writes the directory as a tar: names relative to it in ascending order,
// owners as numbers, times to the nanosecond, extended attributes, hard links.
// It stays on one file system, so that importing / does not read /proc, and
// leaves out sockets, which nothing can listen on again.
func pack(dir string, w io.Writer) error {
	root, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return unreadable(err)
	}
	var st unix.Stat_t
	if err := unix.Lstat(root, &st); err != nil {
		return unreadable(err)
	}
	p := &dirPacker{root: root, dev: st.Dev, tw: tar.NewWriter(w), first: map[uint64]string{}}
	if err := filepath.WalkDir(root, p.visit); err != nil {
		return err
	}
	return p.tw.Close()
}

type dirPacker struct {
	root  string
	dev   uint64
	tw    *tar.Writer
	first map[uint64]string // the first name of a file of several, by inode
}

func (p *dirPacker) visit(path string, _ fs.DirEntry, err error) error {
	if err != nil {
		return unreadable(err)
	}
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return unreadable(&fs.PathError{Op: "lstat", Path: path, Err: err})
	}
	rel, err := filepath.Rel(p.root, path)
	if err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT == unix.S_IFSOCK {
		return nil
	}
	if err := p.member(path, rel, &st); err != nil {
		return err
	}
	if st.Dev != p.dev && st.Mode&unix.S_IFMT == unix.S_IFDIR {
		return fs.SkipDir
	}
	return nil
}

func (p *dirPacker) member(path, rel string, st *unix.Stat_t) error {
	h := &tar.Header{
		Format: tar.FormatPAX, Name: rel,
		Mode: int64(st.Mode & 0o7777), Uid: int(st.Uid), Gid: int(st.Gid),
		ModTime: time.Unix(st.Mtim.Unix()),
	}
	typ := st.Mode & unix.S_IFMT
	switch first := p.first[st.Ino]; {
	case typ != unix.S_IFDIR && first != "" && st.Dev == p.dev:
		h.Typeflag, h.Linkname = tar.TypeLink, first
		return p.header(h)
	case typ != unix.S_IFDIR && st.Nlink > 1 && st.Dev == p.dev:
		p.first[st.Ino] = rel
	}
	var err error
	if h.PAXRecords, err = xattrs(path); err != nil {
		return err
	}
	switch typ {
	case unix.S_IFDIR:
		h.Typeflag, h.Name = tar.TypeDir, rel+"/"
	case unix.S_IFLNK:
		h.Typeflag = tar.TypeSymlink
		if h.Linkname, err = os.Readlink(path); err != nil {
			return unreadable(err)
		}
	case unix.S_IFCHR, unix.S_IFBLK:
		h.Typeflag = tar.TypeChar
		if typ == unix.S_IFBLK {
			h.Typeflag = tar.TypeBlock
		}
		h.Devmajor, h.Devminor = int64(unix.Major(st.Rdev)), int64(unix.Minor(st.Rdev))
	case unix.S_IFIFO:
		h.Typeflag = tar.TypeFifo
	case unix.S_IFREG:
		h.Typeflag, h.Size = tar.TypeReg, st.Size
		return p.regular(h, path)
	}
	return p.header(h)
}

func (p *dirPacker) header(h *tar.Header) error {
	if err := p.tw.WriteHeader(h); err != nil {
		return fmt.Errorf("pack %s: %w", h.Name, err)
	}
	return nil
}

func (p *dirPacker) regular(h *tar.Header, path string) error {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return unreadable(err)
	}
	defer f.Close()
	if err := p.header(h); err != nil {
		return err
	}
	n, err := io.Copy(p.tw, io.LimitReader(f, h.Size))
	if err != nil {
		return fmt.Errorf("pack %s: %w", h.Name, err)
	}
	if n != h.Size {
		return errs.New(errs.Conflict, "%s became shorter while it was read", path).WithHint("import a directory that nothing writes to")
	}
	return nil
}

// maxXattrList bounds one file's attributes; Linux allows no more.
const maxXattrList = 64 << 10

// xattrs returns a file's extended attributes as records of a PAX header.
func xattrs(path string) (map[string]string, error) {
	list := make([]byte, maxXattrList)
	n, err := unix.Llistxattr(path, list)
	if errors.Is(err, unix.ENOTSUP) || n == 0 && err == nil {
		return nil, nil
	}
	if err != nil {
		return nil, unreadable(&fs.PathError{Op: "listxattr", Path: path, Err: err})
	}
	records := map[string]string{}
	value := make([]byte, maxXattrList)
	for name := range bytes.SplitSeq(bytes.TrimSuffix(list[:n], []byte{0}), []byte{0}) {
		if !tree.KeptXattr(string(name)) {
			continue
		}
		n, err := unix.Lgetxattr(path, string(name), value)
		if err != nil {
			return nil, unreadable(&fs.PathError{Op: "getxattr " + string(name), Path: path, Err: err})
		}
		records["SCHILY.xattr."+string(name)] = string(value[:n])
	}
	return records, nil
}
