// Package dir keeps objects as files in a directory.
//
// An object of key a/b/c is the file a/b/c. A write goes to a temporary file
// of the same file system, is synced, takes its name in one step, and then the
// directory is synced: a crash leaves the whole object or none. Temporary
// files live in a directory whose name no key can have.
//
// Two limits are the file system's: a segment has at most 255 bytes, and a key
// cannot at once be an object and the directory of others.
package dir

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/billethq/billet/internal/blob"
	"github.com/billethq/billet/internal/errs"
)

const (
	// tempDir holds unfinished writes, and marks the directory as an object
	// store; "~" is no character of a key.
	tempDir = "~tmp"
	// staleTemp is the age at which an unfinished write belongs to a dead
	// process: writing MaxObjectBytes takes seconds.
	staleTemp = time.Hour
)

// Bucket is a directory of objects; it implements blob.Bucket. Several
// processes of one host may have the same directory open.
type Bucket struct {
	root *os.Root // every path is resolved below it, symbolic links included
}

var _ blob.Bucket = (*Bucket)(nil)

// ErrNone says that there is no object store where one was looked for, and that
// nothing was made there.
var ErrNone = errors.New("no object store")

// Create makes an object store of the directory, which need not be there, and
// opens it. One that is there already is opened.
func Create(name string) (*Bucket, error) {
	for _, dir := range []string{name, filepath.Join(name, tempDir)} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, fmt.Errorf("make object store %s: %w", name, classify(err))
		}
	}
	return Open(name)
}

// Open opens an object store and sweeps what dead writers left. A directory
// that Create has not made is ErrNone, of kind errs.Unavailable: most often the
// file system that belongs there is not mounted, and an empty store in its
// place would be one that has lost everything.
func Open(name string) (*Bucket, error) {
	root, err := os.OpenRoot(name)
	if missing(err) {
		return nil, none(name, "is not there").WithHint("mount what belongs there, or correct store.dir in the configuration")
	}
	if err != nil {
		return nil, fmt.Errorf("object store %s: %w", name, classify(err))
	}
	b := &Bucket{root: root}
	err = b.sweep()
	if missing(err) {
		_ = root.Close()
		return nil, none(name, "is a directory without "+tempDir).
			WithHint("mount what belongs there, or correct store.dir in the configuration; of a store that was copied without it: mkdir %s", filepath.Join(name, tempDir))
	}
	if err != nil {
		_ = root.Close()
		return nil, fmt.Errorf("object store %s: %w", name, classify(err))
	}
	return b, nil
}

func none(name, why string) *errs.Error {
	return &errs.Error{Kind: errs.Unavailable, Message: name + " " + why, Cause: ErrNone}
}

// sweep removes what dead writers left.
func (b *Bucket) sweep() error {
	entries, err := b.readDir(tempDir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		info, err := e.Info()
		if err == nil && time.Since(info.ModTime()) > staleTemp {
			_ = b.root.Remove(path.Join(tempDir, e.Name()))
		}
	}
	return nil
}

// Get returns the whole object.
func (b *Bucket) Get(ctx context.Context, key string) ([]byte, error) {
	body, err := b.get(ctx, key)
	if err != nil {
		return nil, fmt.Errorf("get object %s: %w", key, classify(err))
	}
	return body, nil
}

func (b *Bucket) get(ctx context.Context, key string) ([]byte, error) {
	if err := admit(ctx, key, nil); err != nil {
		return nil, err
	}
	f, err := b.root.Open(key)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fs.ErrNotExist
	}
	if info.Size() > blob.MaxObjectBytes {
		return nil, errs.New(errs.Invalid, "it has %d bytes, at most %d are allowed", info.Size(), blob.MaxObjectBytes)
	}
	body := make([]byte, info.Size())
	if _, err := io.ReadFull(f, body); err != nil {
		return nil, err
	}
	return body, nil
}

// Stat returns an object's size and time of storing.
func (b *Bucket) Stat(ctx context.Context, key string) (blob.Info, error) {
	if err := admit(ctx, key, nil); err != nil {
		return blob.Info{}, fmt.Errorf("stat object %s: %w", key, classify(err))
	}
	info, err := b.root.Stat(key)
	if err == nil && !info.Mode().IsRegular() {
		err = fs.ErrNotExist
	}
	if err != nil {
		return blob.Info{}, fmt.Errorf("stat object %s: %w", key, classify(err))
	}
	return blob.Info{Key: key, Size: info.Size(), Modified: info.ModTime().UTC()}, nil
}

// Delete removes an object.
func (b *Bucket) Delete(ctx context.Context, key string) error {
	if err := b.remove(ctx, key); err != nil {
		return fmt.Errorf("delete object %s: %w", key, classify(err))
	}
	return nil
}

func (b *Bucket) remove(ctx context.Context, key string) error {
	if err := admit(ctx, key, nil); err != nil {
		return err
	}
	info, err := b.root.Stat(key)
	if missing(err) || err == nil && info.IsDir() {
		return nil
	}
	if err != nil {
		return err
	}
	if err := b.root.Remove(key); err != nil && !missing(err) {
		return err
	}
	return b.syncDir(path.Dir(key))
}

// Close releases the directory.
func (b *Bucket) Close() error { return b.root.Close() }

func admit(ctx context.Context, key string, body []byte) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if err := blob.CheckKey(key); err != nil {
		return err
	}
	return blob.CheckBody(key, body)
}

// missing reports that nothing is there: no such file, or a file where the
// key needs a directory.
func missing(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR)
}

// classify gives an error of the file system its kind; one that has a kind
// keeps it, and the end of a context stays what it is.
func classify(err error) error {
	var known *errs.Error
	switch {
	case err == nil, errors.As(err, &known), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT), errors.Is(err, unix.EFBIG):
		return errs.New(errs.Exhausted, "the object store's disk is full: %v", err).
			WithHint("make room on the file system of the object store")
	case errors.Is(err, fs.ErrExist):
		return errs.Wrap(errs.Conflict, err, "the object exists")
	case errors.Is(err, unix.EISDIR), errors.Is(err, unix.ENAMETOOLONG), errors.Is(err, unix.ENOTEMPTY):
		return errs.Wrap(errs.Invalid, err, "the key is no file's name")
	case missing(err):
		return errs.Wrap(errs.NotFound, err, "no such object")
	case errors.Is(err, fs.ErrPermission):
		return errs.Wrap(errs.Denied, err, "the object store's directory")
	}
	return errs.Wrap(errs.Unavailable, err, "the object store's disk")
}
