package resume

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/billethq/billet/internal/guest"
)

const (
	// maxHooks bounds the programs that run; more than that is no set-up.
	maxHooks = 32
	// hookTime bounds one of them and hooksTime all: somebody waits for the
	// guest, and what takes longer belongs in the background.
	hookTime  = 10 * time.Second
	hooksTime = 20 * time.Second
	// maxOutput is how much of a program's words is reported.
	maxOutput = 2 << 10
)

// runHooks runs the programs of HookDir in the order of their names.
func (s *Service) runHooks(ctx context.Context, in guest.Resumed) ([]guest.HookReport, error) {
	entries, err := os.ReadDir(s.path(guest.HookDir))
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, hooksTime)
	defer cancel()
	env := []string{"BILLET_RESTORE_EPOCH=" + in.Epoch, "BILLET_FORK=0"}
	if in.MachineID != "" {
		env[1] = "BILLET_FORK=1"
	}
	var out []guest.HookReport
	for _, e := range entries {
		path := filepath.Join(s.path(guest.HookDir), e.Name())
		info, err := os.Stat(path)
		if err != nil || !info.Mode().IsRegular() || info.Mode().Perm()&0o111 == 0 {
			continue
		}
		if len(out) == maxHooks {
			return out, errors.New("only the first programs were run")
		}
		out = append(out, s.runHook(ctx, path, env))
	}
	return out, nil
}

func (s *Service) runHook(ctx context.Context, path string, env []string) guest.HookReport {
	ctx, cancel := context.WithTimeout(ctx, hookTime)
	defer cancel()
	began := time.Now()
	code, output, err := s.run(ctx, path, env)
	if err != nil {
		code, output = -1, err.Error()
	}
	s.cfg.Log.Info("resume hook", "path", path, "code", code)
	return guest.HookReport{Name: filepath.Base(path), Code: code, Took: time.Since(began), Output: output}
}

// errTooLong is what is said of a program that was ended.
var errTooLong = errors.New("it had not ended in time, and was ended")

// run executes a program in a session of its own and returns its exit code and
// the end of its output.
func (s *Service) run(ctx context.Context, path string, env []string) (int, string, error) {
	read, write, err := os.Pipe()
	if err != nil {
		return 0, "", err
	}
	defer read.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		return 0, "", errors.Join(err, write.Close())
	}
	defer null.Close()
	child, err := s.cfg.Reaper.Start(path, []string{path}, &syscall.ProcAttr{
		Dir: "/", Files: []uintptr{null.Fd(), write.Fd(), write.Fd()}, Sys: &syscall.SysProcAttr{Setsid: true},
		Env: append([]string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root"}, env...),
	})
	_ = write.Close()
	if err != nil {
		return 0, "", err
	}
	output := make(chan string, 1)
	go func() { output <- tail(read) }()
	ended := true
	select {
	case <-child.Done():
	case <-ctx.Done():
		ended = false
		_ = child.Signal(syscall.SIGKILL) // it may end by itself
		<-child.Done()
	}
	// A child of its own may hold the pipe for ever: what is there is enough.
	_ = read.SetReadDeadline(time.Now().Add(drainTime))
	said := <-output
	if !ended {
		return 0, "", errTooLong
	}
	if status := child.Status(); status.Signaled() {
		return 128 + int(status.Signal()), said, nil
	}
	return child.Status().ExitStatus(), said, nil
}

// drainTime is for output that was written just before a program's end.
const drainTime = 50 * time.Millisecond

// tail reads to the end and returns the last of it.
func tail(r io.Reader) string {
	var kept []byte
	buf := make([]byte, maxOutput)
	for {
		n, err := r.Read(buf)
		kept = append(kept, buf[:n]...)
		kept = kept[max(0, len(kept)-maxOutput):]
		if err != nil {
			return strings.ToValidUTF8(string(kept), "?")
		}
	}
}
