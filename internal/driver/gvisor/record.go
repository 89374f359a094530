package gvisor

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/billethq/billet/internal/driver"
)

// records is an instance's directory. What lies in it:
//
//	bundle/       the OCI bundle
//	runsc/        runsc's state and control socket
//	sandbox.json  the sandbox process; there once Start has succeeded
//	stopping      there once somebody asked for the guest's end
//	exit.json     how the guest ended; there once no compute is left
//	panic.log     what gVisor's kernel wrote when it gave up
//	metrics.log   written by a sandbox whose PID 1 ended by itself, and only then
//
// No file is synced: what a crash of the host could lose is about processes
// that the crash has ended.
type records string

const (
	bundleDir    = "bundle"
	stateDir     = "runsc"
	sandboxFile  = "sandbox.json"
	stoppingFile = "stopping"
	exitFile     = "exit.json"
	panicFile    = "panic.log"
	metricsFile  = "metrics.log"
	pidFile      = "pid"
)

func (r records) path(name string) string { return filepath.Join(string(r), name) }

// sandbox returns the recorded sandbox process; ok is false when there is none.
func (r records) sandbox() (p process, ok bool, err error) {
	ok, err = r.read(sandboxFile, &p)
	return p, ok, err
}

func (r records) saveSandbox(p process) error { return r.write(sandboxFile, p, os.Rename) }

// exit returns how the guest ended; ok is false when that is not known.
func (r records) exit() (e driver.Exit, ok bool, err error) {
	ok, err = r.read(exitFile, &e)
	return e, ok, err
}

// saveExit records e and returns what is recorded: the first word stands, so
// that everybody who asks, in any process, hears the same.
func (r records) saveExit(e driver.Exit) (driver.Exit, error) {
	err := r.write(exitFile, e, os.Link)
	switch {
	case errors.Is(err, os.ErrExist):
		if first, ok, err := r.exit(); ok || err != nil {
			return first, err
		}
		return e, nil // deleted meanwhile
	case errors.Is(err, os.ErrNotExist):
		return e, nil // deleted meanwhile: nobody will ask
	}
	return e, err
}

func (r records) markStopping() error {
	err := os.WriteFile(r.path(stoppingFile), nil, 0o600)
	if errors.Is(err, os.ErrNotExist) {
		return nil // no directory, so no guest that could leave a record
	}
	return err
}

func (r records) stopping() bool { return exists(r.path(stoppingFile)) }

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

func (r records) read(name string, v any) (bool, error) {
	b, err := os.ReadFile(r.path(name))
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if err := json.Unmarshal(b, v); err != nil {
		return false, fmt.Errorf("%s: %w", r.path(name), err)
	}
	return true, nil
}

// write makes a file appear whole: by os.Rename, which replaces, or by
// os.Link, which refuses to.
func (r records) write(name string, v any, place func(from, to string) error) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	tmp, err := os.CreateTemp(string(r), name+".*")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name()) // gone already after a rename
	_, err = tmp.Write(b)
	if err := errors.Join(err, tmp.Close()); err != nil {
		return err
	}
	return place(tmp.Name(), r.path(name))
}

// head returns the first n bytes of a file, "" when it cannot be read.
func (r records) head(name string, n int64) string {
	f, err := os.Open(r.path(name))
	if err != nil {
		return ""
	}
	defer f.Close()
	b, _ := io.ReadAll(io.LimitReader(f, n))
	return string(b)
}
