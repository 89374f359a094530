package client

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/testenv"
	"github.com/billethq/billet/internal/volume/mount"
	"github.com/billethq/billet/internal/volume/protocol"
)

// object finds the stored object that holds the given bytes of the image.
func (w *world) object(part []byte) (index int64, file string) {
	w.t.Helper()
	m, err := w.store.LoadManifest(w.ctx, w.image)
	w.check(err)
	raw := make([]byte, mib)
	for i, e := range m.All() {
		w.check(w.store.GetBlock(w.ctx, e, raw))
		if !bytes.Contains(raw, part) {
			continue
		}
		name := hex.EncodeToString(e.Digest[:])
		w.check(filepath.WalkDir(w.storeAt, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.Name() == name {
				file = path
			}
			return err
		}))
		return i, file
	}
	w.t.Fatal("no block of the image holds these bytes")
	return 0, ""
}

// invariant 8
func TestVolume_FlippedByteIsAnErrorAndAFault(t *testing.T) {
	w := newWorld(t)
	index, file := w.object(bigFile()[mib+1000 : mib+1064])
	raw, err := os.ReadFile(file)
	w.check(err)
	raw[len(raw)/2] ^= 1
	w.check(os.WriteFile(file, raw, 0o600))

	v := w.spawn(w.config(w.image))
	err = v.in(func() error {
		_, err := os.ReadFile(v.path("big"))
		return err
	})
	if !errors.Is(err, unix.EIO) {
		t.Errorf("read of a file in an altered block: %v, want EIO", err)
	}
	f, err := v.WaitFault(w.ctx)
	w.check(err)
	rel, _ := filepath.Rel(w.storeAt, file)
	if f.Kind != protocol.FaultCorruptBlock || f.Block != index || f.Key != rel || f.Root != w.image {
		t.Errorf("fault %+v, want block %d, key %s, root %s", f, index, rel, w.image)
	}
	if got := v.read("etc/passwd"); len(got) == 0 {
		t.Error("another file cannot be read any more")
	}
}

func TestVolume_FullHostDisk(t *testing.T) {
	w := newWorld(t)
	host := testenv.TmpfsDir(t, "12m")
	cfg := w.config(w.image)
	cfg.Dir = filepath.Join(host, "volume")
	v := w.spawn(cfg)
	v.write("kept", bigFile()[:mib])
	var wrote error
	for i := 0; wrote == nil && i < 40; i++ {
		wrote = v.in(func() error { return writeSynced(v.path(fmt.Sprint("fill", i)), bigFile()[:mib]) })
	}
	if wrote == nil {
		t.Fatal("40 MiB were written into 12 MiB")
	}
	f, err := v.WaitFault(w.ctx)
	w.check(err)
	if f.Kind != protocol.FaultDiskFull {
		t.Errorf("fault %+v, want %s", f, protocol.FaultDiskFull)
	}
	t.Logf("write: %v; faults %+v", wrote, v.status().Faults)
	v.kill()
	w.check(unix.Mount("", host, "", unix.MS_REMOUNT|unix.MS_NOSUID|unix.MS_NODEV, "size=200m"))
	v = w.spawn(cfg)
	if got := v.read("kept"); !bytes.Equal(got, bigFile()[:mib]) {
		t.Error("a file that was synced before the disk was full is damaged")
	}
	v.write("more", bigFile())
	v.kill()
}

func TestVolume_ReadOnlyIsAFault(t *testing.T) {
	w := newWorld(t)
	host := testenv.TmpfsDir(t, "12m")
	cfg := w.config(w.image)
	cfg.Dir = filepath.Join(host, "volume")
	v := w.spawn(cfg)
	// The journal meets the full disk: many small files.
	_ = v.in(func() error {
		for i := range 40 {
			_ = os.WriteFile(v.path(fmt.Sprint("fill", i)), bigFile()[:mib], 0o600)
		}
		dir, err := os.Open(v.path(""))
		if err != nil {
			return err
		}
		defer dir.Close()
		for i := range 500 {
			_ = os.WriteFile(v.path(fmt.Sprint("small", i)), []byte("x"), 0o600)
		}
		return unix.Syncfs(int(dir.Fd()))
	})
	testenv.Await(t, 30*time.Second, func() error {
		faults := v.status().Faults
		if slices.ContainsFunc(faults, func(f protocol.Fault) bool { return f.Kind == protocol.FaultReadOnly }) {
			return nil
		}
		// Go on until the kernel has had enough.
		_ = v.in(func() error { return writeSynced(v.path("again"), bigFile()) })
		return fmt.Errorf("no fault says that the file system is read-only: %+v", faults)
	})
	v.kill()
}

