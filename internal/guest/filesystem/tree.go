package filesystem

import (
	"encoding/binary"
	"errors"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/billethq/billet/internal/errs"
	pb "github.com/billethq/billet/internal/guest/filesystempb"
	"github.com/billethq/billet/internal/guest/userfs"
)

const (
	// maxDirs bounds the directories of one watch. The kernel keeps about a
	// kilobyte for each, and allows a user some tens of thousands in all.
	maxDirs = 8192
	// readSize is what is read of the kernel's queue at once.
	readSize = 64 << 10
	// watched is what happens to a directory and what is in it.
	watched = unix.IN_CREATE | unix.IN_MOVED_TO | unix.IN_MOVED_FROM | unix.IN_MODIFY | unix.IN_ATTRIB |
		unix.IN_DELETE | unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_ONLYDIR
)

// errOverflow ends a watch: whoever waits for each change has to look anew.
var errOverflow = errors.New("more happened than was taken, and some of it is lost")

// tree is a watched directory, with those below it if recursive. It belongs to
// one goroutine, that of its FS; stop may be called by others.
type tree struct {
	fs        *userfs.FS
	root      string // as the client names it
	recursive bool
	entries   bool // events describe what they are about
	inotify   *os.File
	dirs      map[int32]string // by watch number, relative to root; "" is root
	numbers   map[string]int32
}

// request is what WatchDir and CreateWatcher have in common.
type request interface {
	GetPath() string
	GetRecursive() bool
	GetIncludeEntry() bool
	GetAllowNetworkMounts() bool
}

// newTree begins to watch: everything that happens later is told.
func newTree(fs *userfs.FS, root string, req request) (*tree, error) {
	dir, err := fs.OpenDir(root)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	if network, err := dir.Network(); err != nil {
		return nil, err
	} else if network && !req.GetAllowNetworkMounts() {
		return nil, errs.New(errs.Invalid, "path '%s' is on a network file system, whose changes may not be seen", root)
	}
	fd, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	if err != nil {
		return nil, errs.Wrap(errs.Exhausted, err, "watch '%s'", root)
	}
	t := &tree{
		fs: fs, root: root, recursive: req.GetRecursive(), entries: req.GetIncludeEntry(),
		inotify: os.NewFile(uintptr(fd), "inotify"),
		dirs:    make(map[int32]string), numbers: make(map[string]int32),
	}
	if err := t.add(dir, "", 0, func(string) {}); err != nil {
		t.stop()
		return nil, err
	}
	return t, nil
}

// stop ends the watch, and a next that is under way.
func (t *tree) stop() { _ = t.inotify.Close() }

// add watches a directory, and in a recursive tree those below. It calls found
// with what it finds there.
func (t *tree) add(dir *userfs.Dir, rel string, level int, found func(rel string)) error {
	if len(t.dirs) >= maxDirs {
		return errs.New(errs.Exhausted, "watch '%s': more than %d directories", t.root, maxDirs)
	}
	var wd int
	conn, err := t.inotify.SyscallConn() // Fd would make reads block for good
	if err != nil {
		return err
	}
	var addErr error
	if err := conn.Control(func(fd uintptr) { wd, addErr = dir.Watch(int(fd), watched) }); err != nil || addErr != nil {
		return errors.Join(err, addErr)
	}
	t.dirs[int32(wd)], t.numbers[rel] = rel, int32(wd)
	if !t.recursive {
		return nil
	}
	children, err := dir.Children()
	if err != nil {
		return err
	}
	for _, c := range children {
		name := path.Join(rel, c.Name)
		found(name)
		if c.Dir {
			if err := t.below(dir, c.Name, name, level+1, found); err != nil {
				return err
			}
		}
	}
	return nil
}

// below adds a directory in a watched one. One that the user may not read, or
// that is gone by now, is left out.
func (t *tree) below(parent *userfs.Dir, name, rel string, level int, found func(rel string)) error {
	if level > userfs.MaxDepth {
		return errs.New(errs.Exhausted, "watch '%s': more than %d levels of directories", t.root, userfs.MaxDepth)
	}
	dir, err := parent.Open(name)
	if err != nil {
		return nil
	}
	defer dir.Close()
	err = t.add(dir, rel, level, found)
	if errs.Is(err, errs.NotFound) || errs.Is(err, errs.Denied) {
		return nil
	}
	return err
}

