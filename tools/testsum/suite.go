package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// event is one line of `go test -json` (go doc test2json).
type event struct {
	Action      string
	Package     string
	ImportPath  string // of build events
	Test        string
	Output      string
	Elapsed     float64
	FailedBuild string
}

// maxOutput bounds what is kept of one test's output, so that a test that
// cannot stop printing does not bury the others.
const maxOutput = 64 << 10

// testID names one test; the package's own events have no Test.
type testID struct{ pkg, test string }

func (id testID) String() string {
	if id.test == "" {
		return id.pkg
	}
	return id.pkg + " " + id.test
}

// suite is what one `go test` said.
type suite struct {
	name    string
	show    io.Writer // where packages and failures are shown as they end; nil: nowhere
	output  map[testID]*strings.Builder
	passed  map[testID]bool
	failed  map[testID]bool
	skipped map[testID]string // why
	ended   map[string]bool   // packages with a result
	started map[string]bool
}

func newSuite(name string) *suite {
	return &suite{
		name:   name,
		output: map[testID]*strings.Builder{}, passed: map[testID]bool{}, failed: map[testID]bool{},
		skipped: map[testID]string{}, ended: map[string]bool{}, started: map[string]bool{},
	}
}

// read takes every event. A line that is no event is go's own complaint.
func (s *suite) read(r io.Reader) error {
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			var e event
			if json.Unmarshal(line, &e) != nil || e.Action == "" {
				e = event{Action: "output", Output: string(line)}
			}
			s.take(e)
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (s *suite) take(e event) {
	if e.Package == "" {
		e.Package = e.ImportPath
	}
	id := testID{e.Package, e.Test}
	switch e.Action {
	case "start":
		s.started[e.Package] = true
	case "output", "build-output":
		s.keep(id, e.Output)
	case "build-fail":
		s.failed[id] = true
		s.fail(id)
	case "pass", "fail", "skip":
		s.end(id, e)
	}
}

func (s *suite) keep(id testID, text string) {
	b := s.output[id]
	if b == nil {
		b = &strings.Builder{}
		s.output[id] = b
	}
	if b.Len() < maxOutput {
		b.WriteString(text)
	}
}

// end records the result of a test or, without a test, of a package.
func (s *suite) end(id testID, e event) {
	if id.test == "" {
		s.endPackage(id, e)
		return
	}
	switch e.Action {
	case "pass":
		s.passed[id] = true
	case "fail":
		s.failed[id] = true
		s.fail(id)
	case "skip":
		s.skipped[id] = skipReason(s.text(id))
	}
}

func (s *suite) endPackage(id testID, e event) {
	s.ended[id.pkg] = true
	// A package fails without a failed test when its binary dies or does not
	// build. The build has been reported under its own name.
	if e.Action == "fail" && e.FailedBuild == "" && !s.failedIn(id.pkg) {
		s.failed[id] = true
		s.fail(id)
	}
	// "skip" of a package means that it has no tests: nothing to say.
	if s.show != nil && e.Action != "skip" {
		fmt.Fprintf(s.show, "%-4s %-9s %s (%.1fs)\n", e.Action, s.name, id.pkg, e.Elapsed)
	}
}

func (s *suite) failedIn(pkg string) bool {
	for id := range s.failed {
		if id.pkg == pkg {
			return true
		}
	}
	return false
}

// fail shows what a failed test printed.
func (s *suite) fail(id testID) {
	if s.show != nil {
		fmt.Fprintf(s.show, "FAIL %-9s %s\n%s", s.name, id, indent(s.text(id)))
	}
}

func (s *suite) text(id testID) string {
	if b := s.output[id]; b != nil {
		return b.String()
	}
	return ""
}

// unfinished lists packages whose results never came, as when the whole run
// was killed.
func (s *suite) unfinished() []string {
	var out []string
	for pkg := range s.started {
		if !s.ended[pkg] {
			out = append(out, pkg)
		}
	}
	slices.Sort(out)
	return out
}

// skipReason finds the reason in a skipped test's output: testenv's line, or
// the last line that a plain t.Skip printed.
func skipReason(text string) string {
	reason := "no reason given"
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if _, need, ok := strings.Cut(line, "testenv: need "); ok {
			return "need " + need
		}
		if line != "" && !strings.HasPrefix(line, "===") && !strings.HasPrefix(line, "---") {
			reason = line
		}
	}
	return reason
}

// indent sets a test's output off, without go test's own marks of its way.
func indent(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "=== ") {
			continue
		}
		b.WriteString("    ")
		b.WriteString(line)
	}
	if text != "" && !strings.HasSuffix(text, "\n") {
		b.WriteByte('\n')
	}
	return b.String()
}
