package image

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/billethq/billet/internal/image/tree"
)

// bootstrapped is the part of a bootstrap that settle cares for, made at a
// time and on a host.
func bootstrapped(t *testing.T, start time.Time, host string) *tree.Tree {
	t.Helper()
	tr, _, err := streamTree(t, tarOf(t, dirHeader("usr/")))
	if err != nil {
		t.Fatal(err)
	}
	packaged, made := tree.Time{Sec: 1_000_000}, tree.Time{Sec: start.Unix() + 9, Nsec: 5}
	write := func(path, text string, at tree.Time, mode uint32) {
		t.Helper()
		if err := tr.WriteFile(path, []byte(text), tree.Node{Mode: mode, ModTime: at}); err != nil {
			t.Fatal(err)
		}
	}
	write("usr/bin/tool", "x", packaged, 0o755)
	write("usr/bin/older", "x", tree.Time{Sec: 5}, 0o755)
	write("etc/skel/.bashrc", "rc", packaged, 0o644)
	write("etc/passwd", "root:x:0:0:root:/root:/bin/bash\n", made, 0o644)
	write("etc/group", "root:x:0:\nsudo:x:27:\nsudoers:x:28:\n", made, 0o644)
	write("etc/shadow", "root:*:18262:0:99999:7:::\n", made, 0o640)
	write("etc/gshadow", "root:*::\nsudo:*::admin\n", made, 0o640)
	write("etc/passwd-", host, made, 0o644)
	write("etc/hostname", host, made, 0o644)
	write("etc/resolv.conf", host, made, 0o644)
	write("etc/apt/sources.list", "deb http://me:secret@mirror/debian suite main\n", made, 0o644)
	write("var/log/bootstrap.log", host, made, 0o644)
	write("var/cache/ldconfig/aux-cache", host, made, 0o600)
	write("var/lib/apt/lists/index", host, made, 0o644)
	write("dev/null", "", made, 0o666)
	return tr
}

func TestSettle_ForgetsWhenAndWhere(t *testing.T) {
	type file struct {
		Mode, UID uint32
		At        tree.Time
		Text      string
	}
	var settled []map[string]file
	for i, host := range []string{"one", "two"} {
		start := time.Unix(2_000_000+int64(i)*1000, 0)
		tr := bootstrapped(t, start, host)
		if err := settle(tr, start); err != nil {
			t.Fatal(err)
		}
		files := map[string]file{}
		_ = tr.Walk(func(path string, n *tree.Node) error {
			f := file{Mode: n.Mode, UID: n.UID, At: n.ModTime}
			if n.IsRegular() {
				text, err := tr.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				f.Text = string(text)
			}
			files[path] = f
			return nil
		})
		settled = append(settled, files)
	}
	if diff := cmp.Diff(settled[0], settled[1]); diff != "" {
		t.Errorf("two bootstraps settle differently:\n%s", diff)
	}
	newest, reg := tree.Time{Sec: 1_000_000}, uint32(unix.S_IFREG)
	for path, want := range map[string]file{
		"usr/bin/older":        {reg | 0o755, 0, tree.Time{Sec: 5}, "x"},
		"etc/passwd":           {reg | 0o644, 0, newest, "root:x:0:0:root:/root:/bin/bash\nuser:x:1000:1000::/home/user:/bin/bash\n"},
		"etc/group":            {reg | 0o644, 0, newest, "root:x:0:\nsudo:x:27:user\nsudoers:x:28:\nuser:x:1000:\n"},
		"etc/shadow":           {reg | 0o640, 0, newest, "root:*:18262:0:99999:7:::\nuser:*:18262:0:99999:7:::\n"},
		"etc/gshadow":          {reg | 0o640, 0, newest, "root:*::\nsudo:*::admin,user\nuser:!::\n"},
		"etc/sudoers.d/billet": {reg | 0o440, 0, newest, "user ALL=(ALL:ALL) NOPASSWD: ALL\n"},
		"etc/machine-id":       {reg | 0o644, 0, newest, ""},
		"etc/apt/sources.list": {reg | 0o644, 0, newest, "deb http://mirror/debian suite main\n"},
		"home/user/.bashrc":    {reg | 0o644, 1000, newest, "rc"},
		"home/user":            {unix.S_IFDIR | 0o755, 1000, newest, ""},
	} {
		if diff := cmp.Diff(want, settled[0][path]); diff != "" {
			t.Errorf("%s (-want +got):\n%s", path, diff)
		}
	}
	for path := range settled[0] {
		for _, gone := range []string{"etc/passwd-", "var/log/", "aux-cache", "lists/", "dev/"} {
			if strings.Contains(path, gone) {
				t.Errorf("%s is still there", path)
			}
		}
	}
}
