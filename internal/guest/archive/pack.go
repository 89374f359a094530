// Package archive copies trees between machines as tar streams, with the
// meaning of cp -r.
//
// It is the transport of `billet ws cp` at both ends, so that a copy works in
// guests whose image has no tar, and so that an archive made by a hostile guest
// is unpacked by code that expects one.
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

	"golang.org/x/sys/unix"
)

// Skipped is the error of Pack when that many things were left out of an
// archive that is otherwise complete.
type Skipped int

func (n Skipped) Error() string { return fmt.Sprintf("%d files were not copied", int(n)) }

// packer writes one archive.
type packer struct {
	tw      *tar.Writer
	warn    func(error)
	skipped Skipped
}

// Pack writes paths to w, each with what is below it, under its last element:
// /a/b becomes the member b. A path that ends in "/." stands for what is in the
// directory. Modes, symbolic links and times are kept, owners are not. What
// cannot be read, and what is no file, directory or link, is left out and told
// to warn; Pack then ends with Skipped, after a complete archive.
func Pack(w io.Writer, paths []string, warn func(error)) error {
	p := &packer{tw: tar.NewWriter(w), warn: warn}
	for _, src := range paths {
		name, err := topName(src)
		if err != nil {
			return err
		}
		if err := p.tree(src, name); err != nil {
			return err
		}
	}
	if err := p.tw.Close(); err != nil {
		return err
	}
	if p.skipped > 0 {
		return p.skipped
	}
	return nil
}

// topName is the member name of an argument.
func topName(src string) (string, error) {
	if src == "" {
		return "", errors.New("an empty path")
	}
	if src == "." || strings.HasSuffix(src, "/.") {
		return ".", nil
	}
	abs, err := filepath.Abs(src)
	if err != nil {
		return "", err
	}
	if abs == "/" {
		return ".", nil
	}
	return filepath.Base(abs), nil
}

// tree adds src and what is below it as name. Its error is one of writing.
func (p *packer) tree(src, name string) error {
	return filepath.WalkDir(src, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			p.skip(err)
			return nil
		}
		rel, err := filepath.Rel(src, file)
		if err != nil {
			return err
		}
		return p.add(file, joinName(name, filepath.ToSlash(rel)), d)
	})
}

// joinName joins a top name and a path below it, keeping a top of ".".
func joinName(top, rel string) string {
	if rel == "." {
		return top
	}
	return top + "/" + rel
}

func (p *packer) skip(err error) {
	p.skipped++
	p.warn(err)
}

func (p *packer) add(file, name string, d fs.DirEntry) error {
	info, err := d.Info()
	if err != nil {
		p.skip(err)
		return nil
	}
	h := &tar.Header{Name: name, Mode: int64(info.Mode().Perm()), ModTime: info.ModTime(), Format: tar.FormatPAX}
	if info.Mode()&fs.ModeSticky != 0 {
		h.Mode |= sticky
	}
	switch info.Mode().Type() {
	case fs.ModeDir:
		h.Typeflag, h.Name = tar.TypeDir, name+"/"
		return p.tw.WriteHeader(h)
	case fs.ModeSymlink:
		h.Typeflag = tar.TypeSymlink
		if h.Linkname, err = os.Readlink(file); err != nil {
			p.skip(err)
			return nil
		}
		return p.tw.WriteHeader(h)
	case 0:
		return p.file(file, h)
	default:
		p.skip(&fs.PathError{Op: "pack", Path: file, Err: errors.New("not a file, directory or link")})
		return nil
	}
}

// file adds a regular file. Its size is that at the time of opening: a file
// that grows is cut there, and one that shrinks ends the archive, which could
// not be told from a whole one otherwise.
func (p *packer) file(file string, h *tar.Header) error {
	// Without following or blocking, since the walk saw a regular file and
	// something else may be there by now.
	f, err := os.OpenFile(file, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		p.skip(err)
		return nil
	}
	defer f.Close()
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = &fs.PathError{Op: "pack", Path: file, Err: errors.New("changed while it was read")}
	}
	if err != nil {
		p.skip(err)
		return nil
	}
	h.Typeflag, h.Size = tar.TypeReg, info.Size()
	if err := p.tw.WriteHeader(h); err != nil {
		return err
	}
	if _, err := io.CopyN(p.tw, f, h.Size); err != nil {
		if errors.Is(err, io.EOF) {
			err = errors.New("the file shrank while it was read")
		}
		return fmt.Errorf("pack %s: %w", file, err)
	}
	return nil
}

// cleanName splits a member's name into its first element, which may be ".",
// and the path below that, "." for the top itself.
func cleanName(name string) (top, rest string, err error) {
	if name == "" || len(name) > maxName || strings.HasPrefix(name, "/") || strings.Contains(name, "\x00") {
		return "", "", errName
	}
	top, rest, _ = strings.Cut(strings.TrimRight(name, "/"), "/")
	for _, e := range append(strings.Split(rest, "/"), top) {
		if e == ".." {
			return "", "", errName
		}
	}
	return top, path.Clean(rest), nil
}
