package tree

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/billethq/billet/internal/errs"
)

// Whiteouts of the OCI image specification, layer.md.
const (
	whiteoutPrefix = ".wh."
	whiteoutMeta   = ".wh..wh."
	whiteoutOpaque = ".wh..wh..opq"
)

// quote makes a hostile name fit for one line.
func quote(s string) string {
	const most = 120
	if len(s) > most {
		s = s[:most] + "…"
	}
	return strconv.Quote(s)
}

// Apply puts the members of one tar archive on the tree, reading r to its end.
// It stops at the first member that breaks the rules; the tree is then of no
// use. Errors: errs.Invalid for a broken, cut or escaping archive (the member
// is named), errs.Exhausted at a limit. An error of r that is not about the
// archive's form comes back as it is.
func (t *Tree) Apply(ctx context.Context, r io.Reader, rules Rules) error {
	t.layer++
	end := &endWatch{r: r}
	tr := tar.NewReader(end)
	last := ""
	for {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		h, err := tr.Next()
		if errors.Is(err, io.EOF) && !end.reached {
			break
		}
		if err == nil {
			last = h.Name
			err = t.member(h, tr, rules)
		}
		if err != nil {
			return broken(err, last)
		}
	}
	if _, err := io.Copy(io.Discard, r); err != nil {
		return broken(err, last)
	}
	return t.spool.Seal()
}

// endWatch notes that the input ended. A tar ends with two blocks of zeros:
// one whose input ends first was cut between two members, which the tar
// reader does not mind.
type endWatch struct {
	r       io.Reader
	reached bool
}

func (e *endWatch) Read(p []byte) (int, error) {
	n, err := e.r.Read(p)
	if n == 0 && errors.Is(err, io.EOF) {
		e.reached = true
	}
	return n, err
}

// broken says what is wrong with an archive after the member last.
func broken(err error, last string) error {
	where := "at its beginning"
	if last != "" {
		where = "after member " + quote(last)
	}
	var known *errs.Error
	switch {
	case errors.As(err, &known):
		return err
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return errs.New(errs.Invalid, "the archive is cut short %s", where).WithHint("fetch or make it again")
	case errors.Is(err, tar.ErrHeader), errors.Is(err, tar.ErrFieldTooLong):
		return errs.New(errs.Invalid, "the archive is damaged %s", where).WithHint("fetch or make it again")
	}
	return err
}

// member applies one member.
func (t *Tree) member(h *tar.Header, content io.Reader, rules Rules) error {
	if h.Typeflag == tar.TypeXGlobalHeader {
		return nil
	}
	parts, err := rules.split(h.Name)
	if err != nil {
		return err
	}
	if len(parts) == 0 {
		return t.rootMember(h)
	}
	dir, err := t.dir(rules, h.Name, parts[:len(parts)-1], true)
	if err != nil {
		return err
	}
	name := parts[len(parts)-1]
	if rules == Layer && strings.HasPrefix(name, whiteoutPrefix) {
		return t.whiteout(h.Name, dir, name)
	}
	n, err := t.node(h, content, rules)
	if err != nil {
		return err
	}
	return t.put(h.Name, dir, name, n)
}

func (t *Tree) rootMember(h *tar.Header) error {
	if h.Typeflag != tar.TypeDir {
		return invalid(h.Name, "names the root but is not a directory")
	}
	n, err := attributes(h)
	if err != nil {
		return err
	}
	n.Mode |= unix.S_IFDIR
	t.root.setAttributes(n)
	return nil
}

// setAttributes gives directory n what m has, entries aside.
func (n *Node) setAttributes(m *Node) {
	entries, pruned := n.entries, n.pruned
	*n = *m
	n.entries, n.pruned = entries, pruned
}

// node makes what h describes; for a hard link it finds it.
func (t *Tree) node(h *tar.Header, content io.Reader, rules Rules) (*Node, error) {
	if h.Typeflag == tar.TypeLink {
		return t.linked(h, rules)
	}
	n, err := attributes(h)
	if err != nil {
		return nil, err
	}
	switch h.Typeflag {
	case tar.TypeReg, tar.TypeCont, tar.TypeGNUSparse:
		n.Mode |= unix.S_IFREG
		if n.Content, err = t.spool.Add(content, h.Size); err != nil {
			return nil, fmt.Errorf("member %s: %w", quote(h.Name), err)
		}
	case tar.TypeDir:
		n.Mode |= unix.S_IFDIR
		n.entries = map[string]*entry{}
	case tar.TypeSymlink:
		n.Mode = unix.S_IFLNK | 0o777
		n.Target = h.Linkname
	case tar.TypeChar:
		n.Mode |= unix.S_IFCHR
	case tar.TypeBlock:
		n.Mode |= unix.S_IFBLK
	case tar.TypeFifo:
		n.Mode |= unix.S_IFIFO
	default:
		return nil, invalid(h.Name, "is of the unknown type %q", h.Typeflag)
	}
	return n, nil
}

