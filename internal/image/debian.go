package image

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/image/tree"
)

// bootstrapDeadline is far above what a slow link takes (about two minutes): a
// mirror that trickles must not hold a slot for ever.
const bootstrapDeadline = 30 * time.Minute

// sourceDate, 2020-01-01, is what programs in the bootstrap take for today
// where they write it into a file, such as the day of a password's change.
const sourceDate = "1577836800"

// packages are what a person expects to find beside the minimal system.
func packages() []string {
	return []string{
		"bash-completion", "ca-certificates", "curl", "git", "less", "libnss-myhostname",
		"openssh-client", "patch", "procps", "sudo", "unzip", "vim-tiny", "xz-utils",
	}
}

// repository is a Debian archive.
type repository struct{ mirror, suite string }

// bootstrap makes a Debian of the release and from the mirror of this host.
func (j *job) bootstrap(ctx context.Context) (*tree.Tree, string, error) {
	j.report.begin(StageBootstrapping, 0)
	repo, err := hostRepository(ctx)
	if err != nil {
		return nil, "", err
	}
	dir, err := j.work.dir("debian")
	if err != nil {
		return nil, "", err
	}
	// The host's file system tells the time that files made from now on get.
	info, err := os.Stat(dir)
	if err != nil {
		return nil, "", fmt.Errorf("stat bootstrap directory: %w", err)
	}
	root := filepath.Join(dir, "root")
	if err := debootstrap(ctx, repo, root, j.report.say); err != nil {
		return nil, "", err
	}
	t, err := j.newTree()
	if err != nil {
		return nil, "", err
	}
	in := packing(root)
	defer in.Close()
	if err := t.Apply(ctx, in, tree.Archive); err != nil {
		return nil, "", fmt.Errorf("read the bootstrapped root: %w", err)
	}
	if err := settle(t, info.ModTime()); err != nil {
		return nil, "", fmt.Errorf("settle the bootstrapped root: %w", err)
	}
	return t, "debian " + repo.suite, nil
}

// hostRepository reads mirror and release from apt's own configuration, so
// that an image comes from where the host's packages come from.
func hostRepository(ctx context.Context) (repository, error) {
	const hint = "use a host that runs Debian, or import a container image of Debian instead"
	cmd := exec.CommandContext(ctx, "apt-get", "indextargets", "--format", "$(ORIGIN)|$(LABEL)|$(COMPONENT)|$(CODENAME)|$(REPO_URI)", "Created-By: Packages")
	out, err := cmd.Output()
	if err != nil {
		return repository{}, errs.Wrap(errs.Unsupported, err, "ask apt for this host's mirror").(*errs.Error).WithHint(hint)
	}
	if repo, ok := parseTargets(out); ok {
		return repo, nil
	}
	return repository{}, errs.New(errs.Unsupported, "apt on this host names no archive of Debian").WithHint("run apt-get update; " + hint)
}

// parseTargets finds the archive of a release itself, not of its updates.
func parseTargets(out []byte) (repository, bool) {
	for line := range strings.Lines(string(out)) {
		f := strings.SplitN(strings.TrimSpace(line), "|", 5)
		if len(f) != 5 || f[0] != "Debian" || f[1] != "Debian" || f[2] != "main" || strings.Contains(f[3], "-") {
			continue
		}
		u, err := url.Parse(f[4])
		if err == nil && slices.Contains([]string{"http", "https", "file"}, u.Scheme) {
			return repository{mirror: f[4], suite: f[3]}, true
		}
	}
	return repository{}, false
}

// debootstrap runs the program of that name, in a mount and a process
// namespace of its own: when it, or this process, is killed, nothing runs on
// and nothing stays mounted. say gets each line that it prints.
func debootstrap(ctx context.Context, repo repository, root string, say func(string)) error {
	// A person's PATH often lacks the last of these.
	path, err := findDebootstrap(os.Getenv("PATH") + ":/usr/sbin")
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, bootstrapDeadline,
		errs.New(errs.Unavailable, "the bootstrap took longer than %s", bootstrapDeadline).WithHint("check the mirror in /etc/apt"))
	defer cancel()
	cmd := exec.CommandContext(ctx, path, "--force-check-gpg", "--variant=minbase", "--merged-usr",
		"--include="+strings.Join(packages(), ","), repo.suite, root, repo.mirror)
	cmd.Env = bootstrapEnv()
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:   syscall.CLONE_NEWPID | syscall.CLONE_NEWIPC,
		Unshareflags: syscall.CLONE_NEWNS,
		Pdeathsig:    syscall.SIGKILL,
	}
	last, err := runLines(cmd, say)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		return errs.Wrap(errs.Unavailable, err, "debootstrap of %s from %s: %s", repo.suite, redacted(repo.mirror), last).(*errs.Error).
			WithHint("check that this host reaches its mirror: apt-get update")
	}
	return nil
}

// findDebootstrap looks in a list of directories.
func findDebootstrap(dirs string) (string, error) {
	for _, dir := range filepath.SplitList(dirs) {
		if path, err := exec.LookPath(filepath.Join(dir, "debootstrap")); err == nil {
			return path, nil
		}
	}
	return "", errs.New(errs.Unsupported, "debootstrap is not installed").WithHint("apt-get install debootstrap")
}

// bootstrapEnv is a fixed environment and the host's proxies.
func bootstrapEnv() []string {
	env := []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LC_ALL=C.UTF-8", "TZ=UTC",
		"DEBIAN_FRONTEND=noninteractive", "SOURCE_DATE_EPOCH=" + sourceDate}
	for _, name := range []string{"http_proxy", "https_proxy", "no_proxy"} {
		if v := os.Getenv(name); v != "" {
			env = append(env, name+"="+v)
		}
	}
	return env
}

// Bounds of a program's output: a line is cut, and after its end the children
// that still hold its output are waited for that long.
const (
	maxLine   = 4 << 10
	outputEnd = 10 * time.Second
)

// runLines runs cmd, passes on each line of its output and returns the last.
// The thread is kept: a child's parent-death signal is about the thread.
func runLines(cmd *exec.Cmd, say func(string)) (last string, err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	r, w := io.Pipe()
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = w, w, outputEnd
	if err := cmd.Start(); err != nil {
		return "", err
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		in := bufio.NewReaderSize(r, maxLine)
		for {
			line, _, err := in.ReadLine() // a longer line comes in parts
			if err != nil {
				return
			}
			if text := strings.TrimSpace(string(line)); text != "" {
				last = text
				say(text)
			}
		}
	}()
	err = cmd.Wait()
	_ = w.Close()
	<-done
	return last, err
}

// redacted is a mirror without the password that its address may have.
func redacted(mirror string) string {
	u, err := url.Parse(mirror)
	if err != nil {
		return "the mirror"
	}
	u.User = nil
	return u.String()
}

// packageSources is what the guest's apt is told: the release and where it
// came from, without a password.
func packageSources(list []byte) []byte {
	var out bytes.Buffer
	for line := range strings.Lines(string(list)) {
		fields := strings.Fields(line)
		for i, f := range fields {
			if strings.Contains(f, "://") {
				fields[i] = redacted(f)
			}
		}
		fmt.Fprintln(&out, strings.Join(fields, " "))
	}
	return out.Bytes()
}
