package image

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"log/slog"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/blob/dir"
)

// TestNew_SweepsKilledBuilds runs a builder in a process of its own, which
// stops in the middle of its input, and kills it.
func TestNew_SweepsKilledBuilds(t *testing.T) {
	if base := os.Getenv("BILLET_TEST_BUILDER"); base != "" {
		stuckBuild(t, base)
		return
	}
	b, work := newBuilder(t)
	cmd := exec.Command(os.Args[0], "-test.run=^TestNew_SweepsKilledBuilds$")
	cmd.Env = append(os.Environ(), "BILLET_TEST_BUILDER="+filepath.Dir(work))
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || line != "stuck\n" {
		t.Fatalf("builder said %q, %v", line, err)
	}
	again := func() []string {
		t.Helper()
		swept, err := sweep(work)
		if err != nil {
			t.Fatal(err)
		}
		return swept
	}
	if got := again(); len(got) != 0 {
		t.Errorf("swept %v of a build that is alive", got)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	left, err := filepath.Glob(filepath.Join(work, workPrefix+"*"))
	if err != nil || len(left) != 1 {
		t.Fatalf("the killed build left %v, %v", left, err)
	}
	if _, err := New(b.cfg); err != nil {
		t.Fatal(err)
	}
	assertClean(t, work)
	if got := again(); !slices.Equal(got, nil) {
		t.Errorf("swept %v twice", got)
	}
}

// stuckBuild builds from an input that never ends.
func stuckBuild(t *testing.T, base string) {
	bucket, err := dir.Open(filepath.Join(base, "objects"))
	if err != nil {
		t.Fatal(err)
	}
	b, err := New(Config{Bucket: bucket, Dir: filepath.Join(base, "work"), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	_, err = b.Build(context.Background(), Request{Kind: api.ImageStream, Keys: testKeys()}, stuck{}, nil)
	t.Fatal(err)
}

type stuck struct{}

func (stuck) Read([]byte) (int, error) {
	fmt.Println("stuck")
	r, _ := io.Pipe()
	return r.Read(make([]byte, 1))
}
