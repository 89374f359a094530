package mount

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// HelperEnv is set in the environment of a helper, so that a program that can
// be both tells a helper from what starts one.
const HelperEnv = "BILLET_MOUNT_HELPER"

// Mounter starts helpers.
type Mounter struct {
	// Command starts a process that reads {"helper": Order} from its standard
	// input, calls Private and then Helper.
	Command []string
	// Stderr is where helpers complain; nil: nowhere.
	Stderr io.Writer
}

// helper is a child process that waits for its order.
type helper struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *json.Decoder
}

// start starts a helper that can enter ns, or, when ns is nil, one in a new
// mount namespace.
func (m Mounter) start(ns *Namespace) (*helper, error) {
	cmd := exec.Command(m.Command[0], m.Command[1:]...)
	cmd.Stderr = m.Stderr
	cmd.Env = append(os.Environ(), HelperEnv+"=1")
	if ns == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	} else {
		cmd.ExtraFiles = []*os.File{ns.ns} // becomes namespaceFD
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start mount helper: %w", err)
	}
	return &helper{cmd: cmd, in: in, out: json.NewDecoder(out)}, nil
}

func (h *helper) order(o Order) error {
	return json.NewEncoder(h.in).Encode(map[string]Order{"helper": o})
}

func (h *helper) answer() (answer, error) {
	var a answer
	if err := h.out.Decode(&a); err != nil {
		return a, errors.Join(errNoAnswer, err)
	}
	return a, a.Error.err()
}

// end lets the helper exit and reaps it.
func (h *helper) end() {
	_ = h.in.Close()
	_ = h.cmd.Wait() // its answer told
}

// do gives the order and returns the answer. The caller ends the helper. When
// ctx ends the helper is killed; a call of its that waits in the kernel still
// ends in its own time.
func (h *helper) do(ctx context.Context, o Order) (answer, error) {
	defer context.AfterFunc(ctx, func() { _ = h.cmd.Process.Kill() })()
	if err := h.order(o); err != nil {
		return answer{}, fmt.Errorf("instruct mount helper: %w", err)
	}
	a, err := h.answer()
	if err != nil && ctx.Err() != nil {
		return a, context.Cause(ctx)
	}
	return a, err
}

// run starts a helper for one order.
func (m Mounter) run(ctx context.Context, ns *Namespace, o Order) error {
	h, err := m.start(ns)
	if err != nil {
		return err
	}
	defer h.end()
	_, err = h.do(ctx, o)
	return err
}

// Mounting is a helper in a mount namespace of its own, which waits for the one
// Mount that it is for. The namespace is a copy of this process's at the time
// of Prepare.
type Mounting struct {
	Mounter
	h    *helper
	ns   *Namespace // nil once Mount has given it away
	ends sync.Once
	gone chan struct{} // closed when the helper has been reaped
}

// Prepare starts the helper of a Mount to come, which then need not wait until
// the kernel has executed it. The caller ends it by Mount or End.
func (m Mounter) Prepare() (*Mounting, error) {
	h, err := m.start(nil)
	if err != nil {
		return nil, err
	}
	ns, err := openNamespace(h.cmd.Process.Pid)
	if err != nil {
		h.end()
		return nil, err
	}
	return &Mounting{Mounter: m, h: h, ns: ns, gone: make(chan struct{})}, nil
}

// NamespacePath names the namespace before anything is mounted in it.
func (p *Mounting) NamespacePath() string { return p.ns.Path() }

// End lets the helper go and waits for that; it may be called again.
func (p *Mounting) End() {
	p.letGo()
	<-p.gone
	if p.ns != nil {
		_ = p.ns.Close() // nothing is mounted there
		p.ns = nil
	}
}

// letGo has the helper end while others go on.
func (p *Mounting) letGo() {
	p.ends.Do(func() {
		go func() {
			defer close(p.gone)
			p.h.end()
		}()
	})
}

// Mount attaches, mounts and grows. The disk's path is this process's, the
// directory has to be there in both namespaces. When it fails nothing is left
// behind.
func (p *Mounting) Mount(ctx context.Context, req MountRequest) (*Namespace, Mounted, error) {
	defer p.letGo()
	// Through this process's root: the helper's namespace may be older than
	// what is served here.
	req.Disk = fmt.Sprintf("/proc/%d/root%s", os.Getpid(), req.Disk)
	a, err := p.h.do(ctx, Order{Mount: &req})
	if err != nil {
		return nil, Mounted{}, err
	}
	ns := p.ns
	p.ns = nil
	return ns, *a.Mounted, nil
}

// Unmount returns nil when the loop device is detached; errs.Conflict names
// who holds it.
func (m Mounter) Unmount(ctx context.Context, ns *Namespace, req UnmountRequest) error {
	return m.run(ctx, ns, Order{Unmount: &req})
}

// Sync writes out the file system at dir.
func (m Mounter) Sync(ctx context.Context, ns *Namespace, dir string) error {
	return m.run(ctx, ns, Order{Sync: &DirRequest{Dir: dir}})
}

// Recover detaches the loop devices with that tag after the process that
// served them is gone; none is no error. A file system that something still
// has mounted is errs.Conflict.
func (m Mounter) Recover(ctx context.Context, tag string) error {
	if loops, err := Loops(tag); err != nil || len(loops) == 0 {
		return err
	}
	return m.run(ctx, nil, Order{Recover: &RecoverRequest{Tag: tag}})
}

// Frozen is a file system that writes nothing until Thaw.
type Frozen struct {
	m    Mounter
	ns   *Namespace
	dir  string
	h    *helper
	once sync.Once
	late bool
	err  error
}

// Freeze freezes the file system at dir for at most the given time. Whatever
// becomes of this process, it thaws.
func (m Mounter) Freeze(ctx context.Context, ns *Namespace, dir string, most time.Duration) (*Frozen, error) {
	h, err := m.start(ns)
	if err != nil {
		return nil, err
	}
	// Ending its input, not its life: it has to thaw.
	defer context.AfterFunc(ctx, func() { _ = h.in.Close() })()
	if err = h.order(Order{Freeze: &FreezeRequest{Dir: dir, Most: most}}); err == nil {
		_, err = h.answer()
	}
	if err != nil {
		h.end()
		return nil, err
	}
	return &Frozen{m: m, ns: ns, dir: dir, h: h}, nil
}

// Thaw ends the freeze and reports whether it had lasted until now: false
// means that the deadline came first and guests wrote meanwhile. It may be
// called again. A helper that was killed is replaced by one that thaws.
func (f *Frozen) Thaw() (held bool, err error) {
	f.once.Do(func() {
		_ = f.h.in.Close()
		a, err := f.h.answer()
		f.h.end()
		f.late, f.err = a.Late, err
		if errors.Is(err, errNoAnswer) {
			f.late = true
			f.err = f.m.run(context.Background(), f.ns, Order{Thaw: &DirRequest{Dir: f.dir}})
		}
	})
	return !f.late, f.err
}
