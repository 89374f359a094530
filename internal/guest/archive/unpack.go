package archive

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"
)

const (
	// maxName bounds a member's name, at the kernel's limit for a path.
	maxName = 4096
	// maxDirs bounds the directories whose modes and times wait for the end.
	maxDirs = 1 << 20
	// sticky is the mode bit of directories like /tmp, as tar writes it.
	sticky = 0o1000
)

var (
	errName      = errors.New("the name leads out of the destination")
	errTruncated = errors.New("the archive is cut off")
	errSeveral   = errors.New("several things cannot become one that does not exist")
)

// unpacker extracts one archive below a root.
type unpacker struct {
	root *os.Root
	// rename is the name in root that the archive's single top member gets; ""
	// keeps all names.
	rename string
	top    string // the top member, once seen, when rename is set
	made   []made // directories, in the order in which they were made
}

// made is a directory that was made and gets its mode and time at the end,
// when nothing is written into it any more.
type made struct {
	name string
	mode fs.FileMode
	time time.Time
}

// Unpack extracts the archive in r to dest, as cp -r would copy: into dest if
// that is a directory, else as dest itself, which then takes an archive with a
// single top member. Owners are the caller's, set-id bits are dropped.
//
// No member is written outside dest: not by an absolute name, not by "..", and
// not through a link, be it the archive's own or one that was there. An archive
// without its end is an error, since it cannot be told from one that was cut
// off; what came before is left.
func Unpack(r io.Reader, dest string) error {
	u := &unpacker{}
	dir := dest
	if info, err := os.Stat(dest); err != nil || !info.IsDir() {
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if dest == "" || strings.HasSuffix(dest, "/") {
			return &fs.PathError{Op: "unpack", Path: dest, Err: errors.New("no such directory")}
		}
		dir, u.rename = filepath.Dir(dest), filepath.Base(dest)
		if u.rename == "." || u.rename == ".." {
			return &fs.PathError{Op: "unpack", Path: dest, Err: errors.New("no such directory")}
		}
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	u.root = root
	return u.all(r)
}

func (u *unpacker) all(r io.Reader) error {
	end := &endReader{r: r}
	tr := tar.NewReader(end)
	for {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			if end.reached {
				return errTruncated
			}
			return u.finish()
		}
		if err != nil {
			return err
		}
		if err := u.member(h, tr); err != nil {
			return fmt.Errorf("unpack %q: %w", h.Name, err)
		}
	}
}

// endReader notes that its reader has ended. The tar reader takes the end of
// its input for the end of the archive, and does not read beyond the latter.
type endReader struct {
	r       io.Reader
	reached bool
}

func (e *endReader) Read(p []byte) (int, error) {
	n, err := e.r.Read(p)
	e.reached = e.reached || errors.Is(err, io.EOF)
	return n, err
}

func (u *unpacker) member(h *tar.Header, body io.Reader) error {
	if h.Typeflag == tar.TypeXGlobalHeader {
		return nil // git archive's comment
	}
	name, err := u.place(h.Name)
	if err != nil {
		return err
	}
	mode := fs.FileMode(h.Mode).Perm()
	if h.Typeflag == tar.TypeDir {
		if h.Mode&sticky != 0 {
			mode |= fs.ModeSticky
		}
		return u.dir(name, mode, h.ModTime)
	}
	if name == "." {
		return errors.New("not a directory")
	}
	if err := u.parents(name); err != nil {
		return err
	}
	if err := u.clear(name); err != nil {
		return err
	}
	switch h.Typeflag {
	case tar.TypeReg:
		return u.file(name, mode, h.ModTime, body)
	case tar.TypeSymlink:
		// Where it points is data; nothing is written through it.
		return u.root.Symlink(h.Linkname, name)
	case tar.TypeLink:
		old, err := u.place(h.Linkname)
		if err != nil {
			return fmt.Errorf("link to %q: %w", h.Linkname, err)
		}
		return u.root.Link(old, name)
	default:
		return errors.New("not a file, directory or link")
	}
}

// place is where a member called name goes, in root.
func (u *unpacker) place(name string) (string, error) {
	top, rest, err := cleanName(name)
	if err != nil {
		return "", err
	}
	if u.rename == "" {
		return path.Join(top, rest), nil
	}
	if u.top == "" {
		u.top = top
	}
	if top != u.top {
		return "", errSeveral
	}
	return path.Join(u.rename, rest), nil
}

// dir makes a directory, or takes the one that is there as it is.
func (u *unpacker) dir(name string, mode fs.FileMode, t time.Time) error {
	if name == "." {
		return nil
	}
	if err := u.parents(name); err != nil {
		return err
	}
	err := u.root.Mkdir(name, 0o700)
	if errors.Is(err, fs.ErrExist) {
		info, statErr := u.root.Stat(name) // through a link that stays inside, as cp
		if statErr != nil {
			return statErr
		}
		if !info.IsDir() {
			return errors.New("a file of this name is there")
		}
		return nil
	}
	if err != nil {
		return err
	}
	if len(u.made) == maxDirs {
		return fmt.Errorf("more than %d directories", maxDirs)
	}
	u.made = append(u.made, made{name, mode, t})
	return nil
}

// parents makes what an archive leaves out. In one that Pack made, nothing.
func (u *unpacker) parents(name string) error {
	if dir := path.Dir(name); dir != "." {
		return u.root.MkdirAll(dir, 0o755)
	}
	return nil
}

// clear removes what is at name, unless it is a directory: a file is never
// written through a link, nor into one that a running program has open.
func (u *unpacker) clear(name string) error {
	info, err := u.root.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.IsDir() {
		return errors.New("a directory of this name is there")
	}
	return u.root.Remove(name)
}

func (u *unpacker) file(name string, mode fs.FileMode, t time.Time, body io.Reader) error {
	f, err := u.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, body)
	if err == nil {
		err = f.Chmod(mode)
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return err
	}
	return u.root.Chtimes(name, t, t)
}

// finish gives the directories their modes and times, the innermost first.
func (u *unpacker) finish() error {
	if u.rename != "" && u.top == "" {
		return errors.New("the archive is empty")
	}
	for i := len(u.made) - 1; i >= 0; i-- {
		d := u.made[i]
		if err := u.root.Chmod(d.name, d.mode); err != nil {
			return err
		}
		if err := u.root.Chtimes(d.name, d.time, d.time); err != nil {
			return err
		}
	}
	return nil
}
