package gvisor

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/billethq/billet/internal/cgroup"
	"github.com/billethq/billet/internal/driver"
	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/guest/guestpath"
)

// hostTasks turns a guest's limit on processes into the host's. One guest
// process costs about 2.6 tasks of the sandbox, which has some of its own. The
// host's limit is the last line: meeting it ends the whole guest.
func hostTasks(processes int) int { return 4*processes + 256 }

func limits(s driver.Spec) cgroup.Limits {
	return cgroup.Limits{CPUs: s.Shape.VCPUs, Memory: s.Shape.Memory, Processes: hostTasks(s.Shape.Processes)}
}

func checkSpec(s driver.Spec) error {
	for _, p := range []struct{ what, path string }{
		{"root file system", s.RootFS}, {"side directory", s.SideDir}, {"guest binary", s.GuestBinary},
	} {
		if !filepath.IsAbs(p.path) {
			return errs.New(errs.Invalid, "path %q of the %s is not absolute", p.path, p.what)
		}
	}
	if s.Shape.VCPUs <= 0 || s.Shape.Memory <= 0 || s.Shape.Processes <= 0 || s.Shape.OpenFiles <= 0 {
		return errs.New(errs.Invalid, "shape %+v is not positive", s.Shape)
	}
	return nil
}

// capabilities of the guest's root. They are of the guest's kernel, which is
// the sandbox's own: what Docker gives, and what a person who is root on a
// machine of their own expects of mount, strace, ip and nice.
var capabilities = []string{
	"CAP_AUDIT_WRITE", "CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_FSETID", "CAP_KILL", "CAP_MKNOD",
	"CAP_NET_BIND_SERVICE", "CAP_NET_RAW", "CAP_SETFCAP", "CAP_SETGID", "CAP_SETPCAP", "CAP_SETUID", "CAP_SYS_CHROOT",
	"CAP_DAC_READ_SEARCH", "CAP_IPC_LOCK", "CAP_LEASE", "CAP_NET_ADMIN", "CAP_SYS_ADMIN", "CAP_SYS_NICE",
	"CAP_SYS_PTRACE", "CAP_SYS_RESOURCE",
}

// bundle returns the OCI specification of a guest. It ends up in memory
// images, so nothing secret may be in it.
func bundle(s driver.Spec, cgroupsPath string) *specs.Spec {
	limit := func(kind string, n int) specs.POSIXRlimit {
		return specs.POSIXRlimit{Type: kind, Soft: uint64(n), Hard: uint64(n)}
	}
	return &specs.Spec{
		Version:  specs.Version,
		Hostname: s.Hostname,
		Root:     &specs.Root{Path: s.RootFS},
		Process: &specs.Process{
			Args: []string{guestpath.Binary},
			Env:  []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root"},
			Cwd:  "/",
			Capabilities: &specs.LinuxCapabilities{
				Bounding: capabilities, Effective: capabilities, Permitted: capabilities,
			},
			Rlimits: []specs.POSIXRlimit{
				limit("RLIMIT_NOFILE", s.Shape.OpenFiles),
				// gVisor only shows this one; the agent may read the tier's limit there.
				limit("RLIMIT_NPROC", s.Shape.Processes),
			},
		},
		Mounts: []specs.Mount{
			{Destination: "/proc", Type: "proc", Source: "proc"},
			{Destination: "/sys", Type: "sysfs", Source: "sysfs"},
			{Destination: "/dev", Type: "tmpfs", Source: "tmpfs"},
			{Destination: "/dev/pts", Type: "devpts", Source: "devpts"},
			memoryMount("/dev/shm", "1777", s.Shape.Memory/2),
			memoryMount("/run", "0755", s.Shape.Memory/5),
			// runsc puts one over an empty /tmp by itself, without a limit:
			// a full one would be the end of the guest.
			memoryMount("/tmp", "1777", s.Shape.Memory/2),
			// Read-only: connecting needs no more, and a guest that could write
			// there would have the host's disk.
			{Destination: guestpath.SideDir, Type: "bind", Source: s.SideDir, Options: []string{"bind", "ro"}},
			{Destination: guestpath.Binary, Type: "bind", Source: s.GuestBinary, Options: []string{"bind", "ro"}},
		},
		Linux: &specs.Linux{
			CgroupsPath: cgroupsPath,
			Namespaces: []specs.LinuxNamespace{
				{Type: specs.PIDNamespace}, {Type: specs.NetworkNamespace}, {Type: specs.IPCNamespace},
				{Type: specs.UTSNamespace}, {Type: specs.MountNamespace},
			},
		},
		Annotations: annotations(s.Labels),
	}
}

// memoryMount is a memory file system that is full before the guest's memory
// is, in the proportions that systemd uses.
func memoryMount(path, mode string, size int64) specs.Mount {
	return specs.Mount{Destination: path, Type: "tmpfs", Source: "tmpfs", Options: []string{
		"nosuid", "nodev", "mode=" + mode, "size=" + strconv.FormatInt(size, 10),
	}}
}

// annotations carry the labels under a prefix of our own, because runsc obeys
// some that it knows.
func annotations(labels map[string]string) map[string]string {
	out := make(map[string]string, len(labels))
	for k, v := range labels {
		out["io.billet.label."+k] = v
	}
	return out
}

func writeBundle(dir string, spec *specs.Spec) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	b, err := json.Marshal(spec)
	if err != nil {
		return fmt.Errorf("encode the bundle: %w", err)
	}
	return os.WriteFile(filepath.Join(dir, "config.json"), b, 0o600)
}
