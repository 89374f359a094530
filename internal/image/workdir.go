package image

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// workdir is the directory of one build. Its lock file is locked while the
// build's process lives, which is how another knows a leftover.
type workdir struct {
	root  string
	lock  *os.File
	files []*os.File
}

const (
	workPrefix = "build-"
	lockName   = "lock"
)

// lockFile opens and locks a file; ok is false when another holds it and how
// says not to wait.
func lockFile(path string, how int) (f *os.File, ok bool, err error) {
	f, err = os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, false, err
	}
	for {
		err = unix.Flock(int(f.Fd()), how)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err == nil {
		return f, true, nil
	}
	_ = f.Close()
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, false, nil
	}
	return nil, false, fmt.Errorf("lock %s: %w", path, err)
}

// openWork makes a directory under dir. The lock of dir keeps a sweep from
// seeing it before it is locked.
func openWork(dir string) (*workdir, error) {
	all, _, err := lockFile(filepath.Join(dir, lockName), unix.LOCK_EX)
	if err != nil {
		return nil, fmt.Errorf("open work directory: %w", err)
	}
	defer all.Close()
	root, err := os.MkdirTemp(dir, workPrefix)
	if err != nil {
		return nil, fmt.Errorf("open work directory: %w", err)
	}
	lock, _, err := lockFile(filepath.Join(root, lockName), unix.LOCK_EX)
	if err != nil {
		_ = os.RemoveAll(root)
		return nil, fmt.Errorf("open work directory: %w", err)
	}
	return &workdir{root: root, lock: lock}, nil
}

// sweep removes the directories whose builds are gone, and names them.
func sweep(dir string) ([]string, error) {
	all, _, err := lockFile(filepath.Join(dir, lockName), unix.LOCK_EX)
	if err != nil {
		return nil, fmt.Errorf("sweep image directory: %w", err)
	}
	defer all.Close()
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("sweep image directory: %w", err)
	}
	var swept []string
	for _, e := range entries {
		if !e.IsDir() || !strings.HasPrefix(e.Name(), workPrefix) {
			continue
		}
		root := filepath.Join(dir, e.Name())
		lock, free, err := lockFile(filepath.Join(root, lockName), unix.LOCK_EX|unix.LOCK_NB)
		if err != nil {
			return swept, fmt.Errorf("sweep image directory: %w", err)
		}
		if !free {
			continue
		}
		if err := (&workdir{root: root, lock: lock}).close(); err != nil {
			return swept, err
		}
		swept = append(swept, e.Name())
	}
	return swept, nil
}

func (w *workdir) path(name string) string { return filepath.Join(w.root, name) }

// dir makes an empty directory.
func (w *workdir) dir(name string) (string, error) {
	path := w.path(name)
	if err := os.Mkdir(path, 0o755); err != nil {
		return "", fmt.Errorf("make work directory: %w", err)
	}
	return path, nil
}

// file makes a file of a name that begins with name. It is closed by close.
func (w *workdir) file(name string) (*os.File, error) {
	f, err := os.CreateTemp(w.root, name+"-")
	if err != nil {
		return nil, fmt.Errorf("make work file: %w", err)
	}
	w.files = append(w.files, f)
	return f, nil
}

// close removes the directory with everything in it.
func (w *workdir) close() error {
	for _, f := range w.files {
		_ = f.Close()
	}
	err := os.RemoveAll(w.root)
	_ = w.lock.Close()
	if err != nil {
		return fmt.Errorf("remove work directory: %w", err)
	}
	return nil
}
