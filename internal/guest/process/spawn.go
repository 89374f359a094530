package process

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sort"
	"strconv"
	"strings"
	"syscall"

	"connectrpc.com/connect"
	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	"github.com/billethq/billet/internal/guest"
	pb "github.com/billethq/billet/internal/guest/processpb"
	"github.com/billethq/billet/internal/guest/reaper"
	"github.com/billethq/billet/internal/guest/users"
)

// defaultPath is the search path of a process whose request names none.
const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// ends are the parent's sides of a process's files. Unused ones are nil.
type ends struct {
	stdin, stdout, stderr *os.File
	tty                   *os.File // instead of the three above
}

func (e *ends) close() {
	for _, f := range []*os.File{e.stdin, e.stdout, e.stderr, e.tty} {
		if f != nil {
			_ = f.Close()
		}
	}
}

// spawn starts the command of req as u.
func spawn(r *reaper.Reaper, u users.User, req *pb.StartRequest) (*reaper.Child, *ends, error) {
	cfg := req.GetProcess()
	cwd, err := workDir(cfg, u)
	if err != nil {
		return nil, nil, connect.NewError(connect.CodeInvalidArgument, err)
	}
	env, path, err := environ(cfg.GetEnvs(), u, req.GetPty() != nil)
	if err != nil {
		return nil, nil, connect.NewError(connect.CodeInvalidArgument, err)
	}
	file, err := lookPath(cfg.GetCmd(), path, cwd)
	if err != nil {
		return nil, nil, execError(cfg.GetCmd(), err)
	}
	parent, child, err := open(req, u)
	if err != nil {
		return nil, nil, connect.NewError(connect.CodeInternal, err)
	}
	defer closeAll(child)
	attr := &syscall.ProcAttr{
		Dir: cwd,
		Env: env,
		Sys: &syscall.SysProcAttr{
			// Its own session: signals go to its group, and never to the
			// agent's; no process finds another's terminal.
			Setsid:  true,
			Setctty: req.GetPty() != nil, // Ctty 0: the child's standard input
		},
	}
	for _, fd := range child {
		attr.Files = append(attr.Files, uintptr(fd))
	}
	if os.Geteuid() == 0 {
		attr.Sys.Credential = &syscall.Credential{Uid: u.UID, Gid: u.GID, Groups: u.Groups}
	}
	c, err := r.Start(file, append([]string{cfg.GetCmd()}, cfg.GetArgs()...), attr)
	if err != nil {
		parent.close()
		return nil, nil, execError(cfg.GetCmd(), err)
	}
	return c, parent, nil
}

// execError is the contract's error for a command that cannot be executed,
// with the exit code that a shell would give.
func execError(cmd string, err error) error {
	code := 126
	if errors.Is(err, fs.ErrNotExist) {
		code = 127
	}
	var errno syscall.Errno
	if errors.As(err, &errno) {
		err = errno
	}
	e := connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("execute %q: %w", cmd, err))
	e.Meta().Set(guest.HeaderExitCode, strconv.Itoa(code))
	return e
}

// workDir is the requested directory, or the user's home if it exists, or "/".
func workDir(cfg *pb.ProcessConfig, u users.User) (string, error) {
	cwd := cfg.GetCwd()
	switch {
	case cwd == "":
		if info, err := os.Stat(u.Home); err != nil || !info.IsDir() {
			return "/", nil
		}
		return u.Home, nil
	case cwd == "~" || strings.HasPrefix(cwd, "~/"):
		cwd = u.Home + cwd[1:]
	case !strings.HasPrefix(cwd, "/"):
		cwd = u.Home + "/" + cwd
	}
	info, err := os.Stat(cwd)
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("cwd '%s' does not exist", cwd)
	}
	if err != nil {
		return "", err
	}
	if !info.IsDir() {
		return "", fmt.Errorf("cwd '%s' is not a directory", cwd)
	}
	return cwd, nil
}

