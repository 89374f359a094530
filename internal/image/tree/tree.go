// Package tree holds a root file system in memory, its files' contents in one
// spool file.
//
// Nothing of it is ever unpacked onto the host: a member name is resolved in
// this data structure alone, so no archive can reach a file of the host, and
// owners, modes, device nodes and times are exactly those of the source,
// whatever the host's file system can express.
package tree

import (
	"io"
	"iter"
	"maps"
	"slices"

	"golang.org/x/sys/unix"
)

// Time is a point in time with the full range of a source's headers.
type Time struct {
	Sec  int64
	Nsec int32
}

// Xattr is one extended attribute.
type Xattr struct {
	Name  string
	Value []byte
}

// Node is one inode. Two names of one file share a Node.
type Node struct {
	Mode         uint32 // as in st_mode: type and permissions
	UID, GID     uint32
	ModTime      Time
	Major, Minor uint32  // of a device
	Target       string  // of a symbolic link
	Xattrs       []Xattr // sorted by name
	Content      Extent  // of a regular file

	entries map[string]*entry // of a directory
	pruned  int               // the layer that hid all lower layers' entries of it
}

// entry is one name in a directory. The stamps are numbers of layers: the one
// that put the name there, and the newest that put something below it.
type entry struct {
	node           *Node
	layer, touched int
}

func (n *Node) kind() uint32 { return n.Mode & unix.S_IFMT }

// IsDir reports whether n is a directory.
func (n *Node) IsDir() bool { return n.kind() == unix.S_IFDIR }

// IsRegular reports whether n is a regular file.
func (n *Node) IsRegular() bool { return n.kind() == unix.S_IFREG }

// IsSymlink reports whether n is a symbolic link.
func (n *Node) IsSymlink() bool { return n.kind() == unix.S_IFLNK }

// Names returns the names in directory n in ascending order of their bytes.
func (n *Node) Names() []string { return slices.Sorted(maps.Keys(n.entries)) }

// Child returns the node of that name in directory n, or nil.
func (n *Node) Child(name string) *Node {
	if e := n.entries[name]; e != nil {
		return e.node
	}
	return nil
}

// implicitMode is that of a directory which the source only implies.
const implicitMode = unix.S_IFDIR | 0o755

func newDir() *Node { return &Node{Mode: implicitMode, entries: map[string]*entry{}} }

// Tree is a root file system. It is not safe for concurrent use; reading it
// from several goroutines is, once nothing changes it any more.
type Tree struct {
	root  *Node
	spool *Spool
	layer int // number of the layer being applied
	made  int // names ever put, whatever replaced them
	text  int // bytes of their names, targets and attributes
}

// New returns a tree of an empty root directory. File contents go to spool,
// which stays the caller's to close.
func New(spool *Spool) *Tree { return &Tree{root: newDir(), spool: spool} }

// Root returns the root directory.
func (t *Tree) Root() *Node { return t.root }

// Empty reports whether the root directory has no entry.
func (t *Tree) Empty() bool { return len(t.root.entries) == 0 }

// Open returns the content of a regular file.
func (t *Tree) Open(n *Node) *io.SectionReader {
	return io.NewSectionReader(t.spool.file, n.Content.Off, n.Content.Len)
}

// Walk calls fn for the root and everything below it: a directory before its
// entries, entries in ascending order of their bytes. path is "" for the root,
// else relative. A file of several names is visited once for each.
func (t *Tree) Walk(fn func(path string, n *Node) error) error {
	return walk("", t.root, fn)
}

func walk(path string, n *Node, fn func(string, *Node) error) error {
	if err := fn(path, n); err != nil {
		return err
	}
	for _, name := range n.Names() {
		sub := name
		if path != "" {
			sub = path + "/" + name
		}
		if err := walk(sub, n.entries[name].node, fn); err != nil {
			return err
		}
	}
	return nil
}

// Children yields the nodes in directory n, in no order.
func (n *Node) Children() iter.Seq[*Node] {
	return func(yield func(*Node) bool) {
		for _, e := range n.entries {
			if !yield(e.node) {
				return
			}
		}
	}
}
