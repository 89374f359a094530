package process

import (
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	pb "github.com/billethq/billet/internal/guest/processpb"
	"github.com/billethq/billet/internal/guest/reaper"
)

const (
	// readSize is how much is taken from a pipe at once: half of what a Linux
	// pipe holds by default.
	readSize = 32 << 10
	// exitQuiet is how long output may stay silent after the command itself has
	// ended before the end is told, although something that it left in the
	// background still holds its output open. What such a thing writes later
	// is read and dropped: closing the pipe would kill it.
	exitQuiet = time.Second
)

// proc is one process and what is left of it.
type proc struct {
	tag    string
	config *pb.ProcessConfig
	ready  chan struct{} // closed when spawned, or failed to
	failed bool          // valid once ready is closed

	// Set before ready is closed.
	pid   uint32
	child *reaper.Child
	in    *input
	out   *output
	tty   *os.File // nil without a terminal

	exited atomic.Bool // the command itself has ended
	table  *table
	kill   *time.Timer // the caller's own time limit; nil without one

	// Guarded by table.mu.
	seen    bool // a client has had the end
	endedAt time.Time
}

// run starts what moves a spawned process's output and notices its end. It
// calls started beside them: the log is a file of the host, and slow.
func (p *proc) run(e *ends, started func()) {
	var pumps, settled sync.WaitGroup
	outs := []struct {
		file *os.File
		c    channel
	}{{e.stdout, stdout}, {e.stderr, stderr}, {e.tty, terminal}}
	for _, o := range outs {
		if o.file == nil {
			continue
		}
		settled.Add(1)
		pumps.Go(func() { p.pump(o.file, o.c, settled.Done) })
	}
	go func() {
		started()
		<-p.child.Done()
		p.exited.Store(true)
		for _, o := range outs {
			if o.file != nil {
				_ = o.file.SetReadDeadline(time.Now().Add(exitQuiet)) // wakes a pump that is reading
			}
		}
		settled.Wait()
		p.in.close()
		if p.kill != nil {
			p.kill.Stop()
		}
		p.out.finish(endEvent(p.child.Status()))
		p.table.end(p)
		pumps.Wait()
		p.table.release()
	}()
}

// pump moves one output until it ends, and calls settled as soon as the
// command has ended and its output is complete or has been quiet.
func (p *proc) pump(f *os.File, c channel, settled func()) {
	defer f.Close()
	settled = sync.OnceFunc(settled)
	defer settled()
	buf := make([]byte, readSize)
	quiet := false
	for {
		if p.exited.Load() && !quiet {
			_ = f.SetReadDeadline(time.Now().Add(exitQuiet))
		}
		n, err := f.Read(buf)
		p.out.append(c, buf[:n])
		if errors.Is(err, os.ErrDeadlineExceeded) && !quiet && c != terminal {
			quiet = true
			_ = f.SetReadDeadline(time.Time{})
			settled()
			continue
		}
		if err != nil {
			return
		}
	}
}

// endEvent tells an exit as the contract does: texts are those of Go's os.
func endEvent(w syscall.WaitStatus) *pb.ProcessEvent_EndEvent {
	end := &pb.ProcessEvent_EndEvent{ExitCode: int32(w.ExitStatus()), Exited: w.Exited()}
	if w.Exited() {
		end.Status = "exit status " + itoa(w.ExitStatus())
	} else {
		end.ExitCode = -1
		end.Status = "signal: " + w.Signal().String()
		if w.CoreDump() {
			end.Status += " (core dumped)"
		}
		sig := uint32(w.Signal())
		end.Signal = &sig
	}
	if end.ExitCode != 0 {
		end.Error = &end.Status
	}
	return end
}
