package userfs

import (
	"cmp"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	// maxLinks bounds the links followed in one path, as the kernel does.
	maxLinks = 40
	// maxLink bounds a link's text, at the kernel's limit.
	maxLink = maxPath
	// dirMode is the mode of directories that are made on the way.
	dirMode = 0o755

	openPath = unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC
)

// what a walk does beside finding the directory of its path's last element.
type walkFlag uint8

const (
	follow  walkFlag = 1 << iota // the last element too, should it be a link
	parents                      // makes directories that are missing
)

// place is a name in a directory that was found by a walk. The name may be
// missing there, and is "." for the directory itself.
type place struct {
	dir  int    // descriptor, the holder's to close
	path string // of the directory, without links
	name string
}

func (p place) close() { _ = unix.Close(p.dir) }

// full is the place's path, in which no element but the last can be a link.
func (p place) full() string { return path.Join(p.path, p.name) }

// walk finds the place of an absolute path.
func (f *FS) walk(name string, flags walkFlag) (place, error) {
	root, err := unix.Open("/", openPath|unix.O_DIRECTORY, 0)
	if err != nil {
		return place{}, err
	}
	w := walker{fs: f, at: place{dir: root, path: "/", name: "."}, rest: name, flags: flags}
	if err := w.run(); err != nil {
		w.at.close()
		return place{}, err
	}
	return w.at, nil
}

type walker struct {
	fs    *FS
	at    place
	rest  string // what is left of the path
	flags walkFlag
	links int
}

func (w *walker) run() error {
	for {
		var elem string
		elem, w.rest, _ = strings.Cut(strings.TrimLeft(w.rest, "/"), "/")
		w.rest = strings.TrimLeft(w.rest, "/")
		switch elem {
		case "":
			return nil
		case ".":
			continue
		case "..":
			if err := w.step(elem, path.Dir(w.at.path)); err != nil {
				return err
			}
			continue
		}
		if w.rest != "" {
			if err := w.into(elem); err != nil {
				return err
			}
			continue
		}
		done, err := w.last(elem)
		if err != nil || done {
			return err
		}
	}
}

// into goes on into the directory, or the link to one, called elem.
func (w *walker) into(elem string) error {
	err := w.step(elem, path.Join(w.at.path, elem))
	if err == unix.ENOENT && w.flags&parents != 0 {
		if err = unix.Mkdirat(w.at.dir, elem, dirMode); err == nil || err == unix.EEXIST {
			err = w.step(elem, path.Join(w.at.path, elem))
		}
	}
	if err != unix.ENOTDIR && err != unix.ELOOP {
		return err
	}
	text, linkErr := readlink(w.at.dir, elem)
	if linkErr != nil {
		return err // a file, and no link
	}
	return w.jump(elem, text)
}

// step makes the directory called elem the one that the walk is at.
func (w *walker) step(elem, name string) error {
	if err := w.fs.refuse(w.at.dir, elem); err != nil {
		return err
	}
	fd, err := unix.Openat(w.at.dir, elem, openPath|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	w.at.close()
	w.at = place{dir: fd, path: name, name: "."}
	return nil
}

// last takes the path's last element, and reports whether the walk is over.
func (w *walker) last(elem string) (bool, error) {
	if err := w.fs.refuse(w.at.dir, elem); err != nil {
		return false, err
	}
	if w.flags&follow != 0 {
		text, err := readlink(w.at.dir, elem)
		switch err {
		case nil:
			return false, w.jump(elem, text)
		case unix.EINVAL, unix.ENOENT: // no link; nothing there
		default:
			return false, err
		}
	}
	w.at.name = elem
	return true, nil
}

// jump goes on with the text of the link called elem.
func (w *walker) jump(elem, text string) error {
	if w.links++; w.links > maxLinks {
		return unix.ELOOP
	}
	if planted, err := w.fs.planted(w.at.dir, elem); err != nil || planted {
		return cmp.Or(err, error(unix.EACCES))
	}
	if strings.HasPrefix(text, "/") {
		root, err := unix.Open("/", openPath|unix.O_DIRECTORY, 0)
		if err != nil {
			return err
		}
		w.at.close()
		w.at = place{dir: root, path: "/", name: "."}
	}
	w.rest = text + "/" + w.rest
	return nil
}

// planted reports whether a link lies in a directory like /tmp and is somebody
// else's, who may mean to lead the user astray. Kernels refuse those too
// (protected_symlinks), where they follow links themselves.
func (f *FS) planted(dir int, elem string) (bool, error) {
	var d, link unix.Stat_t
	if err := unix.Fstat(dir, &d); err != nil || d.Mode&unix.S_ISVTX == 0 || d.Mode&unix.S_IWOTH == 0 {
		return false, err
	}
	if err := unix.Fstatat(dir, elem, &link, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return false, err
	}
	return link.Uid != uint32(f.uid()) && link.Uid != d.Uid, nil
}

// refuse keeps a user out of the agent's own entries of procfs, some of which
// the kernel shows to every thread of their process, whoever it is.
func (f *FS) refuse(dir int, elem string) error {
	if !f.switched || elem[0] < '0' || elem[0] > '9' {
		return nil
	}
	tid, err := strconv.Atoi(elem)
	if err != nil {
		return nil
	}
	var st unix.Statfs_t
	// O_PATH descriptors can be asked since Linux 3.12.
	if err := unix.Fstatfs(dir, &st); err != nil {
		return err
	}
	if st.Type == unix.PROC_SUPER_MAGIC && unix.Tgkill(unix.Getpid(), tid, 0) != unix.ESRCH {
		return unix.EACCES
	}
	return nil
}

// readlink returns a link's text, EINVAL of what is no link.
func readlink(dir int, name string) (string, error) {
	buf := make([]byte, maxLink)
	n, err := unix.Readlinkat(dir, name, buf)
	if err != nil {
		return "", err
	}
	if n == 0 || n == len(buf) {
		return "", unix.ENAMETOOLONG
	}
	return string(buf[:n]), nil
}
