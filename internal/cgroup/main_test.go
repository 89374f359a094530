package cgroup

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// childRole is the environment variable that turns this test binary into a
// process for a test to put into a group.
const childRole = "BILLET_TEST_CGROUP_CHILD"

// passMark is what the test binary prints last when it is PID 1 of a virtual
// machine and every test has passed.
const passMark = "billet: every cgroup test has passed"

func TestMain(m *testing.M) {
	if role := os.Getenv(childRole); role != "" {
		os.Exit(child(role))
	}
	if os.Getpid() != 1 {
		os.Exit(m.Run())
	}
	// PID 1 of a QEMU guest (qemu_test.go): make a machine of it first.
	if err := bootMachine(); err != nil {
		fmt.Println("boot:", err)
	} else if m.Run() == 0 {
		fmt.Println(passMark)
	}
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_RESTART)
}

func bootMachine() error {
	for _, m := range []struct{ kind, dir string }{
		{"proc", "/proc"}, {"sysfs", "/sys"}, {"cgroup2", mountPoint}, {"tmpfs", "/tmp"},
	} {
		if err := os.MkdirAll(m.dir, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(m.kind, m.dir, m.kind, 0, ""); err != nil {
			return fmt.Errorf("mount %s: %w", m.dir, err)
		}
	}
	return nil
}

// child waits for a line on its standard input, by which time it is in its
// group, and plays its role.
func child(role string) int {
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
	switch role {
	case "sleep":
		fmt.Println("asleep")
		_, _ = io.Copy(io.Discard, os.Stdin) // until the test goes away
	case "spin":
		var used syscall.Rusage
		for used.Utime.Nano()+used.Stime.Nano() < int64(3*cpuPeriod) {
			_ = syscall.Getrusage(syscall.RUSAGE_SELF, &used)
		}
	case "allocate": // without end
		for {
			b := make([]byte, 1<<20)
			for i := 0; i < len(b); i += os.Getpagesize() {
				b[i] = 1
			}
			hoard = append(hoard, b)
		}
	case "fork": // without end
		refused := 0
		for {
			cmd := exec.Command("/proc/self/exe")
			cmd.Env = append(os.Environ(), childRole+"=sleep")
			cmd.Stdin = os.Stdin
			if cmd.Start() != nil {
				if refused++; refused == 1 {
					fmt.Println("refused")
				}
			}
		}
	}
	return 0
}

var hoard [][]byte

// process is a child that a test has started.
type process struct {
	*exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// startIn starts a child and moves it into g before it does anything.
func startIn(t *testing.T, g Group, role string) process {
	t.Helper()
	p := process{Cmd: exec.Command("/proc/self/exe")}
	// One thread is enough, and a group with few processes must hold them.
	p.Env = append(os.Environ(), childRole+"="+role, "GOMAXPROCS=1")
	var err error
	if p.in, err = p.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := p.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.out = bufio.NewReader(out)
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.Process.Kill()
		_ = p.Wait()
	})
	dirs, err := g.h.dirs(g.path)
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range dirs {
		err := write(dir, []setting{{file: "cgroup.procs", value: strconv.Itoa(p.Process.Pid), optional: true}})
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := io.WriteString(p.in, "go\n"); err != nil {
		t.Fatal(err)
	}
	return p
}

// says waits for a line.
func (p process) says(t *testing.T, want string) {
	t.Helper()
	if line, err := p.out.ReadString('\n'); line != want+"\n" {
		t.Fatalf("child said %q, %v, want %q", line, err, want)
	}
}
