package tree

import (
	"iter"

	"golang.org/x/sys/unix"
)

// Usage is what a tree needs of a file system.
type Usage struct {
	Inodes int64
	Bytes  int64 // of contents and directories, in whole blocks
}

// Usage measures the tree for a file system of that block size. Zeros inside
// contents count although they will be holes.
func (t *Tree) Usage(block int64) Usage {
	var u Usage
	for n := range t.Inodes() {
		u.Inodes++
		size := n.Content.Len
		for name := range n.entries {
			size += int64(len(name)) + 12 // a directory entry's head and padding
		}
		u.Bytes += (size + block - 1) / block * block
		if n.kind() == unix.S_IFDIR && size == 0 {
			u.Bytes += block
		}
	}
	return u
}

// Inodes yields each node once, with the number of its names, in the order of
// Walk at which its first name is met.
func (t *Tree) Inodes() iter.Seq2[*Node, int] {
	links := make(map[*Node]int, t.made)
	var order []*Node
	_ = t.Walk(func(_ string, n *Node) error {
		if links[n]++; links[n] == 1 {
			order = append(order, n)
		}
		return nil
	})
	return func(yield func(*Node, int) bool) {
		for _, n := range order {
			if !yield(n, links[n]) {
				return
			}
		}
	}
}
