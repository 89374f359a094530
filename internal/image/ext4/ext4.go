// Package ext4 writes a tree into a deterministic ext4 image file.
//
// The same tree gives the same bytes, whenever and wherever it is written with
// one version of e2fsprogs: mke2fs reads the tree through a read-only FUSE
// mount that lists directories in one order and shows one set of times, the
// identifiers and the clock are fixed, and a debugfs script sets what mke2fs
// does not take from its source. Blocks of base images are shared by content,
// so a difference that means nothing would cost every node a download.
package ext4

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/image/tree"
	"github.com/billethq/billet/internal/model"
)

// Geometry of an image.
const (
	blockSize = 4096
	inodeSize = 256
	// bytesPerInode is mke2fs's own default for a disk of this size.
	bytesPerInode = 16 << 10
	// journalMiB is fixed, so that the journal is as large on a grown disk. It
	// is written round and round: a larger one makes each flush touch more
	// distinct blocks.
	journalMiB = 32
	// growthBytes is the size up to which group descriptors are reserved. The
	// kernel grows the file system further, by meta-groups.
	growthBytes = 1 << 40
	// MinBytes leaves room for the journal and the metadata.
	MinBytes = 128 << 20
	// MaxBytes bounds the image file's sparse size.
	MaxBytes = 1 << 40
)

// Image says what to write and where.
type Image struct {
	Path string // of the image file; created or truncated
	Size int64  // of the device, a multiple of 1 MiB between MinBytes and MaxBytes
	Dir  string // an empty directory for the writer's own files, the caller's to remove
}

// Write writes t as an ext4 file system into im.Path, sparse: what is zero is
// a hole. It needs root, FUSE and e2fsprogs (errs.Unsupported, with a hint). A
// tree that does not fit is errs.Exhausted. progress gets the bytes of file
// contents read so far; it is called from several goroutines, never at once.
//
// When the process dies meanwhile, so do mke2fs and the mount, which lives in
// a mount namespace of one thread.
func Write(ctx context.Context, t *tree.Tree, im Image, progress func(done int64)) error {
	tools, err := findTools()
	if err != nil {
		return err
	}
	// Every file system has its own; one from the source would be numbered
	// otherwise than all else.
	t.Remove("lost+found")
	if err := im.check(t); err != nil {
		return err
	}
	if err := im.create(); err != nil {
		return err
	}
	files := newServed(t, progress)
	err = onPrivateThread(func() error {
		return files.mounted(im.mountPoint(), func() error { return tools.format(ctx, im) })
	})
	if err != nil {
		return err
	}
	if err := files.err(); err != nil {
		return fmt.Errorf("read the tree: %w", err)
	}
	return tools.amend(ctx, im, t)
}

func (im Image) mountPoint() string { return filepath.Join(im.Dir, "tree") }
func (im Image) config() string     { return filepath.Join(im.Dir, "mke2fs.conf") }
func (im Image) script() string     { return filepath.Join(im.Dir, "debugfs.script") }

// CheckSize refuses a size that no image can have.
func CheckSize(size int64) error {
	if size < MinBytes || size > MaxBytes || size%(1<<20) != 0 {
		what := model.Size(size).String()
		if size%(1<<20) != 0 {
			what = fmt.Sprintf("%d bytes", size)
		}
		return errs.New(errs.Invalid, "a disk of %s is impossible", what).
			WithHint("choose whole MiB between %s and %s", model.Size(MinBytes), model.Size(MaxBytes))
	}
	return nil
}

// Limits of one inode that mke2fs would overflow without a word.
const (
	maxLinks   = 65000
	maxSubdirs = 64000
)

func (im Image) check(t *tree.Tree) error {
	if err := CheckSize(im.Size); err != nil {
		return err
	}
	use := t.Usage(blockSize)
	// The metadata is at most 1/16 of the device beside the journal: inode
	// tables take 256 bytes in 16 KiB, the rest is far less.
	room := im.Size - im.Size/16 - journalMiB<<20
	if use.Bytes > room || use.Inodes > im.Size/bytesPerInode-16 {
		return tooSmall(im, fmt.Sprintf("%s in %d files", model.Size(use.Bytes), use.Inodes))
	}
	for n, links := range t.Inodes() {
		if links > maxLinks {
			return errs.New(errs.Invalid, "a file has %d hard links, at most %d are possible", links, maxLinks)
		}
		if subdirs(n) > maxSubdirs {
			return errs.New(errs.Invalid, "a directory has more than %d subdirectories", maxSubdirs)
		}
	}
	return nil
}

func subdirs(n *tree.Node) int {
	count := 0
	for c := range n.Children() {
		if c.IsDir() {
			count++
		}
	}
	return count
}

func tooSmall(im Image, what string) error {
	return errs.New(errs.Exhausted, "%s do not fit a disk of %s", what, model.Size(im.Size)).
		WithHint("choose a larger disk, such as --disk %dGiB", max(2*im.Size>>30, 1))
}

// config defines the types that mke2fs looks for, as what the command line says
// anyway: a type without a line would be reported as missing.
const config = `[fs_types]
	ext4 = {
		blocksize = 4096
	}
	default = {
		blocksize = 4096
	}
`

// create makes the sparse image file, the mount point and a configuration
// without defaults, so that the host's /etc/mke2fs.conf changes nothing.
func (im Image) create() error {
	f, err := os.OpenFile(im.Path, os.O_CREATE|os.O_TRUNC|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("create image file: %w", err)
	}
	err = f.Truncate(im.Size)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return fmt.Errorf("size image file: %w", err)
	}
	if err := os.WriteFile(im.config(), []byte(config), 0o600); err != nil {
		return fmt.Errorf("write mke2fs configuration: %w", err)
	}
	if err := os.Mkdir(im.mountPoint(), 0o700); err != nil {
		return fmt.Errorf("make mount point: %w", err)
	}
	return nil
}
