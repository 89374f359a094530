// Package server is the volume process: one guest's disk, served, mounted and
// uploaded apart from the node, so that a node which stalls, restarts or is
// replaced stalls no guest.
//
// A node starts it detached, in a session and a mount namespace of its own, as
// "billet volume" (package client). It lives until it is told to close or is
// killed. SIGTERM, SIGINT and SIGHUP do not end it while a file system is
// mounted: SIGTERM flushes the overlay, so that a machine that is going down
// loses nothing, and the guest's disk goes on answering until the end.
package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/billethq/billet/internal/blob"
	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/volume/mount"
	"github.com/billethq/billet/internal/volume/protocol"
)

const (
	// memoryLimit is soft: the collector works harder above it. The working
	// set of an upload is a few blocks for each worker.
	memoryLimit = 64 << 20
	// gcPercent trades time for memory: there is one process per guest.
	gcPercent = 50
	// maxProcs is enough for a guest's disk; each more costs buffers.
	maxProcs = 4
	// oomScore makes the kernel kill nearly anything else first: without its
	// disk a guest is lost, without a guest a disk is not.
	oomScore = "-900"
)

// settleAfter is how long after its start a volume gives memory back: then its
// guest is up, and has the processors no more.
const settleAfter = time.Second

// OpenBucket opens the object store that a document names.
type OpenBucket func(protocol.StoreConfig) (blob.Bucket, error)

// Main is the process. stdin has one protocol.Document; stdout gets a
// protocol.Ready line, one before it where the document asks where the file
// system will be, or a helper's answers; stderr gets the log. Both are let go
// once the last line is written. The exit code is 0 after a close, 1 after an
// error, which that line has told.
func Main(stdin io.Reader, stdout, stderr io.Writer, open OpenBucket) int {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	signal.Ignore(syscall.SIGHUP, syscall.SIGPIPE)
	log := slog.New(slog.NewTextHandler(stderr, nil))

	in := json.NewDecoder(stdin)
	err := mount.Private()
	if err == nil && os.Getenv(mount.HelperEnv) != "" {
		return help(in, stdin, stdout)
	}
	if err == nil {
		err = serveDocument(in, open, log, signals, func(r protocol.Ready) error { return say(stdout, r) })
	}
	if err == nil {
		return 0
	}
	var silent *servedError
	if errors.As(err, &silent) {
		log.Error("volume process ends", "error", err)
	} else if e := say(stdout, protocol.Ready{Error: protocol.NewProblem(err)}); e != nil {
		log.Error("volume did not start", "error", err)
	}
	return 1
}

// help does the order on standard input.
func help(in *json.Decoder, stdin io.Reader, stdout io.Writer) int {
	var doc protocol.Document
	switch err := in.Decode(&doc); {
	case errors.Is(err, io.EOF):
		return 0 // it was not needed
	case err != nil || doc.Helper == nil:
		return 1
	}
	return mount.Helper(*doc.Helper, io.MultiReader(in.Buffered(), stdin), stdout)
}

// serveDocument waits for the document and serves its volume. It may wait for
// long, and for nothing: a node keeps one process ready. What can be done
// before is done before.
func serveDocument(in *json.Decoder, open OpenBucket, log *slog.Logger, signals <-chan os.Signal, tell func(protocol.Ready) error) error {
	tune(log)
	// The helper is this very program, started the same way.
	mounting, err := mount.Mounter{Command: append([]string{"/proc/self/exe"}, os.Args[1:]...), Stderr: os.Stderr}.Prepare()
	if err != nil {
		return err
	}
	defer mounting.End()
	var doc protocol.Document
	err = in.Decode(&doc)
	switch {
	case errors.Is(err, io.EOF):
		return nil // the node has ended
	case err != nil:
		return errs.Wrap(errs.Invalid, err, "read volume document")
	case doc.Volume == nil:
		return errs.New(errs.Invalid, "the volume document is empty")
	}
	cfg := *doc.Volume
	if err := cfg.Check(); err != nil {
		return err
	}
	if err := logTo(protocol.Place(cfg.Dir).LogFile()); err != nil {
		return err
	}
	if cfg.Announce {
		if err := tell(protocol.Ready{Mounting: mounting.NamespacePath()}); err != nil {
			return err
		}
	}
	return serve(cfg, open, mounting, log, signals, tell)
}

// maxLog is the size beyond which a new process begins a new log. A process
// writes a few lines, unless its disk fails over and over.
const maxLog = 1 << 20

// logTo makes a file the standard error of this process: its log, and what the
// runtime says of a panic.
func logTo(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("open log: %w", err)
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.Size() > maxLog {
		_ = f.Truncate(0) // a long log is no reason not to start
	}
	if err := unix.Dup3(int(f.Fd()), int(os.Stderr.Fd()), 0); err != nil {
		return fmt.Errorf("open log: %w", err)
	}
	return nil
}

// servedError is one that came after the ready line.
type servedError struct{ error }

func (e *servedError) Unwrap() error { return e.error }

// say writes a line, and lets go of the pipe after the last: its reader may end
// any time.
func say(stdout io.Writer, r protocol.Ready) error {
	if err := json.NewEncoder(stdout).Encode(r); err != nil {
		return fmt.Errorf("write ready line: %w", err)
	}
	if c, ok := stdout.(io.Closer); ok && r.Mounting == "" {
		_ = c.Close() // written already
	}
	return nil
}

func tune(log *slog.Logger) {
	debug.SetGCPercent(gcPercent)
	debug.SetMemoryLimit(memoryLimit)
	runtime.GOMAXPROCS(min(runtime.GOMAXPROCS(0), maxProcs))
	if err := os.WriteFile("/proc/self/oom_score_adj", []byte(oomScore), 0); err != nil {
		log.Warn("out-of-memory score stays as it is", "error", err)
	}
}

// serve runs one volume from its opening to its close.
func serve(cfg protocol.Config, open OpenBucket, mounting *mount.Mounting, log *slog.Logger, signals <-chan os.Signal, tell func(protocol.Ready) error) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	log = log.With("instance", string(cfg.Instance))
	s, steps, err := start(ctx, cfg, open, mounting, log)
	if err != nil {
		return err
	}
	api, err := s.listen()
	if err != nil {
		return errors.Join(err, s.shutdown(ctx))
	}
	if err := tell(protocol.Ready{Process: s.process, Steps: steps}); err != nil {
		// Nobody knows this volume: a process that stayed would be a leak.
		return errors.Join(err, api.Close(), s.shutdown(ctx))
	}
	log.Info("volume is mounted", "root", cfg.Root.Short(), "loop", s.process.Loop)
	settled := time.NewTimer(settleAfter)
	defer settled.Stop()
	for {
		select {
		case <-settled.C:
			giveBack()
		case <-signals:
			log.Info("told to end: flushing, and serving on")
			if err := s.dev.Flush(); err != nil {
				log.Error("flush overlay", "error", err)
			}
		case <-s.closed:
			err := api.Shutdown(ctx)
			log.Info("volume is closed")
			if err != nil {
				return &servedError{err}
			}
			return nil
		}
	}
}
