package userfs_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/guest/userfs"
	"github.com/billethq/billet/internal/guest/users"
	"github.com/billethq/billet/internal/testenv"
)

const (
	uid    = 61234
	member = 61299 // a group that the user is in
)

// world is a directory that anybody may write to, with accounts beside it.
type world struct {
	t    *testing.T
	etc  string
	dir  string
	user users.User
}

func newWorld(t *testing.T) *world {
	t.Helper()
	testenv.NeedRoot(t)
	top := testenv.OpenDir(t)
	w := &world{t: t, etc: filepath.Join(top, "etc"), dir: filepath.Join(top, "dir")}
	w.must(os.Mkdir(w.etc, 0o755))
	w.must(os.Mkdir(w.dir, 0o777))
	w.must(os.Chmod(w.dir, 0o777))
	passwd := fmt.Sprintf("root:x:0:0::/root:/bin/sh\nuser:x:%d:%d::%s:/bin/sh\nother:x:61235:61235::/:/bin/sh\n", uid, uid, w.dir)
	w.must(os.WriteFile(filepath.Join(w.etc, "passwd"), []byte(passwd), 0o644))
	w.must(os.WriteFile(filepath.Join(w.etc, "group"), fmt.Appendf(nil, "root:x:0:\nuser:x:%d:\nmembers:x:%d:user\n", uid, member), 0o644))
	u, err := userfs.Account(w.etc, "user")
	w.must(err)
	w.user = u
	return w
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) path(name string) string { return filepath.Join(w.dir, name) }

// put makes a file of root's.
func (w *world) put(name, text string, mode os.FileMode) string {
	w.t.Helper()
	w.must(os.MkdirAll(filepath.Dir(w.path(name)), 0o755))
	w.must(os.WriteFile(w.path(name), []byte(text), mode))
	w.must(os.Chmod(w.path(name), mode))
	return w.path(name)
}

func (w *world) read(name string) string {
	w.t.Helper()
	b, err := os.ReadFile(w.path(name))
	w.must(err)
	return string(b)
}

// do acts as the user.
func (w *world) do(f func(*userfs.FS) error) error { return userfs.Do(w.etc, w.user, f) }

// cat reads a file as the user.
func (w *world) cat(path string) (text string, err error) {
	err = w.do(func(fs *userfs.FS) error {
		f, _, err := fs.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		b, err := io.ReadAll(f)
		text = string(b)
		return err
	})
	return text, err
}

// write writes a file as the user.
func (w *world) write(path, text string) error {
	return w.do(func(fs *userfs.FS) error {
		_, err := fs.Write(path, nil, strings.NewReader(text))
		return err
	})
}

func owner(t *testing.T, path string) uint32 {
	t.Helper()
	info, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Sys().(*syscall.Stat_t).Uid
}

func TestDo_HasTheUsersRightsAndNoOthers(t *testing.T) {
	w := newWorld(t)
	secret := w.put("secret", "root's", 0o600)
	shared := w.put("shared", "the group's", 0o640)
	w.must(os.Chown(shared, 0, member))
	closed := w.put("closed/inside", "below", 0o644)
	w.must(os.Chmod(filepath.Dir(closed), 0o700))

	if text, err := w.cat(shared); text != "the group's" {
		t.Errorf("a file of a group of the user's: %q, %v", text, err)
	}
	for _, path := range []string{secret, closed} {
		if text, err := w.cat(path); !errs.Is(err, errs.Denied) {
			t.Errorf("read %s: %q, %v; want denied", path, text, err)
		}
		if err := w.write(path, "mine"); !errs.Is(err, errs.Denied) {
			t.Errorf("write %s: %v, want denied", path, err)
		}
	}
	if err := w.write(w.path("new/deep/file"), "x"); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"new", "new/deep", "new/deep/file"} {
		if got := owner(t, w.path(name)); got != uid {
			t.Errorf("%s belongs to %d, want %d", name, got, uid)
		}
	}
}

