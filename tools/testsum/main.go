// Command testsum turns what `go test -json` prints into something a person
// reads, and decides whether a whole run of suites is good.
//
//	go test -json ./... | testsum -save build/results/unit.json
//	testsum -skips .ci/skips -strict build/results/*.json
//
// The first form keeps the events and shows one line per package and the
// output of what failed; it always ends well, so that the next suite runs. The
// second form judges the kept files: it lists failures and skips, closes with
// the line "N passed, N failed, N skipped" and exits 1 when something failed,
// a suite has no result or, with -strict, a skip was not expected.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

func main() {
	save := flag.String("save", "", "keep the events of standard input in `file`")
	skips := flag.String("skips", "", "`file` of the skips that are expected")
	strict := flag.Bool("strict", false, "fail on a skip that is not expected")
	flag.Parse()
	var err error
	if *save != "" {
		err = record(os.Stdin, os.Stdout, *save)
	} else {
		err = judge(os.Stdout, flag.Args(), *skips, *strict)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "testsum:", err)
		os.Exit(1)
	}
}

// record copies the events to a file while it shows them.
func record(in io.Reader, out io.Writer, file string) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	defer f.Close()
	s := newSuite(strings.TrimSuffix(filepath.Base(file), ".json"))
	s.show = out
	if err := s.read(io.TeeReader(in, f)); err != nil {
		return err
	}
	return f.Close()
}

// judge reads what was kept and reports on all of it.
func judge(out io.Writer, files []string, skipFile string, strict bool) error {
	expected, err := readSkips(skipFile)
	if err != nil {
		return err
	}
	var total tally
	for _, file := range files {
		s := newSuite(strings.TrimSuffix(filepath.Base(file), ".json"))
		f, err := os.Open(file)
		if err != nil {
			return err
		}
		err = s.read(f)
		_ = f.Close()
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		total.add(s)
	}
	return total.report(out, expected, strict)
}
