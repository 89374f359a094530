package ext4

import (
	"io"
	"sync"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/billethq/billet/internal/image/tree"
)

// served shows a tree as a read-only FUSE file system. The id of a node is its
// place in nodes plus one, so the root is FUSE's root.
type served struct {
	// What is not defined here is answered by "no such function", which the
	// kernel remembers: from then on it opens, closes and seeks without asking.
	fuse.RawFileSystem
	tree   *tree.Tree
	nodes  []*tree.Node
	links  []int
	ids    map[*tree.Node]uint64
	names  map[*tree.Node][]string // of directories, sorted
	xattrs bool

	mu       sync.Mutex
	progress func(int64)
	done     int64
	failure  error
}

func newServed(t *tree.Tree, progress func(int64)) *served {
	s := &served{
		RawFileSystem: fuse.NewDefaultRawFileSystem(),
		tree:          t,
		ids:           map[*tree.Node]uint64{},
		names:         map[*tree.Node][]string{},
		progress:      progress,
	}
	for n, links := range t.Inodes() {
		s.nodes = append(s.nodes, n)
		s.links = append(s.links, links)
		s.ids[n] = uint64(len(s.nodes))
		s.xattrs = s.xattrs || len(n.Xattrs) > 0
		if n.IsDir() {
			s.names[n] = n.Names()
		}
	}
	return s
}

func (s *served) String() string { return "billet-tree" }

// node panics on an id that was never given out: the kernel cannot make one.
func (s *served) node(id uint64) *tree.Node { return s.nodes[id-1] }

// err returns what reading contents ended with, if not well: to mke2fs it is
// only an I/O error.
func (s *served) err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failure
}

// device encodes a number as FUSE's wire does.
func device(n *tree.Node) uint32 {
	return n.Minor&0xff | n.Major<<8 | (n.Minor&^0xff)<<12
}

// attr shows the modification time as all three times: access and change times
// of the source say when it was copied.
func (s *served) attr(id uint64, out *fuse.Attr) {
	n := s.node(id)
	sec, nsec := uint64(n.ModTime.Sec), uint32(n.ModTime.Nsec)
	*out = fuse.Attr{
		Ino:   id,
		Size:  uint64(n.Content.Len),
		Atime: sec, Mtime: sec, Ctime: sec,
		Atimensec: nsec, Mtimensec: nsec, Ctimensec: nsec,
		Mode:    n.Mode,
		Nlink:   uint32(s.links[id-1]),
		Owner:   fuse.Owner{Uid: n.UID, Gid: n.GID},
		Rdev:    device(n),
		Blksize: blockSize,
		Blocks:  uint64(n.Content.Len+511) / 512,
	}
	if n.IsSymlink() {
		out.Size = uint64(len(n.Target))
	}
	if n.IsDir() {
		out.Size, out.Nlink = blockSize, 2
	}
}

// entryTime is how long the kernel may believe an answer: nothing changes.
const entryTime = 1 << 30

func (s *served) entry(n *tree.Node, out *fuse.EntryOut) {
	id := s.ids[n]
	*out = fuse.EntryOut{NodeId: id, Generation: 1, EntryValid: entryTime, AttrValid: entryTime}
	s.attr(id, &out.Attr)
}

func (s *served) Lookup(_ <-chan struct{}, h *fuse.InHeader, name string, out *fuse.EntryOut) fuse.Status {
	child := s.node(h.NodeId).Child(name)
	if child == nil {
		return fuse.ENOENT
	}
	s.entry(child, out)
	return fuse.OK
}

func (s *served) GetAttr(_ <-chan struct{}, in *fuse.GetAttrIn, out *fuse.AttrOut) fuse.Status {
	out.AttrValid = entryTime
	s.attr(in.NodeId, &out.Attr)
	return fuse.OK
}

func (s *served) Readlink(_ <-chan struct{}, h *fuse.InHeader) ([]byte, fuse.Status) {
	return []byte(s.node(h.NodeId).Target), fuse.OK
}

func (s *served) GetXAttr(_ <-chan struct{}, h *fuse.InHeader, name string, dest []byte) (uint32, fuse.Status) {
	for _, x := range s.node(h.NodeId).Xattrs {
		if x.Name == name {
			return fill(dest, x.Value)
		}
	}
	return 0, fuse.ENOATTR
}

func (s *served) ListXAttr(_ <-chan struct{}, h *fuse.InHeader, dest []byte) (uint32, fuse.Status) {
	var list []byte
	for _, x := range s.node(h.NodeId).Xattrs {
		list = append(append(list, x.Name...), 0)
	}
	return fill(dest, list)
}

func fill(dest, value []byte) (uint32, fuse.Status) {
	if len(dest) < len(value) {
		return uint32(len(value)), fuse.ERANGE
	}
	return uint32(copy(dest, value)), fuse.OK
}

func (s *served) Read(_ <-chan struct{}, in *fuse.ReadIn, buf []byte) (fuse.ReadResult, fuse.Status) {
	n, err := s.tree.Open(s.node(in.NodeId)).ReadAt(buf, int64(in.Offset))
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil && err != io.EOF {
		s.failure = err
		return nil, fuse.EIO
	}
	s.done += int64(n)
	if s.progress != nil {
		s.progress(s.done)
	}
	return fuse.ReadResultData(buf[:n]), fuse.OK
}

func (s *served) ReadDir(_ <-chan struct{}, in *fuse.ReadIn, out *fuse.DirEntryList) fuse.Status {
	dir := s.node(in.NodeId)
	names := s.names[dir]
	for i := in.Offset; i < uint64(len(names)); i++ {
		child := dir.Child(names[i])
		if !out.AddDirEntry(fuse.DirEntry{Mode: child.Mode, Name: names[i], Ino: s.ids[child], Off: i + 1}) {
			break
		}
	}
	return fuse.OK
}

func (s *served) ReadDirPlus(_ <-chan struct{}, in *fuse.ReadIn, out *fuse.DirEntryList) fuse.Status {
	dir := s.node(in.NodeId)
	names := s.names[dir]
	for i := in.Offset; i < uint64(len(names)); i++ {
		child := dir.Child(names[i])
		entry := out.AddDirLookupEntry(fuse.DirEntry{Mode: child.Mode, Name: names[i], Ino: s.ids[child], Off: i + 1})
		if entry == nil {
			break
		}
		s.entry(child, entry)
	}
	return fuse.OK
}

func (s *served) StatFs(_ <-chan struct{}, _ *fuse.InHeader, out *fuse.StatfsOut) fuse.Status {
	*out = fuse.StatfsOut{Bsize: blockSize, NameLen: 255}
	return fuse.OK
}