// What runs beside a user's operations, or after them, is root as before.
func TestDo_LeavesTheOtherThreadsAlone(t *testing.T) {
	w := newWorld(t)
	secret := w.put("secret", "root's", 0o600)
	var all sync.WaitGroup
	for i := range 64 {
		all.Go(func() {
			if _, err := w.cat(secret); !errs.Is(err, errs.Denied) {
				t.Errorf("as the user: %v, want denied", err)
			}
			if err := w.write(w.path(fmt.Sprintf("f%d", i)), "x"); err != nil {
				t.Error(err)
			}
		})
		all.Go(func() {
			if _, err := os.ReadFile(secret); err != nil {
				t.Errorf("as root: %v", err)
			}
			err := userfs.Do(w.etc, users.User{Name: "root", Home: "/"}, func(fs *userfs.FS) error {
				f, _, err := fs.Open(secret)
				if err == nil {
					_ = f.Close()
				}
				return err
			})
			if err != nil {
				t.Errorf("as root in the guest: %v", err)
			}
		})
	}
	all.Wait()
	// The main thread cannot end with what it did.
	status, err := os.ReadFile("/proc/self/status")
	w.must(err)
	if !strings.Contains(string(status), "Uid:\t0\t0\t0\t0\n") {
		t.Errorf("the main thread is not root any more:\n%s", status)
	}
}

func TestDo_PanicsInItsCaller(t *testing.T) {
	w := newWorld(t)
	defer func() {
		if p := recover(); p != "for the caller" {
			t.Errorf("recovered %v", p)
		}
	}()
	_ = w.do(func(*userfs.FS) error { panic("for the caller") })
	t.Error("Do returned")
}

// Links lead nowhere that their user could not go by name.
func TestLinks_AreNoWayAround(t *testing.T) {
	w := newWorld(t)
	hidden := w.put("hidden/file", "hidden", 0o644)
	w.must(os.Chmod(filepath.Dir(hidden), 0o700))
	open, err := os.Open(hidden) // as the agent has it while it serves another
	w.must(err)
	defer open.Close()
	magic := fmt.Sprintf("/proc/self/fd/%d", open.Fd())
	w.must(os.Symlink(magic, w.path("magic")))
	w.must(os.Symlink(hidden, w.path("plain")))
	w.must(os.Symlink("/proc/self", w.path("self")))
	for _, path := range []string{
		magic, w.path("magic"), w.path("plain"),
		fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), open.Fd()),
		"/proc/self/environ", "/proc/thread-self/environ", "/proc/self/mem", "/proc/self/maps",
		w.path("self/environ"), w.path("self/root/etc/shadow"),
	} {
		if text, err := w.cat(path); !errs.Is(err, errs.Denied) {
			t.Errorf("read %s: %.20q, %v; want denied", path, text, err)
		}
		if err := w.write(path, "mine"); !errs.Is(err, errs.Denied) {
			t.Errorf("write %s: %v; want denied", path, err)
		}
	}
	if got := w.read("hidden/file"); got != "hidden" {
		t.Errorf("the hidden file is now %q", got)
	}
}

// A link that somebody left in a directory like /tmp does not lead root astray.
func TestLinks_PlantedInASharedDirectory(t *testing.T) {
	w := newWorld(t)
	target := w.put("target", "precious", 0o644)
	w.must(os.Mkdir(w.path("tmp"), 0o777))
	w.must(os.Chmod(w.path("tmp"), 0o777|os.ModeSticky))
	w.must(os.Symlink(target, w.path("tmp/theirs")))
	w.must(os.Lchown(w.path("tmp/theirs"), 61235, 61235))
	w.must(os.Symlink(target, w.path("tmp/roots")))
	write := func(path string) error {
		return userfs.Do(w.etc, users.User{Name: "root", Home: "/"}, func(fs *userfs.FS) error {
			_, err := fs.Write(path, nil, strings.NewReader("written"))
			return err
		})
	}
	if err := write(w.path("tmp/theirs")); !errs.Is(err, errs.Denied) || w.read("target") != "precious" {
		t.Errorf("through another's link: %v, target %q; want denied", err, w.read("target"))
	}
	if err := write(w.path("tmp/roots")); err != nil || w.read("target") != "written" {
		t.Errorf("through root's own link: %v, target %q", err, w.read("target"))
	}
}

