package tree

import (
	"strings"

	"github.com/billethq/billet/internal/errs"
)

// Bounds of names: what ext4 and the kernel can express.
const (
	maxComponent = 255
	maxPath      = 4096
	// maxHops bounds the links followed for one name, as the kernel does.
	maxHops = 40
)

// Bounds of what a source may put, replaced names included.
const (
	// MaxEntries is what a disk of 16 GiB has inodes for, at about 300 bytes
	// of memory each.
	MaxEntries = 1 << 20
	// maxText bounds the memory of names, link targets and attributes.
	maxText = 256 << 20
)

// Rules say how a member's name is read.
type Rules int

const (
	// Archive is a plain tar: a name that is absolute or leads through a
	// symbolic link is refused, as no archiver of a directory makes one.
	Archive Rules = iota
	// Layer is a layer of a container image: whiteouts hide what lower layers
	// put, an absolute name begins at the root, and links are followed inside
	// the root. Builders in the field rely on both.
	Layer
)

// invalid is the one form of an error about a member.
func invalid(member, format string, args ...any) *errs.Error {
	e := errs.New(errs.Invalid, format, args...)
	e.Message = "member " + quote(member) + " " + e.Message
	return e
}

func escapes(member, how string) error {
	return invalid(member, "leaves the root: %s", how).WithHint("make the archive from inside the root directory, such as tar -C ROOT -c .")
}

// split returns the components of a member's name; none for the root itself.
func (r Rules) split(member string) ([]string, error) {
	switch {
	case strings.IndexByte(member, 0) >= 0:
		return nil, invalid(member, "has a NUL in its name")
	case len(member) > maxPath:
		return nil, invalid(member, "has a name of %d bytes, at most %d are possible", len(member), maxPath)
	case r == Archive && strings.HasPrefix(member, "/"):
		return nil, escapes(member, "its name is absolute")
	}
	var parts []string
	for c := range strings.SplitSeq(member, "/") {
		switch {
		case c == "" || c == ".":
		case c == "..":
			return nil, escapes(member, "its name has a \"..\"")
		case len(c) > maxComponent:
			return nil, invalid(member, "has a component of %d bytes, at most %d are possible", len(c), maxComponent)
		default:
			parts = append(parts, c)
		}
	}
	return parts, nil
}

// resolver walks components from the root. stack holds the directories from
// the root to the present one.
type resolver struct {
	t      *Tree
	rules  Rules
	member string
	create bool // make missing directories; else they are an error
	stack  []*Node
	hops   int
}

// dir returns the directory that parts name.
func (t *Tree) dir(rules Rules, member string, parts []string, create bool) (*Node, error) {
	r := resolver{t: t, rules: rules, member: member, create: create, stack: []*Node{t.root}}
	for len(parts) > 0 {
		rest, err := r.step(parts[0], parts[1:])
		if err != nil {
			return nil, err
		}
		parts = rest
	}
	return r.top(), nil
}

func (r *resolver) top() *Node { return r.stack[len(r.stack)-1] }

// step goes to component c of the present directory and returns what is left
// to walk. Only a link's target brings in empty, "." or ".." components.
func (r *resolver) step(c string, rest []string) ([]string, error) {
	switch c {
	case "", ".":
		return rest, nil
	case "..":
		if len(r.stack) == 1 {
			return nil, escapes(r.member, "a symbolic link on its way climbs above the root")
		}
		r.stack = r.stack[:len(r.stack)-1]
		return rest, nil
	}
	e := r.top().entries[c]
	switch {
	case e == nil && !r.create:
		return nil, invalid(r.member, "is not there: %s is missing", quote(c))
	case len(c) > maxComponent: // only a link's target can be
		return nil, invalid(r.member, "leads through a name of %d bytes, at most %d are possible", len(c), maxComponent)
	case e == nil:
		n := newDir()
		if err := r.t.put(r.member, r.top(), c, n); err != nil {
			return nil, err
		}
		r.stack = append(r.stack, n)
	case e.node.IsDir():
		e.touched = r.t.layer
		r.stack = append(r.stack, e.node)
	case e.node.IsSymlink():
		return r.follow(c, e.node.Target, rest)
	default:
		return nil, invalid(r.member, "has a path through %s, which is not a directory", quote(c))
	}
	return rest, nil
}

func (r *resolver) follow(c, target string, rest []string) ([]string, error) {
	if r.rules == Archive {
		return nil, escapes(r.member, "its path leads through the symbolic link "+quote(c))
	}
	if r.hops++; r.hops > maxHops {
		return nil, invalid(r.member, "leads through more than %d symbolic links", maxHops)
	}
	if strings.HasPrefix(target, "/") {
		r.stack = r.stack[:1]
	}
	return append(strings.Split(target, "/"), rest...), nil
}

// checkTarget refuses what no symbolic link can hold.
func checkTarget(member, target string) error {
	if target == "" || len(target) >= maxPath || strings.IndexByte(target, 0) >= 0 {
		return invalid(member, "is a symbolic link with an impossible target of %d bytes", len(target))
	}
	return nil
}

// put makes name in dir mean n. A directory put on a directory changes its
// attributes and keeps its entries; anything else replaces what was there.
func (t *Tree) put(member string, dir *Node, name string, n *Node) error {
	if err := t.count(n, name); err != nil {
		return err
	}
	old := dir.entries[name]
	if old != nil && old.node.IsDir() && n.IsDir() {
		old.node.setAttributes(n)
		old.layer, old.touched = t.layer, t.layer
		return nil
	}
	if n.IsSymlink() {
		if err := checkTarget(member, n.Target); err != nil {
			return err
		}
	}
	dir.entries[name] = &entry{node: n, layer: t.layer, touched: t.layer}
	return nil
}

// count charges one name, and the node n behind it if any, to the bounds.
func (t *Tree) count(n *Node, name string) error {
	t.made++
	t.text += len(name)
	if n != nil {
		t.text += len(n.Target)
		for _, x := range n.Xattrs {
			t.text += len(x.Name) + len(x.Value)
		}
	}
	if t.made > MaxEntries || t.text > maxText {
		return errs.New(errs.Exhausted, "more than %d files, or %d bytes of their names and attributes", MaxEntries, maxText).
			WithHint("import a smaller root file system")
	}
	return nil
}