// next waits for events.
func (t *tree) next() ([]*pb.FilesystemEvent, error) {
	buf := make([]byte, readSize)
	n, err := t.inotify.Read(buf)
	if err != nil {
		return nil, err
	}
	var all []*pb.FilesystemEvent
	for buf = buf[:n]; len(buf) >= unix.SizeofInotifyEvent; {
		wd := int32(binary.NativeEndian.Uint32(buf))
		mask := binary.NativeEndian.Uint32(buf[4:])
		length := int(binary.NativeEndian.Uint32(buf[12:]))
		name := strings.TrimRight(string(buf[unix.SizeofInotifyEvent:][:length]), "\x00")
		buf = buf[unix.SizeofInotifyEvent+length:]
		if mask&unix.IN_Q_OVERFLOW != 0 {
			return nil, errs.Wrap(errs.Stale, errOverflow, "watch '%s'", t.root)
		}
		events, err := t.event(wd, mask, name)
		if err != nil {
			return nil, err
		}
		all = append(all, events...)
	}
	return all, nil
}

// event is what one event of the kernel's means to a client.
func (t *tree) event(wd int32, mask uint32, name string) ([]*pb.FilesystemEvent, error) {
	dir, known := t.dirs[wd]
	if !known {
		return nil, nil // of a directory that has left the tree
	}
	if mask&unix.IN_IGNORED != 0 {
		t.forget(wd, dir)
		return nil, nil
	}
	rel := path.Join(dir, name)
	typ := eventType(mask)
	if typ == pb.EventType_EVENT_TYPE_UNSPECIFIED || name == "" && dir != "" {
		return nil, nil // of a directory below root, whose parent told it too
	}
	events := []*pb.FilesystemEvent{t.describe(rel, typ)}
	if mask&unix.IN_ISDIR == 0 || !t.recursive || name == "" {
		return events, nil
	}
	if mask&unix.IN_MOVED_FROM != 0 {
		return events, t.leave(rel)
	}
	if mask&(unix.IN_CREATE|unix.IN_MOVED_TO) != 0 {
		more, err := t.enter(rel)
		return append(events, more...), err
	}
	return events, nil
}

// enter watches a directory that has come into the tree, and tells what was
// made in it before it was watched. What is made meanwhile may be told twice.
func (t *tree) enter(rel string) ([]*pb.FilesystemEvent, error) {
	parent, err := t.fs.OpenDir(path.Join(t.root, path.Dir(rel)))
	if err != nil {
		return nil, nil // gone, which is told by events to come
	}
	defer parent.Close()
	var all []*pb.FilesystemEvent
	err = t.below(parent, path.Base(rel), rel, strings.Count(rel, "/")+1, func(rel string) {
		all = append(all, t.describe(rel, pb.EventType_EVENT_TYPE_CREATE))
	})
	return all, err
}

// leave stops to watch a directory that has left the tree, and those below.
func (t *tree) leave(rel string) error {
	conn, err := t.inotify.SyscallConn()
	if err != nil {
		return err
	}
	for name, wd := range t.numbers {
		if name == rel || strings.HasPrefix(name, rel+"/") {
			t.forget(wd, name)
			_ = conn.Control(func(fd uintptr) { _, _ = unix.InotifyRmWatch(int(fd), uint32(wd)) }) // gone, or closed
		}
	}
	return nil
}

func (t *tree) forget(wd int32, rel string) {
	delete(t.dirs, wd)
	if t.numbers[rel] == wd {
		delete(t.numbers, rel)
	}
}

func (t *tree) describe(rel string, typ pb.EventType) *pb.FilesystemEvent {
	if rel == "" {
		rel = "." // the watched directory itself
	}
	e := &pb.FilesystemEvent{Name: rel, Type: typ}
	if t.entries && typ != pb.EventType_EVENT_TYPE_REMOVE && typ != pb.EventType_EVENT_TYPE_RENAME {
		if found, err := t.fs.Stat(path.Join(t.root, rel)); err == nil {
			e.Entry = info(found)
		}
	}
	return e
}

func eventType(mask uint32) pb.EventType {
	switch {
	case mask&(unix.IN_CREATE|unix.IN_MOVED_TO) != 0:
		return pb.EventType_EVENT_TYPE_CREATE
	case mask&(unix.IN_MOVED_FROM|unix.IN_MOVE_SELF) != 0:
		return pb.EventType_EVENT_TYPE_RENAME
	case mask&(unix.IN_DELETE|unix.IN_DELETE_SELF) != 0:
		return pb.EventType_EVENT_TYPE_REMOVE
	case mask&unix.IN_ATTRIB != 0:
		return pb.EventType_EVENT_TYPE_CHMOD
	case mask&unix.IN_MODIFY != 0:
		return pb.EventType_EVENT_TYPE_WRITE
	}
	return pb.EventType_EVENT_TYPE_UNSPECIFIED
}
