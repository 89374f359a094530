package dir

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"

	"golang.org/x/sys/unix"

	"github.com/billethq/billet/internal/errs"
)

// Put stores an object, replacing one of the same key.
func (b *Bucket) Put(ctx context.Context, key string, body []byte) error {
	err := b.store(ctx, key, body, b.root.Rename)
	if errors.Is(err, fs.ErrExist) { // a rename replaces files, never a directory
		err = errs.New(errs.Invalid, "the key is a directory of other objects")
	}
	if err != nil {
		return fmt.Errorf("put object %s: %w", key, classify(err))
	}
	return nil
}

// PutIfAbsent stores an object unless the key exists. The kernel decides
// between concurrent calls: a link never replaces a name.
func (b *Bucket) PutIfAbsent(ctx context.Context, key string, body []byte) error {
	if err := b.store(ctx, key, body, b.root.Link); err != nil {
		return fmt.Errorf("put object %s if absent: %w", key, classify(err))
	}
	return nil
}

// store writes body under a temporary name and lets name give it its own.
func (b *Bucket) store(ctx context.Context, key string, body []byte, name func(from, to string) error) error {
	if err := admit(ctx, key, body); err != nil {
		return err
	}
	parent := path.Dir(key)
	if err := b.makeDirs(parent); err != nil {
		return err
	}
	temp := b.tempName()
	defer b.root.Remove(temp) // of a link, and after an error; a rename took it away
	if err := b.writeTemp(temp, body); err != nil {
		return err
	}
	if err := name(temp, key); err != nil {
		return err
	}
	return b.syncDir(parent)
}

func (b *Bucket) tempName() string {
	return path.Join(tempDir, rand.Text())
}

func (b *Bucket) writeTemp(name string, body []byte) error {
	f, err := b.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(body)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// makeDirs makes the directory and its parents, each synced into its own
// parent: without that a crash could lose a directory with synced objects in it.
func (b *Bucket) makeDirs(dir string) error {
	if dir == "." {
		return nil
	}
	info, err := b.root.Stat(dir)
	if err == nil && !info.IsDir() || errors.Is(err, unix.ENOTDIR) {
		return errs.New(errs.Invalid, "a part of the key is an object")
	}
	if err == nil || !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := b.makeDirs(path.Dir(dir)); err != nil {
		return err
	}
	if err := b.root.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return b.syncDir(path.Dir(dir))
}

func (b *Bucket) syncDir(dir string) error {
	f, err := b.root.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
