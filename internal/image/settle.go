package image

import (
	"bytes"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/billethq/billet/internal/image/tree"
)

// The account of the person or agent in a bootstrapped image.
const (
	userName = "user"
	userID   = 1000
	userHome = "home/" + userName
)

// settle makes a fresh bootstrap, begun at start, the image that everybody
// gets: what tells when and where it was made goes, the account comes. Two
// bootstraps of the same packages settle to the same tree.
func settle(t *tree.Tree, start time.Time) error {
	forget(t)
	if err := describeGuest(t); err != nil {
		return err
	}
	if err := addUser(t); err != nil {
		return err
	}
	clampTimes(t, start)
	return nil
}

// forget removes logs, caches, backups and what the guest makes itself.
func forget(t *tree.Tree) {
	for _, dir := range []string{"dev", "proc", "sys", "run", "tmp", "var/tmp", "var/log", "var/cache/apt", "var/cache/debconf", "var/lib/apt/lists"} {
		t.Clear(dir)
	}
	for _, file := range []string{
		"etc/passwd-", "etc/group-", "etc/shadow-", "etc/gshadow-", "etc/subuid-", "etc/subgid-", "etc/.pwd.lock",
		"etc/apt/sources.list~", "var/cache/ldconfig/aux-cache", "var/lib/dpkg/status-old", "var/lib/dpkg/diversions-old",
		"var/lib/dpkg/statoverride-old", "var/lib/dpkg/available-old", "var/lib/systemd/random-seed", "debootstrap",
	} {
		t.Remove(file)
	}
}

// describeGuest writes the files that a bootstrap copies from its host.
func describeGuest(t *tree.Tree) error {
	list, err := t.ReadFile("etc/apt/sources.list")
	if err != nil {
		return err
	}
	for path, text := range map[string]string{
		"etc/hostname":         "billet\n",
		"etc/hosts":            "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n",
		"etc/resolv.conf":      "",
		"etc/machine-id":       "", // the guest's first boot fills it
		"etc/default/locale":   "LANG=C.UTF-8\n",
		"etc/environment":      "LANG=C.UTF-8\n",
		"etc/apt/sources.list": string(packageSources(list)),
		"etc/sudoers.d/billet": userName + " ALL=(ALL:ALL) NOPASSWD: ALL\n",
	} {
		perm := uint32(0o644)
		if strings.HasPrefix(path, "etc/sudoers.d/") {
			perm = 0o440
		}
		if err := t.WriteFile(path, []byte(text), tree.Node{Mode: perm, ModTime: never}); err != nil {
			return err
		}
	}
	return nil
}

// addUser appends the account to the four files of accounts, into the group
// sudo, and gives it a home of what /etc/skel has.
func addUser(t *tree.Tree) error {
	for path, line := range map[string]string{
		"etc/passwd":  fmt.Sprintf("%s:x:%d:%d::/%s:/bin/bash\n", userName, userID, userID, userHome),
		"etc/group":   fmt.Sprintf("%s:x:%d:\n", userName, userID),
		"etc/shadow":  userName + ":*:18262:0:99999:7:::\n", // no password opens it; 18262 is sourceDate's day
		"etc/gshadow": userName + ":!::\n",
	} {
		if err := amendFile(t, path, func(text []byte) []byte {
			if strings.HasSuffix(path, "group") || strings.HasSuffix(path, "gshadow") {
				text = joinGroup(text, "sudo", userName)
			}
			return append(text, line...)
		}); err != nil {
			return err
		}
	}
	home := tree.Node{Mode: unix.S_IFDIR | 0o755, UID: userID, GID: userID, ModTime: never}
	if err := t.Put(userHome, home); err != nil {
		return err
	}
	skel, err := t.Lookup("etc/skel")
	if err != nil {
		return err
	}
	for _, name := range skel.Names() {
		n := *skel.Child(name)
		if !n.IsRegular() {
			continue
		}
		n.UID, n.GID = userID, userID
		if err := t.Put(userHome+"/"+name, n); err != nil {
			return err
		}
	}
	return nil
}

// amendFile changes a file's text and keeps its attributes.
func amendFile(t *tree.Tree, path string, change func([]byte) []byte) error {
	n, err := t.Lookup(path)
	if err != nil {
		return err
	}
	text, err := t.ReadFile(path)
	if err != nil {
		return err
	}
	like := *n
	like.ModTime = never
	return t.WriteFile(path, change(text), like)
}

// joinGroup appends member to the last field of the group's line.
func joinGroup(text []byte, group, member string) []byte {
	var out bytes.Buffer
	for line := range bytes.Lines(text) {
		line = bytes.TrimSuffix(line, []byte("\n"))
		out.Write(line)
		if bytes.HasPrefix(line, []byte(group+":")) {
			if !bytes.HasSuffix(line, []byte(":")) {
				out.WriteByte(',')
			}
			out.WriteString(member)
		}
		out.WriteByte('\n')
	}
	return out.Bytes()
}

// never is the time of what settle itself writes: late enough to be clamped.
var never = tree.Time{Sec: 1<<33 - 1}

// clampTimes gives everything made since start the time of the newest thing
// that came out of a package.
func clampTimes(t *tree.Tree, start time.Time) {
	var newest tree.Time
	for n := range t.Inodes() {
		if m := n.ModTime; m.Sec < start.Unix() && (m.Sec > newest.Sec || m.Sec == newest.Sec && m.Nsec > newest.Nsec) {
			newest = m
		}
	}
	for n := range t.Inodes() {
		if n.ModTime.Sec >= start.Unix() {
			n.ModTime = newest
		}
	}
}
