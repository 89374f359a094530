package image

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

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
	for _, stage := range []string{StageFetching, StageFormatting, StageUploading} {
		t.Run(stage, func(t *testing.T) { killBuild(t, stage) })
	}
}

func killBuild(t *testing.T, stage string) {
	b, work := newBuilder(t)
	cmd := exec.Command(os.Args[0], "-test.run=^TestNew_SweepsKilledBuilds$")
	cmd.Env = append(os.Environ(), "BILLET_TEST_BUILDER="+filepath.Dir(work), "BILLET_TEST_STAGE="+stage)
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
	tools := children(t, cmd.Process.Pid)
	if want := map[string]int{StageFormatting: 1}[stage]; len(tools) != want {
		t.Errorf("%d children of the build, want %d", len(tools), want)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	for _, fd := range tools {
		waitGone(t, fd)
	}
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

// children opens the processes that a process started.
func children(t *testing.T, pid int) []int {
	t.Helper()
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil {
		t.Fatal(err)
	}
	var fds []int
	for _, task := range tasks {
		text, err := os.ReadFile(task)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range strings.Fields(string(text)) {
			child, _ := strconv.Atoi(f)
			fd, err := unix.PidfdOpen(child, 0)
			if err != nil {
				t.Fatal(err)
			}
			fds = append(fds, fd)
		}
	}
	return fds
}

// waitGone waits for the end of a process.
func waitGone(t *testing.T, pidfd int) {
	t.Helper()
	defer unix.Close(pidfd)
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}, 30_000)
	if n != 1 || err != nil {
		t.Errorf("a tool of the killed build still runs: %v", err)
	}
}

// stuckBuild builds until the stage it was told, and no further.
func stuckBuild(t *testing.T, base string) {
	bucket, err := dir.Create(filepath.Join(base, "objects"))
	if err != nil {
		t.Fatal(err)
	}
	b, err := New(Config{Bucket: bucket, Dir: filepath.Join(base, "work"), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	input := tarOfFile(t, "noise", string(noise(40<<20)))
	_, err = b.Build(context.Background(), Request{Kind: api.ImageStream, Keys: testKeys()}, bytes.NewReader(input), func(p api.ImageProgress) {
		if p.Stage == os.Getenv("BILLET_TEST_STAGE") && p.Done > 0 {
			fmt.Println("stuck")
			select {}
		}
	})
	t.Fatal(err)
}
