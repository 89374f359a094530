// Package users reads the guest's account files.
//
// The agent is static and its guests are any image, so neither os/user's cgo
// lookups nor nsswitch exist: /etc/passwd and /etc/group are what there is. The
// files belong to the guest and may hold anything; what is no account is
// skipped, and sizes are bounded.
package users

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"
)

// DefaultName is the account that runs what names none, where it exists.
const DefaultName = "user"

const (
	// maxFile bounds how much of an account file is read: far above the largest
	// that images ship, far below what would hurt the agent.
	maxFile = 4 << 20
	// maxLine bounds a line; groups with thousands of members stay below it.
	maxLine = 256 << 10
	// maxGroups is the kernel's limit on supplementary groups.
	maxGroups = 65536
)

// ErrUnknown says that there is no account of that name.
var ErrUnknown = errors.New("unknown user")

// User is an account.
type User struct {
	Name   string
	UID    uint32
	GID    uint32
	Groups []uint32 // supplementary, without GID
	Home   string   // "/" when the file names none
	Shell  string   // "/bin/sh" when the file names none
}

// Lookup finds the account name in the account files of etc, usually "/etc".
// The name "" means DefaultName if it exists and root if not. Root exists in
// every guest, also without files.
func Lookup(etc, name string) (User, error) {
	return New(etc).Lookup(name)
}

// find returns the account name with its groups.
func find(accounts []User, groups []Group, name string) (User, error) {
	u, ok := pick(accounts, name)
	if !ok {
		return User{}, fmt.Errorf("%w: %q", ErrUnknown, name)
	}
	for _, g := range groups {
		if len(u.Groups) == maxGroups {
			break
		}
		if g.GID != u.GID && g.has(u.Name) {
			u.Groups = append(u.Groups, g.GID)
		}
	}
	return u, nil
}

func pick(accounts []User, name string) (User, bool) {
	if name == "" {
		if u, ok := pick(accounts, DefaultName); ok {
			return u, true
		}
		name = "root"
	}
	for _, u := range accounts {
		if u.Name == name {
			return u, true
		}
	}
	if name == "root" {
		return User{Name: "root", Home: "/", Shell: "/bin/sh"}, true
	}
	return User{}, false
}

// ParsePasswd returns the accounts in r, in order, as passwd(5) writes them.
func ParsePasswd(r io.Reader) ([]User, error) {
	var all []User
	err := lines(r, 7, func(f []string) {
		uid, err1 := id(f[2])
		gid, err2 := id(f[3])
		if f[0] == "" || err1 != nil || err2 != nil {
			return
		}
		u := User{Name: f[0], UID: uid, GID: gid, Home: f[5], Shell: f[6]}
		if !strings.HasPrefix(u.Home, "/") {
			u.Home = "/"
		}
		if !strings.HasPrefix(u.Shell, "/") {
			u.Shell = "/bin/sh"
		}
		all = append(all, u)
	})
	return all, err
}

// Group is a group and its explicit members.
type Group struct {
	Name    string
	GID     uint32
	Members []string
}

func (g Group) has(user string) bool {
	for _, m := range g.Members {
		if m == user {
			return true
		}
	}
	return false
}

// ParseGroup returns the groups in r, in order, as group(5) writes them.
func ParseGroup(r io.Reader) ([]Group, error) {
	var all []Group
	err := lines(r, 4, func(f []string) {
		gid, err := id(f[2])
		if f[0] == "" || err != nil {
			return
		}
		g := Group{Name: f[0], GID: gid}
		for _, m := range strings.Split(f[3], ",") {
			if m = strings.TrimSpace(m); m != "" {
				g.Members = append(g.Members, m)
			}
		}
		all = append(all, g)
	})
	return all, err
}

// id parses a user or group id. 2³²−1 means "no change" to the kernel's calls:
// running something under it would leave it root.
func id(s string) (uint32, error) {
	n, err := strconv.ParseUint(s, 10, 32)
	if err == nil && n == 1<<32-1 {
		err = strconv.ErrRange
	}
	return uint32(n), err
}

// lines calls f with the fields of each line that has exactly n.
func lines(r io.Reader, n int, f func([]string)) error {
	s := bufio.NewScanner(io.LimitReader(r, maxFile))
	s.Buffer(nil, maxLine)
	for s.Scan() {
		fields := strings.Split(s.Text(), ":")
		if len(fields) == n && !strings.HasPrefix(fields[0], "#") {
			f(fields)
		}
	}
	return s.Err()
}

func readFile[T any](path string, parse func(io.Reader) ([]T, error)) ([]T, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	all, err := parse(f)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return all, nil
}
