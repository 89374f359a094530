package gvisor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/billethq/billet/internal/errs"
)

// containerID is the guest's name for runsc. It can be the same for every
// guest, because each has a state directory of its own; it is short, because
// it is part of a Unix socket's path, of which the kernel takes 107 bytes.
const containerID = "guest"

const (
	// startTimeout bounds a cold start, which takes about a tenth of a second.
	startTimeout = 30 * time.Second
	// controlTimeout bounds a question to a running sandbox, which takes
	// about 10 ms. A paused or spinning guest must not hold up its end.
	controlTimeout = 5 * time.Second
	// maxOutput bounds what is kept of runsc's words.
	maxOutput = 4 << 10
)

// globalFlags stand before every command. runsc runs with the instance's
// directory as its working directory: relative paths keep the control socket's
// short, however deep that directory lies.
var globalFlags = []string{"--root=" + stateDir}

// platform is how the sandbox intercepts its guest's system calls. It is the
// one that needs no virtualisation.
const platform = "systrap"

// sandboxFlags choose how guests run.
func sandboxFlags() []string {
	return append([]string{
		"--platform=" + platform,
		// Writes go to the root file system, not to a store of the sandbox.
		"--overlay2=none",
		// Only the sandbox changes the root file system while it runs, so it
		// may trust what it remembers of it.
		"--file-access=exclusive",
		"--directfs=true",
		// No interface but loopback; the side socket is the only way out.
		"--network=none",
		"--host-uds=open",
		// A namespace that dies with the gofer. The default pins one by a
		// mount in the state directory, which a crash would leave behind.
		"--gofer-network-namespace=new",
		// The mount is nosuid for the host's sake; sudo works in the guest.
		"--allow-suid",
		"--cpu-num-from-quota",
		// The goroutine that panicked and no other: with all of them, the log
		// of a guest with many processes has megabytes.
		"--traceback=single",
		"--panic-log=" + panicFile,
		"--final-metrics-log=" + metricsFile,
	}, globalFlags...)
}

// command is one run of runsc.
type command struct {
	path    string
	dir     string
	args    []string
	mountNS *os.File // nil: the caller's
	needs   []string // paths that have to be there, in mountNS
	console *os.File // nil, or what the sandbox inherits as standard error
	doors   []string // of the cgroup in which it runs; none: the node's own
}

func (g guest) command(args ...string) command {
	return command{path: g.runsc, dir: g.ref.Dir, args: append(globalFlags[:len(globalFlags):len(globalFlags)], args...)}
}

// run executes the command and returns its standard output. runsc dies with
// the node, so that no command goes on behind the back of the next node.
func (c command) run(ctx context.Context) (string, error) {
	var out string
	err := errors.New("unreachable")
	done := make(chan struct{})
	go onThrowawayThread(func() {
		defer close(done)
		out, err = c.runHere(ctx)
	})
	<-done
	return out, err
}

// onThrowawayThread runs f on a thread that nothing else runs on before or
// after, for f to change as it likes. The thread ends with the goroutine.
func onThrowawayThread(f func()) {
	runtime.LockOSThread()
	if unix.Gettid() != unix.Getpid() {
		f()
		return // still locked: the runtime ends the thread
	}
	// The process's first thread never ends. Keep it busy, so that a second
	// goroutine is on another one.
	done := make(chan struct{})
	go func() {
		defer close(done)
		onThrowawayThread(f)
	}()
	<-done
	runtime.UnlockOSThread()
}

func (c command) runHere(ctx context.Context) (string, error) {
	if c.mountNS != nil {
		// A thread that shares its root directory with others may not move.
		if err := unix.Unshare(unix.CLONE_FS); err != nil {
			return "", fmt.Errorf("leave the shared root directory: %w", err)
		}
		if err := unix.Setns(int(c.mountNS.Fd()), unix.CLONE_NEWNS); err != nil {
			return "", fmt.Errorf("enter the mount namespace: %w", err)
		}
	}
	for _, path := range c.needs {
		// What runsc says about a mount whose source is missing is EOF.
		if _, err := os.Stat(path); err != nil {
			return "", errs.Wrap(errs.NotFound, err, "look for what the guest is made of")
		}
	}
	stdout, stderr := &bounded{max: maxOutput}, &bounded{max: maxOutput}
	argv := c.argv()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir = c.dir
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
	if c.console != nil {
		// Files, not pipes: the sandbox keeps them, and runsc is done when it
		// has ended, not when everybody has closed them.
		cmd.Stderr = c.console
	} else {
		cmd.Stdout, cmd.Stderr = stdout, stderr
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	cmd.WaitDelay = time.Second
	err := cmd.Run()
	if err == nil {
		return stdout.String(), nil
	}
	if ctx.Err() != nil {
		return "", errs.Wrap(errs.Unavailable, context.Cause(ctx), "run runsc %s", c.verb())
	}
	said := stderr.String()
	if c.console != nil {
		said = readConsole(c.console)
	}
	return "", fmt.Errorf("run runsc %s: %w: %s", c.verb(), err, lastLines(said))
}

// enter goes through the doors up to "--" and becomes what follows. It is a
// shell's work because nothing of ours can run between fork and exec, and the
// shell has one thread.
const enter = `while [ "$1" != -- ]; do echo 0 >"$1" || exit; shift; done; shift; exec "$@"`

func (c command) argv() []string {
	argv := append([]string{c.path}, c.args...)
	if len(c.doors) == 0 {
		return argv
	}
	argv = append([]string{"--"}, argv...)
	return append(append([]string{"/bin/sh", "-c", enter, "sh"}, c.doors...), argv...)
}

// verb is the subcommand, for messages.
func (c command) verb() string {
	for _, a := range c.args {
		if !strings.HasPrefix(a, "-") {
			return a
		}
	}
	return ""
}

// bounded keeps the last max bytes written.
type bounded struct {
	bytes.Buffer
	max int
}

func (b *bounded) Write(p []byte) (int, error) {
	n := len(p)
	if n > b.max {
		p = p[n-b.max:]
	}
	b.Buffer.Write(p)
	if over := b.Len() - b.max; over > 0 {
		b.Next(over)
	}
	return n, nil
}

// lastLines makes runsc's words fit an error: one line, the end of them.
func lastLines(text string) string {
	const most = 400
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > most {
		text = "…" + text[len(text)-most:]
	}
	return text
}
