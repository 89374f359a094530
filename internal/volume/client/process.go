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

// Spare is a volume process that waits to be told which volume is its. It has
// a session and a mount namespace of its own, sees the mounts of the moment it
// was started, and ends with the process that started it until it is used.
type Spare struct {
	command []string
	cmd     *exec.Cmd
	feed    *os.File // its standard input
	out     *os.File // its standard output
	reaped  chan struct{}
}

// Prepare starts a volume process by command (such as /proc/self/exe volume).
// Until it serves a volume it complains on stderr.
func Prepare(command []string, stderr *os.File) (*Spare, error) {
	in, feed, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer in.Close()
	out, tell, err := os.Pipe()
	if err != nil {
		_ = feed.Close()
		return nil, err
	}
	defer tell.Close()
	cmd := exec.Command(command[0], command[1:]...)
	// Files, not writers: nothing of this process stands between.
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, tell, stderr
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Cloneflags: syscall.CLONE_NEWNS}
	if err := cmd.Start(); err != nil {
		_, _ = feed.Close(), out.Close()
		return nil, fmt.Errorf("start volume process: %w", err)
	}
	s := &Spare{command: command, cmd: cmd, feed: feed, out: out, reaped: make(chan struct{})}
	// Ends with the process, which the node does not wait for when it ends
	// itself.
	go func() {
		defer close(s.reaped)
		_ = cmd.Wait() // Open's error or Wait tells
	}()
	return s, nil
}

// Alive reports whether the spare waits still.
func (s *Spare) Alive() bool {
	select {
	case <-s.reaped:
		return false
	default:
		return true
	}
}

// Close ends a spare that is not needed, and waits for that.
func (s *Spare) Close() {
	_ = s.feed.Close()
	<-s.reaped
	_ = s.out.Close()
}

// Open has the process serve a volume and returns when its file system is
// mounted. ctx bounds the start alone. When Open fails the process is gone, and
// so is what it had made, but for the overlay. A spare is used once.
//
// mounting, which may be nil, is called before the file system is mounted, with
// where that will be: its path, and the path of its mount namespace.
func (s *Spare) Open(ctx context.Context, cfg protocol.Config, mounting func(rootfs, mountNS string)) (*Client, protocol.Ready, error) {
	cfg.Announce = mounting != nil
	if err := cfg.Check(); err != nil {
		s.Close()
		return nil, protocol.Ready{}, err
	}
	place := protocol.Place(cfg.Dir)
	ready, err := s.open(ctx, place, cfg, mounting)
	if err != nil {
		_ = s.cmd.Process.Kill() // it may have ended
		<-s.reaped
		// The start may have been cut off by ctx; clearing away may not.
		if e := clearAway(context.WithoutCancel(ctx), s.command, place, cfg.Instance); !errs.Is(e, errs.Conflict) {
			err = errors.Join(err, e)
		}
		return nil, protocol.Ready{}, fmt.Errorf("start volume process: %w", err)
	}
	c := newClient(place, s.command, ready.Process)
	c.reaped = s.reaped
	return c, ready, nil
}

func (s *Spare) open(ctx context.Context, place protocol.Place, cfg protocol.Config, mounting func(rootfs, mountNS string)) (protocol.Ready, error) {
	defer s.out.Close()
	defer s.feed.Close()
	document, err := json.Marshal(protocol.Document{Volume: &cfg})
	if err != nil {
		return protocol.Ready{}, err
	}
	if err := place.Make(); err != nil {
		return protocol.Ready{}, err
	}
	// A program that does not read it ends without a ready line. The pipe
	// takes the document whole: it is far smaller than a pipe's buffer.
	_, _ = s.feed.Write(document)
	_ = s.feed.Close()
	return s.ready(ctx, func(ns string) {
		if mounting != nil {
			mounting(place.RootFS(), ns)
		}
	})
}

// Spawn starts a volume process and has it serve a volume, as Prepare and Open
// do.
func Spawn(ctx context.Context, command []string, cfg protocol.Config, mounting func(rootfs, mountNS string)) (*Client, protocol.Ready, error) {
	s, err := Prepare(command, nil)
	if err != nil {
		return nil, protocol.Ready{}, err
	}
	return s.Open(ctx, cfg, mounting)
}

// ready reads the lines.
func (s *Spare) ready(ctx context.Context, mounting func(mountNS string)) (protocol.Ready, error) {
	defer context.AfterFunc(ctx, func() { _ = s.out.SetReadDeadline(time.Now()) })()
	lines := json.NewDecoder(s.out)
	var r protocol.Ready
	err := lines.Decode(&r)
	if err == nil && r.Mounting != "" {
		mounting(r.Mounting)
		r = protocol.Ready{}
		err = lines.Decode(&r)
	}
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
