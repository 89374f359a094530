package dir

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/billethq/billet/internal/blob"
)

// List calls fn for each object whose key begins with prefix, in ascending
// order of keys.
func (b *Bucket) List(ctx context.Context, prefix string, fn func(blob.Info) error) error {
	if err := blob.CheckPrefix(prefix); err != nil {
		return fmt.Errorf("list objects %s: %w", prefix, err)
	}
	w := walk{bucket: b, prefix: prefix, fn: fn}
	dir := "."
	if i := strings.LastIndexByte(prefix, '/'); i >= 0 {
		dir = prefix[:i]
	}
	err := w.dir(ctx, dir)
	if w.stopped { // fn's own error is the caller's, unchanged
		return err
	}
	if err != nil {
		return fmt.Errorf("list objects %s: %w", prefix, classify(err))
	}
	return nil
}

type walk struct {
	bucket  *Bucket
	prefix  string
	fn      func(blob.Info) error
	stopped bool
}

func (w *walk) dir(ctx context.Context, dir string) error {
	entries, err := w.bucket.readDir(dir)
	if missing(err) {
		return nil
	}
	if err != nil {
		return err
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(orderName(a), orderName(b)) })
	for _, e := range entries {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		if err := w.entry(ctx, path.Join(dir, e.Name()), e); err != nil {
			return err
		}
	}
	return nil
}

func (w *walk) entry(ctx context.Context, key string, e fs.DirEntry) error {
	if blob.CheckKey(key) != nil { // the temporary directory, and strangers
		return nil
	}
	if e.IsDir() {
		below := key + "/"
		if strings.HasPrefix(below, w.prefix) || strings.HasPrefix(w.prefix, below) {
			return w.dir(ctx, key)
		}
		return nil
	}
	if !strings.HasPrefix(key, w.prefix) || !e.Type().IsRegular() {
		return nil
	}
	info, err := e.Info()
	if errors.Is(err, fs.ErrNotExist) { // deleted since the directory was read
		return nil
	}
	if err != nil {
		return err
	}
	if err := w.fn(blob.Info{Key: key, Size: info.Size(), Modified: info.ModTime().UTC()}); err != nil {
		w.stopped = true
		return err
	}
	return nil
}

// orderName sorts a directory where its objects' keys sort: "a-b" comes before
// "a/c", because "-" comes before "/".
func orderName(e fs.DirEntry) string {
	if e.IsDir() {
		return e.Name() + "/"
	}
	return e.Name()
}

func (b *Bucket) readDir(dir string) ([]fs.DirEntry, error) {
	f, err := b.root.Open(dir)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return f.ReadDir(-1)
}
