package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"
)

// tally adds up suites.
type tally struct {
	passed, failed int
	failures       []string
	skips          []skip
}

type skip struct {
	suite string
	id    testID
	why   string
}

func (t *tally) add(s *suite) {
	t.passed += len(s.passed)
	t.failed += len(s.failed)
	for id := range s.failed {
		t.failures = append(t.failures, s.name+" "+id.String())
	}
	for _, pkg := range s.unfinished() {
		t.failed++
		t.failures = append(t.failures, s.name+" "+pkg+": no result")
	}
	// A suite that go refused to run leaves no result at all: that is no pass.
	if len(s.ended) == 0 {
		t.failed++
		t.failures = append(t.failures, s.name+": no package ran\n"+indent(s.text(testID{})))
	}
	for id, why := range s.skipped {
		t.skips = append(t.skips, skip{s.name, id, why})
	}
}

// report prints the failures, the skips and the closing line.
func (t *tally) report(out io.Writer, expected []expectation, strict bool) error {
	slices.Sort(t.failures)
	for _, f := range t.failures {
		fmt.Fprintln(out, "failed:", f)
	}
	slices.SortFunc(t.skips, func(a, b skip) int { return strings.Compare(a.id.String(), b.id.String()) })
	surprises := 0
	for _, s := range t.skips {
		word := "skipped:"
		if !slices.ContainsFunc(expected, func(e expectation) bool { return e.matches(s.id) }) {
			word = "skipped unexpectedly:"
			surprises++
		}
		fmt.Fprintf(out, "%s %s %s: %s\n", word, s.suite, s.id, s.why)
	}
	fmt.Fprintf(out, "%d passed, %d failed, %d skipped\n", t.passed, t.failed, len(t.skips))
	switch {
	case t.failed > 0:
		return fmt.Errorf("%d failed", t.failed)
	case t.passed == 0:
		return errors.New("no test ran")
	case strict && surprises > 0:
		return fmt.Errorf("%d skipped unexpectedly: a test that this machine should run did not (expected skips are listed with a reason in .ci/skips)", surprises)
	}
	return nil
}

// expectation is one line of the list of expected skips:
//
//	<package> <test> <why>
//
// The package is relative to the module and the test may end in "*".
type expectation struct{ pkg, test string }

func (e expectation) matches(id testID) bool {
	ok, _ := path.Match(e.test, strings.ReplaceAll(id.test, "/", "."))
	return ok && (id.pkg == e.pkg || strings.HasSuffix(id.pkg, "/"+e.pkg))
}

func readSkips(file string) ([]expectation, error) {
	if file == "" {
		return nil, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var out []expectation
	n := 0
	for line := range strings.Lines(string(text)) {
		n++
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		f := strings.Fields(line)
		if len(f) < 3 {
			return nil, fmt.Errorf("%s:%d: want <package> <test> <why>", file, n)
		}
		if _, err := path.Match(f[1], ""); err != nil {
			return nil, fmt.Errorf("%s:%d: %q: %w", file, n, f[1], err)
		}
		out = append(out, expectation{pkg: f[0], test: strings.ReplaceAll(f[1], "/", ".")})
	}
	return out, nil
}
