package agent

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/billethq/billet/internal/guest/process"
	"github.com/billethq/billet/internal/guest/reaper"
	"github.com/billethq/billet/internal/guest/resume"
)

// Grace is how long processes may take to end after SIGTERM before SIGKILL.
const Grace = 3 * time.Second

// Main is the agent as the first process of a guest: it serves until SIGTERM
// and then ends every process, so that what they wrote last is on the disk
// before the disk is saved. SIGUSR1 makes it dial at once. It also works as an
// ordinary process, which then ends only what it started.
func Main(socket, version string, log *slog.Logger) error {
	term := make(chan os.Signal, 1)
	signal.Notify(term, syscall.SIGTERM)
	// Taken and dropped: a signal that the agent was started ignoring would be
	// ignored by every process it starts, and a shell could not even trap it.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGPIPE)
	redial := make(chan os.Signal, 1)
	signal.Notify(redial, syscall.SIGUSR1)

	if os.Getpid() != 1 {
		if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
			return os.NewSyscallError("prctl", err)
		}
	}
	r := reaper.New()
	svc, err := process.New(process.Config{Reaper: r, Log: log})
	if err != nil {
		return err
	}
	res, err := resume.New(resume.Config{Reaper: r, Log: log})
	if err != nil {
		return err
	}
	a, err := New(Config{Socket: socket, Process: svc, Resume: res, Redial: redial, Log: log, Version: version})
	if err != nil {
		return err
	}

	reaping, stopReaping := context.WithCancel(context.Background())
	defer stopReaping()
	go r.Run(reaping) // ends with the process
	serving, stopServing := context.WithCancel(context.Background())
	served := make(chan struct{})
	go func() { defer close(served); a.Run(serving) }()

	<-term
	log.Info("terminating")
	endAll(svc, r)
	stopServing()
	<-served
	return nil
}

// endAll ends all processes: politely, then by force after Grace.
func endAll(svc *process.Service, r *reaper.Reaper) {
	svc.Refuse()
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		if os.Getpid() == 1 {
			_ = unix.Kill(-1, sig) // everything but this process
		}
		svc.SignalAll(sig)
		ctx, cancel := context.WithTimeout(context.Background(), Grace)
		err := r.Drained(ctx)
		cancel()
		if err == nil {
			return
		}
	}
}
