package atomicfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func TestWrite_Replaces(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	for _, c := range []struct {
		content string
		mode    fs.FileMode
	}{{"first", 0o600}, {"second, longer", 0o644}, {"3", 0o600}} {
		if err := Write(path, []byte(c.content), c.mode); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(path)
		if err != nil || string(got) != c.content {
			t.Errorf("got %q, %v, want %q", got, err, c.content)
		}
		if info, err := os.Stat(path); err != nil || info.Mode() != c.mode {
			t.Errorf("got mode %v, %v, want %v", info.Mode(), err, c.mode)
		}
	}
	if entries, err := os.ReadDir(filepath.Dir(path)); err != nil || len(entries) != 1 {
		t.Errorf("beside it lie %v, %v, want nothing", entries, err)
	}
}

// The directory of temporary files sees nothing, not for a moment.
func TestWrite_StaysBesideItsFile(t *testing.T) {
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	fd, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if _, err := unix.InotifyAddWatch(fd, temp, unix.IN_ALL_EVENTS); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(temp, "state")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	events := make([]byte, 4096)
	if _, err := unix.Read(fd, events); err != nil {
		t.Fatalf("the making of a directory is not seen: %v", err)
	}
	if err := Write(filepath.Join(dir, "secret"), []byte("key"), 0o600); err != nil {
		t.Fatal(err)
	}
	if n, err := unix.Read(fd, events); !errors.Is(err, unix.EAGAIN) {
		t.Errorf("%d bytes of events (%v), want none: a temporary file lay there", n, err)
	}
}

func TestWrite_LeavesWhatItCannotReplace(t *testing.T) {
	dir := t.TempDir()
	if err := Write(filepath.Join(dir, "none", "file"), nil, 0o600); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("into a missing directory: got %v", err)
	}
	path := filepath.Join(dir, "directory")
	if err := os.MkdirAll(filepath.Join(path, "full"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := Write(path, []byte("content"), 0o600); err == nil {
		t.Error("a directory was replaced by a file")
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
}