// environ is the process's environment, sorted, and its PATH.
func environ(envs map[string]string, u users.User, hasTTY bool) (env []string, path string, err error) {
	vars := map[string]string{
		"PATH": defaultPath, "HOME": u.Home, "USER": u.Name, "LOGNAME": u.Name, "SHELL": u.Shell,
	}
	if hasTTY {
		vars["TERM"] = "xterm-256color"
	}
	for k, v := range envs {
		if k == "" || strings.ContainsAny(k, "=\x00") || strings.Contains(v, "\x00") {
			return nil, "", fmt.Errorf("environment variable %q: invalid name or value", k)
		}
		vars[k] = v
	}
	for k, v := range vars {
		env = append(env, k+"="+v)
	}
	sort.Strings(env)
	return env, vars["PATH"], nil
}

// open makes the files of a process: the parent's ends, and the child's three
// descriptors, which may be the same one and are the caller's to close.
func open(req *pb.StartRequest, u users.User) (*ends, []int, error) {
	if req.GetPty() != nil {
		return openTTY(req.GetPty().GetSize(), u)
	}
	var (
		parent ends
		child  []int
	)
	fail := func(err error) (*ends, []int, error) {
		parent.close()
		closeAll(child)
		return nil, nil, err
	}
	if req.Stdin == nil || req.GetStdin() {
		fd, f, err := pipe("stdin", true)
		if err != nil {
			return fail(err)
		}
		parent.stdin, child = f, append(child, fd)
	} else {
		fd, err := unix.Open(os.DevNull, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return fail(err)
		}
		child = append(child, fd)
	}
	for _, out := range []struct {
		name string
		file **os.File
	}{{"stdout", &parent.stdout}, {"stderr", &parent.stderr}} {
		fd, f, err := pipe(out.name, false)
		if err != nil {
			return fail(err)
		}
		*out.file, child = f, append(child, fd)
	}
	return &parent, child, nil
}

// pipe makes a pipe whose parent's end the runtime polls, so that reads and
// writes can be given up; the child's end blocks, as programs expect.
func pipe(name string, parentWrites bool) (child int, parent *os.File, err error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return 0, nil, os.NewSyscallError("pipe2", err)
	}
	mine, child := fds[0], fds[1]
	if parentWrites {
		mine, child = child, mine
	}
	f, err := polled(mine, name)
	if err != nil {
		_ = unix.Close(child)
		return 0, nil, err
	}
	return child, f, nil
}

// polled takes a descriptor over whose only status flag is to be O_NONBLOCK.
func polled(fd int, name string) (*os.File, error) {
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFL, unix.O_NONBLOCK); err != nil {
		_ = unix.Close(fd)
		return nil, os.NewSyscallError("fcntl", err)
	}
	return os.NewFile(uintptr(fd), name), nil
}

// openTTY makes a terminal. The library's file is blocking, so that a read
// could not be given up; the description is taken over by a polled file.
func openTTY(size *pb.PTY_Size, u users.User) (*ends, []int, error) {
	master, slave, err := pty.Open()
	if err != nil {
		return nil, nil, err
	}
	defer master.Close()
	defer slave.Close()
	// tmux, gpg and others open their terminal again by name. Refused where
	// the terminal file system has fixed owners, which harms only them.
	_ = slave.Chown(int(u.UID), -1)
	if err := pty.Setsize(master, winsize(size)); err != nil {
		return nil, nil, err
	}
	mine, err := unix.FcntlInt(master.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("dup", err)
	}
	tty, err := polled(mine, "tty")
	if err != nil {
		return nil, nil, err
	}
	child, err := unix.FcntlInt(slave.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err == nil {
		err = unix.SetNonblock(child, false)
	}
	if err != nil {
		_ = tty.Close()
		return nil, nil, os.NewSyscallError("dup", err)
	}
	return &ends{tty: tty}, []int{child, child, child}, nil
}

// winsize is the terminal size asked for, 80×24 where it says nothing.
func winsize(size *pb.PTY_Size) *pty.Winsize {
	w := &pty.Winsize{Cols: uint16(min(size.GetCols(), 1<<16-1)), Rows: uint16(min(size.GetRows(), 1<<16-1))}
	if w.Cols == 0 || w.Rows == 0 {
		w.Cols, w.Rows = 80, 24
	}
	return w
}

func closeAll(fds []int) {
	for i, fd := range fds {
		if i == 0 || fd != fds[i-1] {
			_ = unix.Close(fd)
		}
	}
}
