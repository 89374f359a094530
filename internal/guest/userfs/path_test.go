package userfs_test

import (
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/guest/userfs"
	"github.com/billethq/billet/internal/guest/users"
)

func TestResolve(t *testing.T) {
	u := users.User{Name: "user", Home: "/home/user"}
	for in, want := range map[string]string{
		"": "/home/user", ".": "/home/user", "a": "/home/user/a", "a/../b": "/home/user/b", "../..": "/", "../../../x": "/x",
		"~": "/home/user", "~/": "/home/user", "~/a": "/home/user/a", "a~": "/home/user/a~", "./~x": "/home/user/~x",
		"/": "/", "//": "/", "/a/./b//c/": "/a/b/c", "/..": "/", "/~": "/~",
		"~other": "", "~other/a": "", "a\x00b": "", strings.Repeat("a/", 4096): "",
		"/" + strings.Repeat("n", 255): "/" + strings.Repeat("n", 255), "/" + strings.Repeat("n", 256): "",
	} {
		got, err := userfs.Resolve(in, u)
		if got != want || (want == "") != errs.Is(err, errs.Invalid) {
			t.Errorf("%q: %q, %v; want %q", in, got, err, want)
		}
	}
}

func FuzzResolve(f *testing.F) {
	for _, s := range []string{"", "a", "~/a", "~b", "/a/../..", "a\x00", "./~"} {
		f.Add(s, "/home/user")
	}
	f.Fuzz(func(t *testing.T, p, home string) {
		got, err := userfs.Resolve(p, users.User{Home: "/" + home})
		if err != nil {
			if !errs.Is(err, errs.Invalid) {
				t.Errorf("%q: %v", p, err)
			}
			return
		}
		if !strings.HasPrefix(got, "/") || path.Clean(got) != got || strings.Contains(p+got, "\x00") {
			t.Errorf("%q resolved to %q", p, got)
		}
	})
}

// FuzzWalk compares the walk with the kernel's own, in a tree of links.
func FuzzWalk(f *testing.F) {
	dir := f.TempDir()
	for _, name := range []string{"a/b", "c"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			f.Fatal(err)
		}
	}
	for _, name := range []string{"f", "a/f", "a/b/f"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(name), 0o644); err != nil {
			f.Fatal(err)
		}
	}
	for name, text := range map[string]string{
		"a/up": "..", "a/b/upup": "../../", "abs": filepath.Join(dir, "a"), "loop": "loop", "x": "y", "y": "x/a",
		"tofile": "a/b/f", "dangling": "a/none", "self": ".", "slash": "a//./b/", "chain": "abs/up/self/tofile",
	} {
		if err := os.Symlink(text, filepath.Join(dir, name)); err != nil {
			f.Fatal(err)
		}
	}
	for _, s := range []string{"chain", "a/up/f", "abs/b/upup/c", "loop/x", "x", "dangling", "f/x", "slash/f", "self/self/a/f", "."} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, p string) {
		if strings.ContainsRune(p, 0) || len(p) > 1000 {
			return
		}
		full := dir + "/" + strings.TrimRight(p, "/")
		if strings.Contains(p, "..") {
			return // may leave the tree, for places where a read waits
		}
		want, wantErr := os.ReadFile(full)
		wantDir, dirErr := os.ReadDir(full)
		err := userfs.Do("/etc", users.User{Name: "root"}, func(fs *userfs.FS) error {
			file, _, err := fs.Open(full)
			if (err == nil) != (wantErr == nil) {
				t.Errorf("open %q: %v, the kernel %v", p, err, wantErr)
			}
			if err == nil {
				defer file.Close()
				got := make([]byte, 16)
				if n, _ := file.Read(got); string(got[:n]) != string(want) {
					t.Errorf("open %q: %q, the kernel %q", p, got[:n], want)
				}
			}
			all, err := fs.List(full, 1)
			if (err == nil) != (dirErr == nil) || len(all) != len(wantDir) {
				t.Errorf("list %q: %d entries, %v; the kernel %d, %v", p, len(all), err, len(wantDir), dirErr)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
}
