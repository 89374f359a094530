package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/atomicfile"
	"github.com/billethq/billet/internal/clock"
	"github.com/billethq/billet/internal/config"
	"github.com/billethq/billet/internal/driver"
	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/fleet"
	"github.com/billethq/billet/internal/model"
	"github.com/billethq/billet/internal/node"
)

// nodeParts is a node with its adapters, put together and not yet run.
type nodeParts struct {
	node     *node.Node
	boundary driver.Boundary
	capacity model.Capacity
	release  func()
}

// openNode probes the sandbox boundary by booting a guest, measures the host,
// and puts the node together.
func openNode(ctx context.Context, opts Options, plane informedPlane) (_ *nodeParts, err error) {
	cfg := opts.Config
	release, err := lockDir(cfg.NodeDir())
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			release()
		}
	}()
	log := opts.Log.With("role", "node")
	guest, err := installGuest(cfg)
	if err != nil {
		return nil, err
	}
	drv, err := newDriver(cfg, guest, log)
	if err != nil {
		return nil, err
	}
	boundary, err := drv.Probe(ctx)
	if err != nil {
		return nil, err
	}
	capacity, err := measure(cfg)
	if err != nil {
		return nil, err
	}
	vols, err := newVolumes(cfg, log)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			vols.close()
		}
	}()
	images, err := newImages(ctx, cfg, plane, log)
	if err != nil {
		return nil, err
	}
	n, err := node.New(node.Config{
		Dir: cfg.NodeDir(), Name: cfg.Node.Name, Version: opts.Version, Plane: plane, Driver: drv, Volumes: vols,
		Images: images, GuestBinary: guest, Capacity: capacity, Machine: boundary.Machine, Clock: clock.Real{}, Log: log,
	})
	if err != nil {
		return nil, err
	}
	return &nodeParts{node: n, boundary: boundary, capacity: capacity, release: func() { vols.close(); release() }}, nil
}

// Node runs the node alone, against a server that it finds over HTTP.
func Node(ctx context.Context, opts Options) error {
	client, err := nodeClient(opts.Config)
	if err != nil {
		return err
	}
	defer client.Close()
	n, err := openNode(ctx, opts, client)
	if err != nil {
		return err
	}
	defer n.release()
	n.found(opts)
	say(opts.Out, "serving", "instances of %s as node %s", opts.Config.NodeServer(), opts.Config.Node.Name)
	sayStop(opts.Out)
	return n.node.Run(ctx)
}

// nodeClient is the client with which a node calls its server.
func nodeClient(cfg config.Config) (*api.Client, error) {
	ep, err := api.ParseEndpoint(cfg.NodeServer())
	if err != nil {
		return nil, err
	}
	token, err := readToken(cfg.NodeTokenFile(), model.RoleNode)
	if err != nil {
		return nil, err
	}
	return api.NewClient(api.ClientConfig{Endpoint: ep, Token: token})
}

// readToken returns the token of a role; errs.Unauthenticated when there is
// none.
func readToken(file string, role model.Role) (api.Secret, error) {
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return "", errs.New(errs.Unauthenticated, "there is no token file %s", file).
			WithHint("make one on the server: billet token create --role %s NAME > %s", role, file)
	}
	return api.Secret(strings.TrimSpace(string(text))), errs.Wrap(errs.Denied, err, "read the %s's token", role)
}

// found says what this host has.
func (n *nodeParts) found(opts Options) {
	b := n.boundary
	say(opts.Out, "boundary", "%s (%s, %s) booted a probe in %d ms; cgroup v%d", b.Driver, b.Platform, b.Version, b.BootTime.Milliseconds(), b.Cgroup)
	c := n.capacity
	text := fmt.Sprintf("%d CPUs, %s of memory and %s of disk for instances", c.VCPUs/fleet.CPUOvercommit, model.Size(c.Memory), model.Size(c.Disk/fleet.DiskOvercommit))
	// What is offered says nothing of what is there: a full disk offers as much.
	if total, free, err := space(opts.Config.NodeDir()); err == nil {
		text += fmt.Sprintf("; of the file system's %s, %s are free", model.Size(total), model.Size(free))
	}
	say(opts.Out, "host", "%s", text)
}

// space measures the file system under dir.
func space(dir string) (total, free int64, err error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, 0, errs.Wrap(errs.Internal, err, "measure the disk")
	}
	return int64(st.Blocks) * st.Bsize, int64(st.Bavail) * st.Bsize, nil
}

// memoryReserve is the part of the host's memory that instances do not get:
// a tenth, for the kernel's page cache, the volume processes and billet.
const memoryReserve = 10

// measure returns what the host offers, where the configuration does not say.
func measure(cfg config.Config) (model.Capacity, error) {
	c := cfg.Node.Capacity
	if c.VCPUs == 0 {
		c.VCPUs = runtime.NumCPU() * fleet.CPUOvercommit
	}
	if c.Memory == 0 {
		var si unix.Sysinfo_t
		if err := unix.Sysinfo(&si); err != nil {
			return c, errs.Wrap(errs.Internal, err, "measure memory")
		}
		total := int64(si.Totalram) * int64(si.Unit)
		c.Memory = total - total/memoryReserve
	}
	if c.Disk == 0 {
		total, _, err := space(cfg.NodeDir())
		if err != nil {
			return c, err
		}
		c.Disk = total * fleet.DiskOvercommit
	}
	return c, nil
}

// installGuest copies billet-guest, which lies beside the billet binary, into
// the node's directory: guests get it from there, and an upgrade of billet
// reaches a guest at its next start and never in the middle of its life.
func installGuest(cfg config.Config) (string, error) {
	src, err := beside("billet-guest")
	if err != nil {
		return "", err
	}
	body, err := os.ReadFile(src)
	if err != nil {
		return "", errs.Wrap(errs.Internal, err, "read billet-guest")
	}
	dir := filepath.Join(cfg.NodeDir(), "bin")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", errs.Wrap(errs.Internal, err, "create %s", dir)
	}
	dst := filepath.Join(dir, "billet-guest")
	if old, err := os.ReadFile(dst); err == nil && string(old) == string(body) {
		return dst, nil
	}
	if err := atomicfile.Write(dst, body, 0o755); err != nil {
		return "", errs.Wrap(errs.Internal, err, "install billet-guest")
	}
	return dst, nil
}

// beside finds a program that is shipped with billet: next to its binary, or
// on the PATH.
func beside(name string) (string, error) {
	exe, err := os.Executable()
	if err != nil {
		return "", errs.Wrap(errs.Internal, err, "find billet's own binary")
	}
	path := filepath.Join(filepath.Dir(exe), name)
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	return lookPath(name)
}
