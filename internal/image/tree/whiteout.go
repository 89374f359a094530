package tree

import "strings"

// Whiteouts of the OCI image specification, layer.md.
const (
	whiteoutPrefix = ".wh."
	whiteoutMeta   = ".wh..wh."
	whiteoutOpaque = ".wh..wh..opq"
)

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