func TestVolume_FullStoreAndCache(t *testing.T) {
	w := newWorld(t)
	small := testenv.TmpfsDir(t, "3m")
	cfg := w.config(w.image)
	cfg.Cache.Dir = small // most blocks do not fit
	v := w.spawn(cfg)
	if got := v.read("big"); !bytes.Equal(got, bigFile()) {
		t.Error("with a full cache a file reads differently")
	}
	v.write("new", bigFile())
	up := v.save(true)
	if st := v.status(); st.Root != up.Root || len(st.Faults) != 0 {
		t.Errorf("status %+v", st)
	}
	v.kill()
}

func TestVolume_HeldDiskIsNamed(t *testing.T) {
	w := newWorld(t)
	v := w.spawn(w.config(w.image))
	sandbox := exec.Command("sleep", "100")
	sandbox.Dir = v.path("")
	w.check(v.in(sandbox.Start))
	defer func() { _ = sandbox.Process.Kill(); _ = sandbox.Wait() }()
	err := v.Unmount(w.ctx)
	if !errs.Is(err, errs.Conflict) || !strings.Contains(err.Error(), "sleep (process") {
		t.Errorf("unmount while a process is in the file system: %v, want conflict naming it", err)
	}
	if !v.status().Mounted {
		t.Error("the volume is not mounted any more")
	}
	_ = sandbox.Process.Kill()
	_ = sandbox.Wait()
	w.check(v.Unmount(w.ctx))
	w.check(v.Close(w.ctx))
	w.check(v.Gone())
}

// TestVolume_DeadWithASandbox kills the server under a sandbox that has a
// namespace of its own, as runsc has.
func TestVolume_DeadWithASandbox(t *testing.T) {
	w := newWorld(t)
	v := w.spawn(w.config(w.image))
	sandbox := exec.Command("sleep", "100")
	sandbox.Dir = v.path("")
	sandbox.SysProcAttr = &unix.SysProcAttr{Cloneflags: unix.CLONE_NEWNS}
	w.check(v.in(sandbox.Start))
	defer func() { _ = sandbox.Process.Kill(); _ = sandbox.Wait() }()
	w.check(unix.Kill(v.process.PID, unix.SIGKILL))
	w.check(v.Wait(w.ctx))
	if err := v.Gone(); !errs.Is(err, errs.Conflict) {
		t.Errorf("gone, under a live sandbox: %v, want conflict", err)
	}
	if _, err := os.ReadDir(fmt.Sprintf("/proc/%d/cwd", sandbox.Process.Pid)); err == nil {
		t.Log("a directory that the kernel knows can still be listed")
	}
	_ = sandbox.Process.Kill()
	_ = sandbox.Wait()
	v.kill()
}

// TestVolume_FreezeOutlivesNobody kills the server while the file system is
// frozen and nobody is left to thaw it: it must not keep its loop device.
// invariant 15
func TestVolume_FreezeOutlivesNobody(t *testing.T) {
	w := newWorld(t)
	v := w.spawn(w.config(w.image))
	v.write("note", []byte("x"))
	w.check(v.in(func() error {
		dir, err := os.Open(v.ready.RootFS)
		if err != nil {
			return err
		}
		defer dir.Close()
		const freeze = 0xc0045877 // FIFREEZE
		return unix.IoctlSetInt(int(dir.Fd()), freeze, 0)
	}))
	w.check(unix.Kill(v.process.PID, unix.SIGKILL))
	w.check(v.Wait(w.ctx))
	if loops, err := mount.Loops(protocol.Tag(v.process.Instance)); err != nil || len(loops) != 1 {
		t.Fatalf("loop devices %v, %v: the frozen file system should have kept one", loops, err)
	}
	v.kill()
	v = w.spawn(v.cfg)
	if got := v.read("note"); string(got) != "x" {
		t.Errorf("note reads %q", got)
	}
}
