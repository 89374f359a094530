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

// OpenBucket opens the object store that a document names.
type OpenBucket func(protocol.StoreConfig) (blob.Bucket, error)

// Main is the process. stdin has one protocol.Document; stdout gets one
// protocol.Ready line, or a helper's answers; stderr gets the log. Both are let
// go once the line is written. The exit code is 0 after a close, 1 after an
// error, which the line has told.
func Main(stdin io.Reader, stdout, stderr io.Writer, open OpenBucket) int {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	signal.Ignore(syscall.SIGHUP, syscall.SIGPIPE)
	log := slog.New(slog.NewTextHandler(stderr, nil))

	in := json.NewDecoder(stdin)
	var doc protocol.Document
	err := in.Decode(&doc)
	if err == nil {
		err = mount.Private()
	}
	switch {
	case err != nil:
		err = errs.Wrap(errs.Invalid, err, "read volume document")
	case doc.Helper != nil:
		return mount.Helper(*doc.Helper, io.MultiReader(in.Buffered(), stdin), stdout)
	case doc.Volume == nil:
		err = errs.New(errs.Invalid, "the volume document is empty")
	default:
		tune(log)
		err = serve(*doc.Volume, open, log, signals, func(r protocol.Ready) error { return say(stdout, r) })
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

// servedError is one that came after the ready line.
type servedError struct{ error }

func (e *servedError) Unwrap() error { return e.error }

// say writes the line and lets go of the pipe: its reader may end any time.
func say(stdout io.Writer, r protocol.Ready) error {
	if err := json.NewEncoder(stdout).Encode(r); err != nil {
		return fmt.Errorf("write ready line: %w", err)
	}
	if c, ok := stdout.(io.Closer); ok {
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
func serve(cfg protocol.Config, open OpenBucket, log *slog.Logger, signals <-chan os.Signal, ready func(protocol.Ready) error) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if err := cfg.Check(); err != nil {
		return err
	}
	log = log.With("instance", string(cfg.Instance))
	s, steps, err := start(ctx, cfg, open, log)
	if err != nil {
		return err
	}
	api, err := s.listen()
	if err != nil {
		return errors.Join(err, s.shutdown(ctx))
	}
	if err := ready(protocol.Ready{Process: s.process, Steps: steps}); err != nil {
		// Nobody knows this volume: a process that stayed would be a leak.
		return errors.Join(err, api.Close(), s.shutdown(ctx))
	}
	log.Info("volume is mounted", "root", cfg.Root.Short(), "loop", s.process.Loop)
	giveBack()
	for {
		select {
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