// linked finds the node that hard link h shares.
func (t *Tree) linked(h *tar.Header, rules Rules) (*Node, error) {
	parts, err := rules.split(h.Linkname)
	if err != nil {
		return nil, escapes(h.Name, "it is a hard link to "+quote(h.Linkname))
	}
	if len(parts) > 0 {
		dir, err := t.dir(rules, h.Name, parts[:len(parts)-1], false)
		if err != nil {
			return nil, err
		}
		if n := dir.Child(parts[len(parts)-1]); n != nil && !n.IsDir() {
			return n, nil
		}
	}
	return nil, invalid(h.Name, "is a hard link to %s, which is no file before it in the archive", quote(h.Linkname))
}

// Bounds of what an inode can hold.
const (
	// maxDevice is the kernel's: 12 bits of major and 20 of minor number.
	maxMajor, maxMinor = 1<<12 - 1, 1<<20 - 1
	// maxXattrBytes of one file fit its inode and one block beside it.
	maxXattrBytes = 3500
)

// Seconds that an ext4 time can hold.
const (
	minSeconds = -1 << 31
	maxSeconds = 1<<34 - 1<<31 - 1
)

// attributes returns a node of h's owner, permissions, time, device number and
// extended attributes, without a type.
func attributes(h *tar.Header) (*Node, error) {
	if h.Uid < 0 || h.Gid < 0 || int64(h.Uid) > 1<<32-2 || int64(h.Gid) > 1<<32-2 {
		return nil, invalid(h.Name, "has the impossible owner %d:%d", h.Uid, h.Gid)
	}
	if h.Devmajor < 0 || h.Devmajor > maxMajor || h.Devminor < 0 || h.Devminor > maxMinor {
		return nil, invalid(h.Name, "has the impossible device number %d:%d", h.Devmajor, h.Devminor)
	}
	xattrs, err := xattrsOf(h)
	if err != nil {
		return nil, err
	}
	return &Node{
		Mode:    uint32(h.Mode & 0o7777),
		UID:     uint32(h.Uid),
		GID:     uint32(h.Gid),
		ModTime: timeOf(h),
		Major:   uint32(h.Devmajor),
		Minor:   uint32(h.Devminor),
		Xattrs:  xattrs,
	}, nil
}

func timeOf(h *tar.Header) Time {
	if h.ModTime.IsZero() {
		return Time{}
	}
	sec := h.ModTime.Unix()
	if sec < minSeconds || sec > maxSeconds {
		return Time{Sec: min(max(sec, minSeconds), maxSeconds)}
	}
	return Time{Sec: sec, Nsec: int32(h.ModTime.Nanosecond())}
}

const paxXattr = "SCHILY.xattr."

// xattrsOf leaves out what belongs to the host the archive was made on: the
// labels of its security modules and the marks of its overlay file system.
func xattrsOf(h *tar.Header) ([]Xattr, error) {
	var out []Xattr
	total := 0
	for key, value := range h.PAXRecords {
		name, ok := strings.CutPrefix(key, paxXattr)
		if !ok || !KeptXattr(name) {
			continue
		}
		if strings.IndexByte(name, 0) >= 0 || len(name) > maxComponent {
			return nil, invalid(h.Name, "has an extended attribute with the impossible name %s", quote(name))
		}
		total += len(name) + len(value) + 20
		out = append(out, Xattr{Name: name, Value: []byte(value)})
	}
	if total > maxXattrBytes {
		return nil, invalid(h.Name, "has %d bytes of extended attributes, at most %d are possible", total, maxXattrBytes)
	}
	slices.SortFunc(out, func(a, b Xattr) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

// KeptXattr reports whether an extended attribute is part of an image.
func KeptXattr(name string) bool {
	switch {
	case name == "security.capability", name == "system.posix_acl_access", name == "system.posix_acl_default":
		return true
	case strings.HasPrefix(name, "trusted.overlay."):
		return false
	}
	return strings.HasPrefix(name, "user.") || strings.HasPrefix(name, "trusted.")
}

// whiteout hides what lower layers put, whatever this layer's order is: what
// this layer itself put stays.
func (t *Tree) whiteout(member string, dir *Node, name string) error {
	if name == whiteoutOpaque {
		t.prune(dir)
		return nil
	}
	if strings.HasPrefix(name, whiteoutMeta) {
		return nil // other marks of the file system that invented whiteouts
	}
	if err := t.count(nil, name); err != nil {
		return err
	}
	hidden := strings.TrimPrefix(name, whiteoutPrefix)
	if hidden == "" || hidden == "." || hidden == ".." {
		return escapes(member, "it is a whiteout of "+quote(hidden))
	}
	t.hide(dir, hidden)
	return nil
}

// prune hides everything in dir that lower layers put. Once in a layer is
// enough, which keeps a layer of many whiteouts from walking the tree for each.
func (t *Tree) prune(dir *Node) {
	if dir.pruned == t.layer {
		return
	}
	dir.pruned = t.layer
	for name := range dir.entries {
		t.hide(dir, name)
	}
}

func (t *Tree) hide(dir *Node, name string) {
	e := dir.entries[name]
	switch {
	case e == nil:
	case e.layer < t.layer && e.touched < t.layer:
		delete(dir.entries, name)
	case e.node.IsDir():
		t.prune(e.node)
	}
}
