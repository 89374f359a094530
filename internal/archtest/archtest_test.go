package archtest

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"github.com/billethq/billet/internal/testenv"
)

// TestHouse holds this repository to each rule.
func TestHouse(t *testing.T) {
	house, err := load(os.DirFS(testenv.Root(t)))
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rules() {
		t.Run(r.name, func(t *testing.T) {
			broken := r.check(house)
			slices.Sort(broken)
			for _, line := range broken {
				t.Error(line)
			}
			if len(broken) > 0 {
				t.Log("why: " + r.why)
			}
		})
	}
}

// TestRules_CatchWhatBreaksThem runs each rule on an archive of code, whose
// comment lists what the rule must find there, and nothing else.
func TestRules_CatchWhatBreaksThem(t *testing.T) {
	for _, r := range rules() {
		t.Run(r.name, func(t *testing.T) {
			archive, err := txtar.ParseFile(filepath.Join("testdata", r.name+".txtar"))
			if err != nil {
				t.Fatal(err)
			}
			fsys, err := txtar.FS(archive)
			if err != nil {
				t.Fatal(err)
			}
			house, err := load(fsys)
			if err != nil {
				t.Fatal(err)
			}
			got := r.check(house)
			slices.Sort(got)
			want := strings.Split(strings.TrimSpace(string(archive.Comment)), "\n")
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("violations (-want +got):\n%s", diff)
			}
		})
	}
}
