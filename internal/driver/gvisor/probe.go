package gvisor

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/billethq/billet/internal/clock"
	"github.com/billethq/billet/internal/driver"
	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/guest/guestpath"
	"github.com/billethq/billet/internal/model"
)

// probeTimeout bounds a probe, which takes about 0.2 s. A boundary that needs
// longer is not one to run work in.
const probeTimeout = 20 * time.Second

// probeShape is enough for the guest agent and nothing else.
var probeShape = model.Shape{VCPUs: 1, Memory: 256 << 20, Processes: 64, OpenFiles: 256}

// Probe implements driver.Driver: a guest with an empty disk has to boot, and
// its agent to dial the side socket. BootTime is the time until then.
func (d *Driver) Probe(ctx context.Context) (driver.Boundary, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, probeTimeout, fmt.Errorf("no guest came up within %v", probeTimeout))
	defer cancel()
	b, err := d.describe(ctx)
	if err != nil {
		return driver.Boundary{}, &errs.Error{
			Kind: errs.Unsupported, Message: "probe gvisor: examine runsc", Cause: err,
			Hint: "put a runsc that runs on this machine at " + d.runsc,
		}
	}
	if b.BootTime, err = d.bootProbe(ctx); err != nil {
		return driver.Boundary{}, &errs.Error{
			Kind: errs.Unsupported, Message: "probe gvisor: boot a guest", Cause: err,
			Hint: "gVisor needs root, Linux 4.14.77 or later, and the right to make user and mount namespaces",
		}
	}
	return b, nil
}

// describe tells which runsc this is.
func (d *Driver) describe(ctx context.Context) (driver.Boundary, error) {
	machine, err := findMachine(d.runsc)
	if err != nil {
		return driver.Boundary{}, err
	}
	out, err := command{path: d.runsc, args: []string{"--version"}}.run(ctx)
	if err != nil {
		return driver.Boundary{}, err
	}
	line, _, _ := strings.Cut(out, "\n")
	return driver.Boundary{
		Driver:   d.Name(),
		Platform: platform,
		Version:  strings.TrimPrefix(line, "runsc version "),
		Binary:   d.runsc,
		Cgroup:   d.tree.Version(),
		Machine:  machine,
	}, nil
}

func (d *Driver) bootProbe(ctx context.Context) (took time.Duration, err error) {
	base, err := os.MkdirTemp("", "billet-probe-*")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(base)
	spec := driver.Spec{
		Ref:         driver.Ref{ID: model.InstanceID(model.NewID()), Dir: filepath.Join(base, "driver")},
		RootFS:      filepath.Join(base, "root"),
		SideDir:     filepath.Join(base, "side"),
		GuestBinary: d.guest,
		Hostname:    "probe",
		Shape:       probeShape,
	}
	if err := checkSpec(spec); err != nil {
		return 0, err
	}
	for _, dir := range []string{spec.RootFS, spec.SideDir} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return 0, err
		}
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: filepath.Join(spec.SideDir, guestpath.AgentSocket)})
	if err != nil {
		return 0, err
	}
	defer l.Close()
	g, err := d.open(spec.Ref)
	if err != nil {
		return 0, err
	}
	defer func() {
		if end := d.Delete(context.WithoutCancel(ctx), spec.Ref); err == nil {
			err = end
		}
	}()
	if err := g.prepare(ctx, spec); err != nil {
		return 0, err
	}
	return g.bootAttached(ctx, spec, l)
}

// bootAttached runs a guest until it dials l. Unlike every other guest it is
// attached: should the node die in a probe, runsc and the sandbox do as well.
func (g guest) bootAttached(ctx context.Context, spec driver.Spec, l *net.UnixListener) (time.Duration, error) {
	console, err := newConsole()
	if err != nil {
		return 0, err
	}
	defer console.Close()
	watch := clock.Start()
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() {
		ended <- g.runSandbox(ctx, spec, nil, console, "run")
		_ = l.Close() // nobody will dial any more
	}()
	conn, err := l.Accept()
	took := watch.Elapsed()
	cancel()
	run := <-ended
	if err != nil {
		if run == nil {
			run = errs.New(errs.Internal, "its PID 1 ended before it dialled: %s", lastLines(readConsole(console)))
		}
		return 0, run
	}
	return took, conn.Close()
}
