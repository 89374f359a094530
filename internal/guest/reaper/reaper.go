// Package reaper starts child processes and collects them and every orphan.
//
// PID 1 inherits the orphans of the whole guest, and only a wait for any child
// collects them. Such a wait also takes the exit status of children that
// somebody else waits for (os/exec does), so one Reaper starts all children of
// the process and is the only one to wait. Nothing else in the process may use
// os/exec or os.StartProcess.
package reaper

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// ErrGone says that the process has ended and been collected.
var ErrGone = errors.New("process has ended")

// Reaper collects children. Its methods may be called concurrently.
type Reaper struct {
	mu       sync.Mutex // held over fork and wait: a status never arrives before its child is known
	children map[int]*Child
	round    chan struct{} // closed after a status was collected; nil when nobody waits
}

// New returns a Reaper. Run does the work.
func New() *Reaper { return &Reaper{children: make(map[int]*Child)} }

// Child is a process that a Reaper started.
type Child struct {
	reaper *Reaper
	pid    int
	done   chan struct{}
	status syscall.WaitStatus // valid once done is closed
}

// PID is the process's id; it may name another process once Done is closed.
func (c *Child) PID() int { return c.pid }

// Done is closed when the process has been collected.
func (c *Child) Done() <-chan struct{} { return c.done }

// Status is how the process ended. It is valid once Done is closed.
func (c *Child) Status() syscall.WaitStatus { return c.status }

// Run collects children until ctx ends.
func (r *Reaper) Run(ctx context.Context) {
	ended := make(chan os.Signal, 1) // one is enough: each collects all there are
	signal.Notify(ended, syscall.SIGCHLD)
	defer signal.Stop(ended)
	for {
		r.collect()
		select {
		case <-ctx.Done():
			return
		case <-ended:
		}
	}
}

// Drained waits until this process has no children, orphans included: none is
// left anywhere below PID 1. Run must be running.
func (r *Reaper) Drained(ctx context.Context) error {
	for {
		r.mu.Lock()
		if err := unix.Waitid(unix.P_ALL, 0, nil, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil); err == unix.ECHILD {
			r.mu.Unlock()
			return nil
		}
		if r.round == nil {
			r.round = make(chan struct{})
		}
		round := r.round
		r.mu.Unlock()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-round:
		}
	}
}

// Start forks and executes, as syscall.ForkExec does. attr.Sys should set
// Setsid or Setpgid, or Signal would reach the caller's own group.
func (r *Reaper) Start(path string, argv []string, attr *syscall.ProcAttr) (*Child, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	pid, err := syscall.ForkExec(path, argv, attr)
	if err != nil {
		return nil, err
	}
	c := &Child{reaper: r, pid: pid, done: make(chan struct{})}
	r.children[pid] = c
	return c, nil
}

// Signal sends sig to the child's process group, ErrGone once it is collected:
// before that the kernel cannot have given its id to another process.
func (c *Child) Signal(sig syscall.Signal) error {
	c.reaper.mu.Lock()
	defer c.reaper.mu.Unlock()
	select {
	case <-c.done:
		return ErrGone
	default:
	}
	err := syscall.Kill(-c.pid, sig)
	if errors.Is(err, syscall.ESRCH) {
		return ErrGone // a zombie that is about to be collected, alone in its group
	}
	return err
}

// collect waits for every child that has ended.
func (r *Reaper) collect() {
	for {
		r.mu.Lock()
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
		if err == syscall.EINTR {
			r.mu.Unlock()
			continue
		}
		if err != nil || pid <= 0 {
			r.mu.Unlock()
			return
		}
		if r.round != nil {
			close(r.round)
			r.round = nil
		}
		if c := r.children[pid]; c != nil { // else an orphan
			delete(r.children, pid)
			c.status = status
			close(c.done)
		}
		r.mu.Unlock()
	}
}
