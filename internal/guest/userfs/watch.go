package userfs

import (
	"fmt"
	"os"
	"path"

	"golang.org/x/sys/unix"

	"github.com/billethq/billet/internal/errs"
)

// networkTypes are file systems whose changes by others the kernel of the guest
// does not see, by their numbers in statfs.
func networkTypes() []int64 {
	return []int64{unix.NFS_SUPER_MAGIC, unix.CIFS_SUPER_MAGIC, unix.SMB_SUPER_MAGIC, unix.SMB2_SUPER_MAGIC, unix.FUSE_SUPER_MAGIC}
}

// Dir is an open directory of a tree that is watched.
type Dir struct {
	f    *os.File
	path string // without links
}

// OpenDir opens the directory at an absolute path, through links.
func (f *FS) OpenDir(name string) (*Dir, error) {
	at, err := f.walk(name, follow)
	if err != nil {
		return nil, told("watch", name, err)
	}
	defer at.close()
	fd, err := openDir(at)
	if err == unix.ENOTDIR {
		return nil, errs.New(errs.Invalid, "path '%s' is not a directory", name)
	}
	if err != nil {
		return nil, told("watch", name, err)
	}
	return &Dir{os.NewFile(uintptr(fd), name), at.full()}, nil
}

// Close closes the directory.
func (d *Dir) Close() { _ = d.f.Close() }

// Network reports whether the directory is on a network file system.
func (d *Dir) Network() (bool, error) {
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(d.f.Fd()), &st); err != nil {
		return false, told("watch", d.path, err)
	}
	for _, t := range networkTypes() {
		if int64(uint32(st.Type)) == t {
			return true, nil
		}
	}
	return false, nil
}

// Watch adds the directory to an inotify instance and returns its number there.
func (d *Dir) Watch(inotify int, mask uint32) (int, error) {
	// By the descriptor: a path could lead elsewhere by now.
	wd, err := unix.InotifyAddWatch(inotify, fmt.Sprintf("/proc/self/fd/%d", d.f.Fd()), mask)
	return wd, told("watch", d.path, err)
}

// Child is an entry of a Dir.
type Child struct {
	Name string
	Dir  bool
}

// Children returns the directory's entries, sorted.
func (d *Dir) Children() ([]Child, error) {
	names, err := readDir(d.f, MaxEntries)
	if err != nil {
		return nil, told("watch", d.path, err)
	}
	all := make([]Child, 0, len(names))
	for _, name := range names {
		var st unix.Stat_t
		if unix.Fstatat(int(d.f.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil {
			all = append(all, Child{name, st.Mode&unix.S_IFMT == unix.S_IFDIR})
		}
	}
	return all, nil
}

// Open opens the directory called name in d, and no link.
func (d *Dir) Open(name string) (*Dir, error) {
	fd, err := openDir(place{dir: int(d.f.Fd()), name: name})
	full := path.Join(d.path, name)
	if err != nil {
		return nil, told("watch", full, err)
	}
	return &Dir{os.NewFile(uintptr(fd), name), full}, nil
}
