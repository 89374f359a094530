// Command leftover ends a test run: it removes what the run left on this host
// and exits 1 when there was anything.
//
//	leftover -dir /tmp/x -list > known
//	leftover -dir /tmp/x -env BILLET_CI_RUN=x -known known
//
// The first form, before the run, lists what is no fault of the run.
package main

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/billethq/billet/internal/testenv/leaks"
)

// What is ending anyway may take grace; what appears behind a removed thing is
// removed too, in at most rounds looks.
const (
	grace  = 10 * time.Second
	rounds = 20
	pause  = 200 * time.Millisecond
)

func main() {
	var scope leaks.Scope
	flag.StringVar(&scope.Env, "env", "", "`assignment` in the environment of the run's processes")
	flag.StringVar(&scope.Dir, "dir", "", "the run's temporary `directory`")
	known := flag.String("known", "", "`file` of what was there before the run")
	list := flag.Bool("list", false, "only list what is there")
	flag.Parse()
	if scope.Dir == "" {
		fmt.Fprintln(os.Stderr, "leftover: -dir is required")
		os.Exit(2)
	}
	before, err := lines(*known)
	if err != nil {
		fmt.Fprintln(os.Stderr, "leftover:", err)
		os.Exit(2)
	}
	find := func() []leaks.Leak {
		return slices.DeleteFunc(leaks.Find(scope), func(l leaks.Leak) bool { return slices.Contains(before, l.String()) })
	}
	left := find()
	if *list {
		for _, l := range left {
			fmt.Println(l)
		}
		return
	}
	for end := time.Now().Add(grace); len(left) > 0 && time.Now().Before(end); left = find() {
		time.Sleep(pause)
	}
	for _, l := range left {
		fmt.Fprintln(os.Stderr, "left behind:", l)
	}
	remove(find)
	if len(left) > 0 {
		os.Exit(1)
	}
}

// remove repeats: a mount hides another, a process keeps its cgroup.
func remove(find func() []leaks.Leak) {
	for range rounds {
		left := find()
		if len(left) == 0 {
			return
		}
		for _, l := range left {
			_ = l.Remove() // what stays is seen in the next round
		}
		time.Sleep(pause)
	}
	for _, l := range find() {
		fmt.Fprintln(os.Stderr, "cannot remove:", l)
	}
}

func lines(file string) ([]string, error) {
	if file == "" {
		return nil, nil
	}
	text, err := os.ReadFile(file)
	return strings.Split(string(text), "\n"), err
}
