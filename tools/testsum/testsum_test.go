package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// stream has one test of each result in package a, a package b that dies
// without one, c that does not build and d without tests.
const stream = `{"Action":"start","Package":"m/a"}
{"Action":"run","Package":"m/a","Test":"TestGood"}
{"Action":"output","Package":"m/a","Test":"TestGood","Output":"quiet please\n"}
{"Action":"pass","Package":"m/a","Test":"TestGood","Elapsed":0.1}
{"Action":"output","Package":"m/a","Test":"TestBad","Output":"=== RUN   TestBad\n"}
{"Action":"output","Package":"m/a","Test":"TestBad","Output":"got 1, want 2\n"}
{"Action":"fail","Package":"m/a","Test":"TestBad","Elapsed":0}
{"Action":"output","Package":"m/a","Test":"TestAway/sub","Output":"    x.go:1: testenv: need fuse: no such file\n"}
{"Action":"output","Package":"m/a","Test":"TestAway/sub","Output":"--- SKIP: TestAway/sub (0.00s)\n"}
{"Action":"skip","Package":"m/a","Test":"TestAway/sub","Elapsed":0}
{"Action":"fail","Package":"m/a","Elapsed":0.2}
{"Action":"start","Package":"m/b"}
{"Action":"output","Package":"m/b","Output":"panic: in TestMain\n"}
{"Action":"fail","Package":"m/b","Elapsed":0.2}
{"ImportPath":"m/c","Action":"build-output","Output":"c.go:1: undefined: x\n"}
{"ImportPath":"m/c","Action":"build-fail"}
{"Action":"start","Package":"m/c"}
{"Action":"fail","Package":"m/c","Elapsed":0,"FailedBuild":"m/c"}
{"Action":"start","Package":"m/d"}
{"Action":"skip","Package":"m/d","Elapsed":0}
`

const good = `{"Action":"start","Package":"m/a"}
{"Action":"pass","Package":"m/a","Test":"TestGood","Elapsed":0.1}
{"Action":"output","Package":"m/a","Test":"TestAway/sub","Output":"    x.go:1: testenv: need fuse: no such file\n"}
{"Action":"skip","Package":"m/a","Test":"TestAway/sub","Elapsed":0}
{"Action":"pass","Package":"m/a","Elapsed":0.2}
`

// kept records a stream as the suite unit and returns its file.
func kept(t *testing.T, stream string) (file, shown string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "unit.json")
	var out strings.Builder
	if err := record(strings.NewReader(stream), &out, file); err != nil {
		t.Fatal(err)
	}
	return file, out.String()
}

func TestRecord_ShowsFailuresOnly(t *testing.T) {
	_, shown := kept(t, stream)
	want := `FAIL unit      m/a TestBad
    got 1, want 2
fail unit      m/a (0.2s)
FAIL unit      m/b
    panic: in TestMain
fail unit      m/b (0.2s)
FAIL unit      m/c
    c.go:1: undefined: x
fail unit      m/c (0.0s)
`
	if shown != want {
		t.Errorf("shown\n%s\nwant\n%s", shown, want)
	}
}

func TestJudge_CountsAndFails(t *testing.T) {
	file, _ := kept(t, stream)
	var out strings.Builder
	err := judge(&out, []string{file}, "", false)
	want := `failed: unit m/a TestBad
failed: unit m/b
failed: unit m/c
skipped unexpectedly: unit m/a TestAway/sub: need fuse: no such file
1 passed, 3 failed, 1 skipped
`
	if out.String() != want || err == nil {
		t.Errorf("error %v, report\n%s\nwant an error and\n%s", err, &out, want)
	}
}

func TestJudge_Skips(t *testing.T) {
	for _, tc := range []struct {
		name, skips string
		strict, ok  bool
	}{
		{"none expected", "", true, false},
		{"none expected, not strict", "", false, true},
		{"expected", "a TestAway/sub this machine has no fuse\n", true, true},
		{"expected by pattern", "# all of them\na TestAway* no fuse here\n", true, true},
		{"expected elsewhere", "other TestAway* no fuse here\n", true, false},
		{"suffix is no package", "/a TestAway* no fuse here\n", true, false},
		{"without a reason", "a TestAway*\n", true, false},
		{"bad pattern", "a [ x\n", true, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			file, _ := kept(t, good)
			list := filepath.Join(t.TempDir(), "skips")
			if err := os.WriteFile(list, []byte(tc.skips), 0o600); err != nil {
				t.Fatal(err)
			}
			var out strings.Builder
			if err := judge(&out, []string{file}, list, tc.strict); (err == nil) != tc.ok {
				t.Errorf("error %v, want success %v; report\n%s", err, tc.ok, &out)
			}
		})
	}
}

func TestJudge_NothingRanIsAFailure(t *testing.T) {
	for name, stream := range map[string]string{
		"empty":       "",
		"go's error":  "go: cannot find main module\n",
		"only start":  `{"Action":"start","Package":"m/a"}`,
		"no tests":    `{"Action":"skip","Package":"m/d","Elapsed":0}`,
		"interrupted": `{"Action":"pass","Package":"m/a","Test":"TestGood"}`,
	} {
		t.Run(name, func(t *testing.T) {
			file, _ := kept(t, stream)
			var out strings.Builder
			if err := judge(&out, []string{file}, "", false); err == nil {
				t.Errorf("judged good:\n%s", &out)
			}
		})
	}
}
