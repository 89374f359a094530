package image

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/testenv"
)

func TestParseTargets(t *testing.T) {
	for _, c := range []struct {
		name, out string
		want      repository
	}{
		{"first of the release", "Other|Other|main|x|http://other/\nDebian|Debian-Security|main|rel-security|http://s/\nDebian|Debian|main|rel-updates|http://m/\n" +
			"Debian|Debian|contrib|rel|http://m/\nDebian|Debian|main|rel|http://m/debian/\nDebian|Debian|main|rel2|http://n/\n", repository{"http://m/debian/", "rel"}},
		{"a file", "Debian|Debian|main|rel|file:/srv/debian", repository{"file:/srv/debian", "rel"}},
		{"another distribution", "Ubuntu|Ubuntu|main|rel|http://m/\n", repository{}},
		{"no scheme that debootstrap reads", "Debian|Debian|main|rel|cdrom:[x]/\n", repository{}},
		{"nothing", "", repository{}},
		{"not its form", "Debian|Debian|main\n\n|||||\n", repository{}},
	} {
		got, ok := parseTargets([]byte(c.out))
		if got != c.want || ok != (c.want != repository{}) {
			t.Errorf("%s: got %v, %v, want %v", c.name, got, ok, c.want)
		}
	}
}

// fakeDebootstrap puts a script in the place of debootstrap; its fourth
// argument is the root.
func fakeDebootstrap(t *testing.T, script string) {
	t.Helper()
	testenv.NeedRoot(t)
	bin := t.TempDir()
	if err := os.WriteFile(filepath.Join(bin, "debootstrap"), []byte("#!/bin/sh\nroot=$5\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
}

// TestDebootstrap_LeavesNothingWhenGivenUp: what it started in the background
// is dead, and what it mounted was never seen here.
func TestDebootstrap_LeavesNothingWhenGivenUp(t *testing.T) {
	root := filepath.Join(t.TempDir(), "root")
	fakeDebootstrap(t, `mkdir $root && mount -t tmpfs tmpfs $root && touch $root/inside
sleep 1000 &
cut -d' ' -f4 < /proc/$!/stat 2>/dev/null
grep -s NSpid /proc/[0-9]*/status | awk -v me=$! '$NF == me && NF == 3 {sub(/.*proc./,"",$1); sub(/.status.*/,"",$1); print "child", $1}'
echo ready; wait
`)
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	given := errors.New("given up")
	var child int
	err := debootstrap(ctx, repository{"http://m/", "rel"}, root, func(line string) {
		if pid, ok := strings.CutPrefix(line, "child "); ok {
			child, _ = strconv.Atoi(pid)
		}
		if line == "ready" {
			cancel(given)
		}
	})
	if !errors.Is(err, given) {
		t.Fatalf("got %v, want the reason", err)
	}
	if child == 0 {
		t.Fatal("the script did not name its child")
	}
	if err := syscall.Kill(child, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("process %d is still there: %v", child, err)
	}
	if _, err := os.Stat(filepath.Join(root, "inside")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the mount is seen outside: %v", err)
	}
}

func TestDebootstrap_SaysWhatFailed(t *testing.T) {
	fakeDebootstrap(t, "echo I: Retrieving; echo 'E: no such suite' >&2; exit 1\n")
	err := debootstrap(context.Background(), repository{"http://me:secret@m/", "rel"}, t.TempDir(), func(string) {})
	if !errs.Is(err, errs.Unavailable) || !strings.Contains(err.Error(), "E: no such suite") || errs.HintOf(err) == "" {
		t.Errorf("got %v, hint %q", err, errs.HintOf(err))
	}
	if strings.Contains(err.Error(), "secret") {
		t.Errorf("error %q shows the mirror's password", err)
	}
}

func TestFindDebootstrap(t *testing.T) {
	fakeDebootstrap(t, "")
	empty := t.TempDir()
	if _, err := findDebootstrap(empty); !errs.Is(err, errs.Unsupported) || !strings.Contains(errs.HintOf(err), "apt-get install debootstrap") {
		t.Errorf("got %v, hint %q", err, errs.HintOf(err))
	}
	first := filepath.SplitList(os.Getenv("PATH"))[0]
	if got, err := findDebootstrap(empty + ":" + first); err != nil || filepath.Dir(got) != first {
		t.Errorf("got %q, %v, want it in %s", got, err, first)
	}
}

// TestRunLines_CutsLongLines: a program that prints no line end costs no memory.
func TestRunLines_CutsLongLines(t *testing.T) {
	fakeDebootstrap(t, "head -c 1000000 /dev/zero | tr '\\0' x; echo; echo end\n")
	longest, lines := 0, 0
	if err := debootstrap(context.Background(), repository{"http://m/", "rel"}, t.TempDir(), func(line string) {
		longest, lines = max(longest, len(line)), lines+1
	}); err != nil {
		t.Fatal(err)
	}
	if longest > maxLine || lines < 1_000_000/maxLine {
		t.Errorf("%d lines, the longest has %d bytes", lines, longest)
	}
}
