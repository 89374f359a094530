// Package daemon is the composition root: it puts the roles of billet together
// on real adapters and runs them until their context ends.
package daemon

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/config"
	"github.com/billethq/billet/internal/errs"
)

// Options are what a daemon is given beside its configuration.
type Options struct {
	Config  config.Config
	Version string
	Out     io.Writer // what people read: found, serving, how to stop
	Log     *slog.Logger
}

// shutdownTimeout bounds how long open requests may take to end when a daemon
// is told to stop; guests are not concerned.
const shutdownTimeout = 10 * time.Second

// lockDir makes dir and locks it for this process. The lock ends with the
// process, however it ends.
func lockDir(dir string) (release func(), err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, errs.Wrap(errs.Internal, err, "create the state directory")
	}
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, errs.Wrap(errs.Internal, err, "open the lock")
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		holder, _ := io.ReadAll(io.LimitReader(f, 32))
		_ = f.Close()
		return nil, errs.New(errs.Conflict, "%s is in use by process %s", dir, strings.TrimSpace(string(holder))).
			WithHint("stop that one first, or use another directory: --state DIR")
	}
	if err != nil {
		_ = f.Close()
		return nil, errs.Wrap(errs.Internal, err, "lock %s", dir)
	}
	_ = f.Truncate(0)
	_, _ = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	return func() { _ = f.Close() }, nil
}

// listenUnix listens on a socket that only its owner can open. A socket file
// that a killed process left is replaced: the directory's lock says that
// nobody serves it.
func listenUnix(path string) (net.Listener, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, errs.Wrap(errs.Internal, err, "replace socket %s", path)
	}
	old := unix.Umask(0o177)
	l, err := net.Listen("unix", path)
	unix.Umask(old)
	if err != nil {
		return nil, errs.Wrap(errs.Internal, err, "listen on %s", path)
	}
	return l, nil
}

// listenLoopback refuses an address that others could reach: there is no
// mutual TLS yet.
func listenLoopback(addr string) (net.Listener, error) {
	if err := api.CheckLoopback(addr); err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", addr)
	if errors.Is(err, unix.EADDRINUSE) {
		return nil, errs.New(errs.Conflict, "%s is in use", addr).WithHint("stop what listens there, or choose another port in the configuration")
	}
	if err != nil {
		return nil, errs.Wrap(errs.Internal, err, "listen on %s", addr)
	}
	return l, nil
}

// serveHTTP serves h on l until ctx ends.
func serveHTTP(ctx context.Context, l net.Listener, h http.Handler) error {
	srv := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second}
	stop := context.AfterFunc(ctx, func() {
		sctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
		defer cancel()
		_ = srv.Shutdown(sctx)
		_ = srv.Close()
	})
	defer stop()
	if err := srv.Serve(l); err != nil && !errors.Is(err, http.ErrServerClosed) {
		return errs.Wrap(errs.Internal, err, "serve")
	}
	return nil
}
