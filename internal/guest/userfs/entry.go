package userfs

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/billethq/billet/internal/guest/users"
)

// Kind is what an entry is; of a link, what its target is.
type Kind uint8

// The kinds. KindOther is also a link without a target.
const (
	KindOther Kind = iota
	KindFile
	KindDir
)

// Entry describes what is at a path.
type Entry struct {
	Name, Path   string
	Kind         Kind
	Size         int64
	Mode         uint32 // permission bits; of a link, its target's
	Permissions  string // "-rw-r--r--"; of a link, its own
	Owner, Group string // a name, or a number that has none
	Modified     time.Time
	Target       *string // where a link ends; the link itself when nowhere
	Metadata     map[string]string
}

// Stat describes what is at an absolute path; of a link, the link.
func (f *FS) Stat(name string) (Entry, error) {
	at, err := f.walk(name, 0)
	if err != nil {
		return Entry{}, found("stat", name, err)
	}
	defer at.close()
	e, err := f.entry(at, name)
	return e, told("stat", name, err)
}

// entry describes what is at a place that clients know as name.
func (f *FS) entry(at place, name string) (Entry, error) {
	var st unix.Stat_t
	if err := unix.Fstatat(at.dir, at.name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return Entry{}, err
	}
	mode := fileMode(st.Mode)
	e := Entry{
		Name: path.Base(name), Path: name,
		Kind: kindOfMode(mode), Size: st.Size, Mode: uint32(mode.Perm()), Permissions: mode.String(),
		Modified: time.Unix(st.Mtim.Unix()),
	}
	e.Owner, e.Group = f.owners(st.Uid, st.Gid)
	switch mode.Type() {
	case fs.ModeSymlink:
		f.target(&e, at)
	case 0, fs.ModeDir:
		e.Metadata = metadataAt(at)
	}
	return e, nil
}

// target fills in what a link leads to.
func (f *FS) target(e *Entry, link place) {
	e.Target, e.Mode = &e.Path, 0
	at, err := f.walk(link.full(), follow)
	if err != nil {
		return
	}
	defer at.close()
	var st unix.Stat_t
	if unix.Fstatat(at.dir, at.name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
		return
	}
	full, mode := at.full(), fileMode(st.Mode)
	e.Target, e.Kind, e.Mode = &full, kindOfMode(mode), uint32(mode.Perm())
}

func kindOfMode(m fs.FileMode) Kind {
	switch m.Type() {
	case 0:
		return KindFile
	case fs.ModeDir:
		return KindDir
	}
	return KindOther
}

// fileMode is a mode of the kernel's as Go has it.
func fileMode(m uint32) fs.FileMode {
	mode := fs.FileMode(m & 0o777)
	switch m & unix.S_IFMT {
	case unix.S_IFBLK:
		mode |= fs.ModeDevice
	case unix.S_IFCHR:
		mode |= fs.ModeDevice | fs.ModeCharDevice
	case unix.S_IFDIR:
		mode |= fs.ModeDir
	case unix.S_IFIFO:
		mode |= fs.ModeNamedPipe
	case unix.S_IFLNK:
		mode |= fs.ModeSymlink
	case unix.S_IFSOCK:
		mode |= fs.ModeSocket
	}
	for bit, is := range map[uint32]fs.FileMode{unix.S_ISUID: fs.ModeSetuid, unix.S_ISGID: fs.ModeSetgid, unix.S_ISVTX: fs.ModeSticky} {
		if m&bit != 0 {
			mode |= is
		}
	}
	return mode
}

// names are those of the account files, by number.
type names struct{ users, groups map[uint32]string }

func (f *FS) owners(uid, gid uint32) (owner, group string) {
	if f.names == nil {
		f.names = readNames(f.etc)
	}
	return nameOf(f.names.users, uid), nameOf(f.names.groups, gid)
}

func nameOf(names map[uint32]string, id uint32) string {
	if name, ok := names[id]; ok {
		return name
	}
	return strconv.FormatUint(uint64(id), 10)
}

// readNames reads what it can: a number is an answer too.
func readNames(etc string) *names {
	n := &names{users: make(map[uint32]string), groups: make(map[uint32]string)}
	if r, err := os.Open(filepath.Join(etc, "passwd")); err == nil {
		defer r.Close()
		accounts, _ := users.ParsePasswd(r)
		for _, a := range accounts {
			if _, known := n.users[a.UID]; !known { // the first one counts
				n.users[a.UID] = a.Name
			}
		}
	}
	if r, err := os.Open(filepath.Join(etc, "group")); err == nil {
		defer r.Close()
		groups, _ := users.ParseGroup(r)
		for _, g := range groups {
			if _, known := n.groups[g.GID]; !known {
				n.groups[g.GID] = g.Name
			}
		}
	}
	return n
}
