package mount

import (
	"fmt"
	"os"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/billethq/billet/internal/errs"
)

// Namespace is the mount namespace in which one file system is mounted. No
// process needs to be in it: the descriptors keep it, so it ends with the
// process that has them.
type Namespace struct {
	ns    *os.File
	table *os.File // its mountinfo, which can be read when nobody is in it
}

// openNamespace takes the namespace of a process that is in it.
func openNamespace(pid int) (*Namespace, error) {
	ns, err := os.Open(fmt.Sprintf("/proc/%d/ns/mnt", pid))
	if err != nil {
		return nil, fmt.Errorf("open mount namespace: %w", err)
	}
	table, err := os.Open(fmt.Sprintf("/proc/%d/mountinfo", pid))
	if err != nil {
		_ = ns.Close()
		return nil, fmt.Errorf("open mount table: %w", err)
	}
	return &Namespace{ns: ns, table: table}, nil
}

// Path names the namespace to another process of the host, as long as this one
// lives.
func (n *Namespace) Path() string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), n.ns.Fd()) }

// Close lets the namespace go. If nobody else is in it, what is mounted there
// is unmounted.
func (n *Namespace) Close() error {
	err := n.table.Close()
	if e := n.ns.Close(); err == nil {
		err = e
	}
	return err
}

// ReadOnly reports whether the kernel has made the file system at dir
// read-only after an error, from the mount table alone: asking the file system
// could wait for it.
func (n *Namespace) ReadOnly(dir string) (bool, error) {
	buf := make([]byte, maxTable)
	size := 0
	for {
		got, err := n.table.ReadAt(buf[size:], int64(size))
		size += got
		if got == 0 || err != nil || size == len(buf) {
			break // the end is io.EOF
		}
	}
	return readOnly(string(buf[:size]), dir)
}

// maxTable bounds a mount table; a line has about 100 bytes.
const maxTable = 256 << 10

func readOnly(table, dir string) (bool, error) {
	found, is := false, false
	for line := range strings.Lines(table) {
		f := strings.Fields(line)
		if len(f) < 10 || unescape(f[4]) != dir {
			continue
		}
		found, is = true, false // the last line for a path is the one on top
		for option := range strings.SplitSeq(f[len(f)-1], ",") {
			// Newer kernels keep the flag of the mount and say emergency_ro.
			is = is || option == "ro" || option == "emergency_ro" || option == "shutdown"
		}
	}
	if !found {
		return false, errs.New(errs.NotFound, "%s is not mounted", dir)
	}
	return is, nil
}

// unescape undoes the octal escapes of the mount table.
func unescape(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}

// namespaceFD is the descriptor of the namespace in a helper: the first after
// the standard ones.
const namespaceFD = 3

// enter moves the calling goroutine, for good, into a mount namespace. Its
// thread serves nothing else from then on.
func enter(fd int) error {
	runtime.LockOSThread()
	// A thread that shares its working directory with others may not move.
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return fmt.Errorf("unshare: %w", err)
	}
	if err := unix.Setns(fd, unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("enter mount namespace: %w", err)
	}
	return nil
}

// Private makes this process's mount namespace its own, so that its mounts
// reach nobody else. It refuses to run in the host's.
func Private() error {
	mine, err := os.Readlink("/proc/self/ns/mnt")
	if err != nil {
		return err
	}
	if host, err := os.Readlink("/proc/1/ns/mnt"); err == nil && mine == host {
		return errs.New(errs.Invalid, "the process runs in the host's mount namespace").
			WithHint("the node starts it in one of its own")
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	return nil
}
