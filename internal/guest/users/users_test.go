package users_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/billethq/billet/internal/guest/users"
)

const passwd = `root:x:0:0:root:/root:/bin/bash
# comment:x:5:5::/:/bin/sh
short:x:1:1
daemon:x:1:1:daemon:/usr/sbin:/usr/sbin/nologin

user:x:1000:1000:The User,,,:/home/user:/bin/zsh
bare:x:1001:1001:::
nothome:x:1002:1002::relative:shell
negative:x:-1:0::/:/bin/sh
nochange:x:4294967295:0::/:/bin/sh
huge:x:4294967296:0::/:/bin/sh
noid:x:1003:4294967295::/:/bin/sh
+nis::::::
`

const group = `root:x:0:
user:x:1000:
sudo:x:27:user,other
docker:x:998: other , user
own:x:1000:user
bad:x:x:user
short:x:5
`

func etc(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestLookup(t *testing.T) {
	full := etc(t, map[string]string{"passwd": passwd, "group": group})
	plain := etc(t, map[string]string{"passwd": "root:x:0:0::/root:/bin/ash\n"})
	empty := etc(t, nil)
	user := users.User{Name: "user", UID: 1000, GID: 1000, Groups: []uint32{27, 998}, Home: "/home/user", Shell: "/bin/zsh"}
	root := users.User{Name: "root", Home: "/root", Shell: "/bin/bash"}
	for _, c := range []struct {
		dir, name string
		want      users.User
		err       error
	}{
		{full, "user", user, nil},
		{full, "", user, nil}, // the default
		{full, "root", root, nil},
		{full, "bare", users.User{Name: "bare", UID: 1001, GID: 1001, Home: "/", Shell: "/bin/sh"}, nil},
		{full, "nothome", users.User{Name: "nothome", UID: 1002, GID: 1002, Home: "/", Shell: "/bin/sh"}, nil},
		{full, "short", users.User{}, users.ErrUnknown},
		{full, "negative", users.User{}, users.ErrUnknown},
		{full, "nochange", users.User{}, users.ErrUnknown}, // would stay root
		{full, "huge", users.User{}, users.ErrUnknown},
		{full, "noid", users.User{}, users.ErrUnknown},
		{full, "+nis", users.User{}, users.ErrUnknown},
		{full, "1000", users.User{}, users.ErrUnknown},
		{plain, "", users.User{Name: "root", Home: "/root", Shell: "/bin/ash"}, nil},
		{empty, "", users.User{Name: "root", Home: "/", Shell: "/bin/sh"}, nil},
		{empty, "user", users.User{}, users.ErrUnknown},
	} {
		got, err := users.Lookup(c.dir, c.name)
		if !errors.Is(err, c.err) {
			t.Errorf("%q: %v, want %v", c.name, err, c.err)
		}
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("%q (-want +got):\n%s", c.name, d)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(passwd)
	f.Add(group)
	f.Add(strings.Repeat(":", 6) + "\n::0:\x00")
	f.Fuzz(func(t *testing.T, text string) {
		accounts, _ := users.ParsePasswd(strings.NewReader(text))
		for _, u := range accounts {
			if u.Name == "" || strings.ContainsAny(u.Name, ":\n") || u.UID == 1<<32-1 || u.GID == 1<<32-1 || !strings.HasPrefix(u.Home, "/") || !strings.HasPrefix(u.Shell, "/") {
				t.Errorf("account %+v of %q", u, text)
			}
		}
		groups, _ := users.ParseGroup(strings.NewReader(text))
		for _, g := range groups {
			if g.Name == "" || g.GID == 1<<32-1 {
				t.Errorf("group %+v of %q", g, text)
			}
		}
	})
}

// What is kept of the files is never older than they are: an account is there
// as soon as it is written, and gone as soon as it is removed.
func TestAccounts_FollowTheFiles(t *testing.T) {
	dir := etc(t, map[string]string{"passwd": passwd, "group": group})
	old := time.Now().Add(-time.Hour)
	age := func(name string) {
		if err := os.Chtimes(filepath.Join(dir, name), old, old); err != nil {
			t.Fatal(err)
		}
	}
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	a := users.New(dir)
	check := func(step, name string, uid uint32, groups ...uint32) {
		t.Helper()
		u, err := a.Lookup(name)
		if err != nil || u.UID != uid || !cmp.Equal(u.Groups, groups) {
			t.Errorf("%s: %s is %d in %v, %v; want %d in %v", step, name, u.UID, u.Groups, err, uid, groups)
		}
	}
	check("at first", "user", 1000, 27, 998)
	check("again", "user", 1000, 27, 998)
	check("another", "daemon", 1)

	// As many bytes, at the same time as far as the file says.
	write("passwd", strings.Replace(passwd, "1000:1000", "2000:1000", 1))
	age("passwd")
	check("written over", "user", 2000, 27, 998)
	if err := os.Rename(filepath.Join(dir, "passwd"), filepath.Join(dir, "passwd-")); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Lookup("user"); !errors.Is(err, users.ErrUnknown) {
		t.Errorf("removed: %v, want unknown", err)
	}
	write("passwd", passwd)
	write("group", "wheel:x:10:user\n")
	check("made anew", "user", 1000, 10)
}
