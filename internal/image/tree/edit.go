package tree

import (
	"bytes"
	"io"

	"golang.org/x/sys/unix"
)

// MaxFileBytes bounds what ReadFile returns: it reads small text files, such
// as a manifest or a password file.
const MaxFileBytes = 8 << 20

// Lookup returns the node at path, relative to the root; symbolic links are
// followed inside the root. errs.Invalid when there is none.
func (t *Tree) Lookup(path string) (*Node, error) {
	parts, err := Layer.split(path)
	if err != nil {
		return nil, err
	}
	r := resolver{t: t, rules: Layer, member: path, stack: []*Node{t.root}}
	for len(parts) > 0 {
		n := r.top().Child(parts[0])
		if len(parts) == 1 && n != nil && !n.IsDir() && !n.IsSymlink() {
			return n, nil
		}
		if parts, err = r.step(parts[0], parts[1:]); err != nil {
			return nil, err
		}
	}
	return r.top(), nil
}

// find returns the directory of path and the name in it, "" for the root.
func (t *Tree) find(path string, create bool) (*Node, string, error) {
	parts, err := Layer.split(path)
	if err != nil || len(parts) == 0 {
		return t.root, "", err
	}
	dir, err := t.dir(Layer, path, parts[:len(parts)-1], create)
	return dir, parts[len(parts)-1], err
}

// ReadFile returns the content of the regular file at path.
func (t *Tree) ReadFile(path string) ([]byte, error) {
	n, err := t.Lookup(path)
	if err != nil {
		return nil, err
	}
	if !n.IsRegular() || n.Content.Len > MaxFileBytes {
		return nil, invalid(path, "is no regular file of at most %d bytes", MaxFileBytes)
	}
	return io.ReadAll(t.Open(n))
}

// WriteFile puts a regular file at path with the attributes of like, whose
// type does not matter, replacing what is there; missing directories are made.
func (t *Tree) WriteFile(path string, data []byte, like Node) error {
	ext, err := t.spool.Add(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		return err
	}
	like.Mode = unix.S_IFREG | like.Mode&0o7777
	like.Content, like.entries, like.Target = ext, nil, ""
	return t.Put(path, like)
}

// Put puts a node at path, replacing what is there; missing directories are
// made, and a directory that is there keeps its entries.
func (t *Tree) Put(path string, n Node) error {
	dir, name, err := t.find(path, true)
	if err != nil {
		return err
	}
	if name == "" {
		return invalid(path, "is the root")
	}
	if n.IsDir() && n.entries == nil {
		n.entries = map[string]*entry{}
	}
	return t.put(path, dir, name, &n)
}

// Remove removes what is at path, a directory with all it has; no link is
// followed at the end of path. Removing nothing is no error.
func (t *Tree) Remove(path string) {
	if dir, name, err := t.find(path, false); err == nil && name != "" {
		delete(dir.entries, name)
	}
}

// Clear removes every entry of the directory at path.
func (t *Tree) Clear(path string) {
	if dir, name, err := t.find(path, false); err == nil && name != "" {
		if n := dir.Child(name); n != nil && n.IsDir() {
			clear(n.entries)
		}
	}
}

// EnsureDir makes the directory at path with these permissions, owned by root,
// unless something is there: a directory, or a link that the image brought.
func (t *Tree) EnsureDir(path string, perm uint32) error {
	if dir, name, err := t.find(path, true); err != nil || name == "" || dir.Child(name) != nil {
		return err
	}
	return t.Put(path, Node{Mode: unix.S_IFDIR | perm})
}
