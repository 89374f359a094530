package tree

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/billethq/billet/internal/errs"
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
		switch n := dir.Child(parts[len(parts)-1]); {
		case n == nil || n.IsDir():
		case n.IsSymlink():
			// mke2fs makes an inode for each name of a link, and so do we.
			twin := *n
			return &twin, nil
		default:
			return n, nil
		}
	}
	return nil, invalid(h.Name, "is a hard link to %s, which is no file before it in the archive", quote(h.Linkname))
}
