package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/model"
	"github.com/billethq/billet/internal/volume/mount"
	"github.com/billethq/billet/internal/volume/protocol"
)

// Spawn starts a volume process by command (such as /proc/self/exe volume),
// detached, in a session and a mount namespace of its own, and returns when
// its file system is mounted. ctx bounds the start alone. When Spawn fails the
// process is gone, and so is what it had made, but for the overlay.
func Spawn(ctx context.Context, command []string, cfg protocol.Config) (*Client, protocol.Ready, error) {
	if err := cfg.Check(); err != nil {
		return nil, protocol.Ready{}, err
	}
	place := protocol.Place(cfg.Dir)
	if err := place.Make(); err != nil {
		return nil, protocol.Ready{}, err
	}
	child, err := start(command, place, cfg)
	if err != nil {
		return nil, protocol.Ready{}, fmt.Errorf("start volume process: %w", err)
	}
	ready, err := child.ready(ctx)
	if err != nil {
		_ = child.cmd.Process.Kill() // it may have ended
		<-child.reaped
		// The start may have been cut off by ctx; clearing away may not.
		if e := clearAway(context.WithoutCancel(ctx), command, place, cfg.Instance); !errs.Is(e, errs.Conflict) {
			err = errors.Join(err, e)
		}
		return nil, protocol.Ready{}, fmt.Errorf("start volume process: %w", err)
	}
	c := newClient(place, command, ready.Process)
	c.reaped = child.reaped
	return c, ready, nil
}

type child struct {
	cmd    *exec.Cmd
	out    *os.File
	reaped chan struct{}
}

func start(command []string, place protocol.Place, cfg protocol.Config) (*child, error) {
	document, err := json.Marshal(protocol.Document{Volume: &cfg})
	if err != nil {
		return nil, err
	}
	log, err := openLog(place.LogFile())
	if err != nil {
		return nil, err
	}
	defer log.Close()
	in, feed, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer in.Close()
	defer feed.Close()
	out, tell, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer tell.Close()
	cmd := exec.Command(command[0], command[1:]...)
	// Files, not writers: nothing of this process stands between.
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, tell, log
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Cloneflags: syscall.CLONE_NEWNS}
	if err := cmd.Start(); err != nil {
		_ = out.Close()
		return nil, err
	}
	c := &child{cmd: cmd, out: out, reaped: make(chan struct{})}
	// Ends with the process, which the node does not wait for when it ends
	// itself.
	go func() {
		defer close(c.reaped)
		_ = cmd.Wait() // Spawn's error or Wait tells
	}()
	// A program that does not read it ends without a ready line. The pipe
	// takes the document whole: it is far smaller than a pipe's buffer.
	_ = in.Close()
	_, _ = feed.Write(document)
	return c, nil
}

// maxLog is the size beyond which a new process begins a new log. A process
// writes a few lines, unless its disk fails over and over.
const maxLog = 1 << 20

func openLog(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	if info, err := f.Stat(); err == nil && info.Size() > maxLog {
		_ = f.Truncate(0) // a long log is no reason not to start
	}
	return f, nil
}

// ready reads the line.
func (c *child) ready(ctx context.Context) (protocol.Ready, error) {
	defer c.out.Close()
	defer context.AfterFunc(ctx, func() { _ = c.out.SetReadDeadline(time.Now()) })()
	var r protocol.Ready
	err := json.NewDecoder(c.out).Decode(&r)
	switch {
	case err == nil:
		return r, r.Error.Err()
	case ctx.Err() != nil:
		return r, context.Cause(ctx)
	default:
		return r, errs.Wrap(errs.Unavailable, err, "it ended without a word")
	}
}

// Wait returns nil when the process has ended, however.
func (c *Client) Wait(ctx context.Context) error {
	if c.reaped != nil {
		select {
		case <-c.reaped:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	fd, err := unix.PidfdOpen(c.process.PID, unix.PIDFD_NONBLOCK)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("watch volume process %d: %w", c.process.PID, err)
	}
	f := os.NewFile(uintptr(fd), "pidfd")
	defer f.Close()
	// Asked after the descriptor was opened: it is then certainly of the
	// process that we mean, or that one is gone.
	if alive, err := c.process.Alive(); err != nil || !alive {
		return err
	}
	return waitReadable(ctx, f)
}

// waitReadable waits for a pidfd, which is readable once no thread of the
// process is left.
func waitReadable(ctx context.Context, f *os.File) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = f.SetReadDeadline(time.Now()) })()
	var pollErr error
	err = conn.Read(func(fd uintptr) bool {
		var n int
		n, pollErr = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		return n > 0 || pollErr != nil && !errors.Is(pollErr, unix.EINTR)
	})
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return errors.Join(err, pollErr)
}

// Kill ends the process by force and clears away its loop device. What the
// guest wrote and never flushed is lost, as by a power cut. It may be called
// for a process that has ended already. errs.Conflict names who still has the
// file system mounted: end the sandbox first.
func (c *Client) Kill(ctx context.Context) error {
	if alive, err := c.process.Alive(); err != nil {
		return err
	} else if alive {
		if err := unix.Kill(c.process.PID, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("kill volume process %d: %w", c.process.PID, err)
		}
	}
	if err := c.Wait(ctx); err != nil {
		return err
	}
	return clearAway(ctx, c.command, c.place, c.process.Instance)
}

// clearAway detaches what a dead process left. A live one holds the lock, and is
// left alone as errs.Conflict.
func clearAway(ctx context.Context, command []string, place protocol.Place, id model.InstanceID) error {
	lock, err := place.Lock()
	if err != nil {
		return err
	}
	defer lock.Close()
	return mount.Mounter{Command: command}.Recover(ctx, protocol.Tag(id))
}

// Gone returns nil when process and loop device are gone, with every mount;
// else an errs.Conflict that says what is left.
func (c *Client) Gone() error {
	alive, err := c.process.Alive()
	if err != nil {
		return err
	}
	if alive {
		return errs.New(errs.Conflict, "volume process %d runs", c.process.PID)
	}
	loops, err := mount.Loops(protocol.Tag(c.process.Instance))
	if err != nil {
		return err
	}
	if len(loops) > 0 {
		return errs.New(errs.Conflict, "volume process %d is gone, its loop device %s is not", c.process.PID, strings.Join(loops, ", "))
	}
	return nil
}