// A user may write to some set-id programs, and the kernel then takes the bits
// away; an agent that wrote as root would leave them.
func TestWrite_TakesSetIDBitsAway(t *testing.T) {
	w := newWorld(t)
	program := w.put("program", "old", 0o777)
	w.must(os.Chmod(program, 0o777|os.ModeSetuid))
	if err := w.write(program, "#!/bin/sh"); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(program)
	w.must(err)
	if info.Mode()&os.ModeSetuid != 0 || owner(t, program) != 0 {
		t.Errorf("mode %v, owner %d: root's program with a user's content", info.Mode(), owner(t, program))
	}
}

func TestOpen_RefusesWhatIsNoFile(t *testing.T) {
	w := newWorld(t)
	w.must(unix.Mkfifo(w.path("pipe"), 0o666))
	w.must(os.Chmod(w.path("pipe"), 0o666))
	for _, path := range []string{w.path("pipe"), "/dev/null", "/dev/tty", w.dir, "/"} {
		// Neither waits, nor touches a device.
		if _, err := w.cat(path); !errs.Is(err, errs.Invalid) {
			t.Errorf("read %s: %v, want invalid", path, err)
		}
		if err := w.write(path, "x"); !errs.Is(err, errs.Invalid) && !errs.Is(err, errs.Denied) {
			t.Errorf("write %s: %v, want a refusal", path, err)
		}
	}
}

func TestWrite_LeavesWhatItHadWhenTheDiskIsFull(t *testing.T) {
	w := newWorld(t)
	small := testenv.TmpfsDir(t, "1m")
	testenv.Reachable(t, small)
	w.must(os.Chmod(small, 0o777))
	path := filepath.Join(small, "f")
	err := w.do(func(fs *userfs.FS) error {
		_, err := fs.Write(path, nil, strings.NewReader(strings.Repeat("x", 2<<20)))
		return err
	})
	if !errors.Is(err, unix.ENOSPC) || !errs.Is(err, errs.Exhausted) {
		t.Errorf("%v, want ENOSPC", err)
	}
}

func TestMetadata(t *testing.T) {
	w := newWorld(t)
	path := w.path("f")
	write := func(m map[string]string) userfs.Entry {
		t.Helper()
		var e userfs.Entry
		w.must(w.do(func(fs *userfs.FS) (err error) {
			e, err = fs.Write(path, m, strings.NewReader("x"))
			return err
		}))
		return e
	}
	first := map[string]string{"a": "1", "b": ""}
	if d := cmp.Diff(first, write(first).Metadata); d != "" {
		t.Errorf("after the first write (-want +got):\n%s", d)
	}
	w.must(unix.Setxattr(path, "user.other", []byte("x"), 0))
	second := map[string]string{"b": "2"}
	if d := cmp.Diff(second, write(second).Metadata); d != "" {
		t.Errorf("after the second write (-want +got):\n%s", d)
	}
	if got := write(nil).Metadata; got != nil {
		t.Errorf("after a write without metadata: %v", got)
	}
	if _, err := unix.Getxattr(path, "user.other", nil); err != nil {
		t.Errorf("an attribute of the user's own: %v", err)
	}
	for name, m := range map[string]map[string]string{
		"empty key": {"": "x"}, "long key": {strings.Repeat("k", userfs.MaxMetadataKey+1): ""},
		"value": {"k": "\x7f"}, "key": {"ü": "x"}, "size": {"k": strings.Repeat("v", userfs.MaxMetadata)},
	} {
		if err := userfs.CheckMetadata(m); !errs.Is(err, errs.Invalid) {
			t.Errorf("%s: %v, want invalid", name, err)
		}
	}
	if err := userfs.CheckMetadata(map[string]string{strings.Repeat("k", userfs.MaxMetadataKey): strings.Repeat("v", userfs.MaxMetadata-255)}); err != nil {
		t.Errorf("the largest: %v", err)
	}
}
