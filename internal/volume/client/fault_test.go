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
	"syscall"
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

// crowded is a volume whose overlay lies on a file system of size, with a file
// that was synced before it was full.
func (w *world) crowded(size string) (v *vol, host string) {
	w.t.Helper()
	host = testenv.TmpfsDir(w.t, size)
	cfg := w.config(w.image)
	cfg.Dir = filepath.Join(host, "volume")
	v = w.spawn(cfg)
	v.write("kept", bigFile()[:mib])
	return v, host
}

// fill writes and syncs files until the disk is full. What it returns tells
// when that came to an end, and how.
func (v *vol) fill() <-chan error {
	ended := make(chan error, 1)
	go func() {
		ended <- v.in(func() error {
			for i := range 40 {
				if err := writeSynced(v.path(fmt.Sprint("fill", i)), bigFile()[:mib]); err != nil {
					return err
				}
			}
			return nil
		})
	}()
	return ended
}

func (v *vol) awaitFull() {
	v.w.t.Helper()
	f, err := v.WaitFault(v.w.ctx)
	v.w.check(err)
	if f.Kind != protocol.FaultDiskFull {
		v.w.t.Errorf("fault %+v, want %s", f, protocol.FaultDiskFull)
	}
}

// TestVolume_FullHostDisk: a write that found no room is held, goes on when
// there is some, and everything that was synced is there.
// invariant 12
func TestVolume_FullHostDisk(t *testing.T) {
	w := newWorld(t)
	v, host := w.crowded("12m")
	ended := v.fill()
	v.awaitFull()
	select {
	case err := <-ended:
		t.Fatalf("the fault was told and the write ended: %v", err)
	default:
	}
	w.check(unix.Mount("", host, "", unix.MS_REMOUNT|unix.MS_NOSUID|unix.MS_NODEV, "size=200m"))
	if err := <-ended; err != nil && !errors.Is(err, unix.ENOSPC) { // of the guest's own disk
		t.Errorf("after there was room the write gave %v", err)
	}
	v.kill()
	v = w.spawn(v.cfg)
	for _, name := range []string{"kept", "fill0", "fill20"} {
		if got := v.read(name); !bytes.Equal(got, bigFile()[:mib]) {
			t.Errorf("%s was synced and is damaged", name)
		}
	}
	v.kill()
}

// TestVolume_FullHostDiskAcknowledgesNothing: a guest that is killed when the
// fault is told never hears how its sync ended, and is gone soon.
// invariant 12
func TestVolume_FullHostDiskAcknowledgesNothing(t *testing.T) {
	w := newWorld(t)
	v, host := w.crowded("12m")
	dd := testenv.NeedBinary(t, "dd")
	guest := exec.Command(dd, "if=/dev/urandom", "of="+v.path("more"), "bs=1M", "count=30", "conv=fsync")
	w.check(v.in(guest.Start))
	v.awaitFull()
	w.check(guest.Process.Kill())
	state, err := guest.Process.Wait()
	w.check(err)
	if how, ok := state.Sys().(syscall.WaitStatus); !ok || how.Signal() != unix.SIGKILL {
		t.Errorf("the guest ended by itself: %v", state)
	}
	// Still full: nothing hangs.
	_ = v.Unmount(w.ctx)
	if v.status().Mounted {
		t.Error("the file system is still mounted")
	}
	w.check(unix.Mount("", host, "", unix.MS_REMOUNT|unix.MS_NOSUID|unix.MS_NODEV, "size=200m"))
	w.check(v.Unmount(w.ctx))
	root := v.saveAll()
	w.check(v.Close(w.ctx))
	v = w.spawn(w.config(root))
	if got := v.read("kept"); !bytes.Equal(got, bigFile()[:mib]) {
		t.Error("a file that was synced before the disk was full is damaged")
	}
	v.write("more", bigFile())
	v.kill()
}

// TestVolume_FullHostDiskUntold: as long as nobody could end the guest the
// write is held; the end of the process lets it go, and so does a call that is
// made when the guest has ended.
// invariant 15
func TestVolume_FullHostDiskUntold(t *testing.T) {
	w := newWorld(t)
	for name, end := range map[string]func(v *vol){
		"kill":    func(v *vol) { v.kill() },
		"unmount": func(v *vol) { _ = v.Unmount(w.ctx) }, // conflict: the writer is in there
	} {
		v, _ := w.crowded("12m")
		ended := v.fill()
		full := func() error {
			log, err := os.ReadFile(protocol.Place(v.cfg.Dir).LogFile())
			if err == nil && !bytes.Contains(log, []byte("no space left")) {
				err = errors.New("the disk is not full yet")
			}
			return err
		}
		testenv.Await(t, 20*time.Second, full)
		select {
		case err := <-ended:
			t.Fatalf("%s: nobody was told and the write ended: %v", name, err)
		default:
		}
		end(v)
		if err := <-ended; err == nil {
			t.Errorf("%s: the write was acknowledged", name)
		}
		v.kill()
	}
}

func TestVolume_ReadOnlyIsAFault(t *testing.T) {
	w := newWorld(t)
	host := testenv.TmpfsDir(t, "12m")
	cfg := w.config(w.image)
	cfg.Dir = filepath.Join(host, "volume")
	v := w.spawn(cfg)
	// The journal meets the full disk: many small files, until the kernel has
	// had enough.
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		_ = v.in(func() error {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return nil
				default:
				}
				_ = writeSynced(v.path(fmt.Sprint("fill", i%40)), bigFile()[:mib])
				for j := range 100 {
					_ = os.WriteFile(v.path(fmt.Sprint("small", i, "-", j)), []byte("x"), 0o600)
				}
			}
		})
	}()
	testenv.Await(t, 45*time.Second, func() error {
		faults := v.status().Faults
		if slices.ContainsFunc(faults, func(f protocol.Fault) bool { return f.Kind == protocol.FaultReadOnly }) {
			return nil
		}
		return fmt.Errorf("no fault says that the file system is read-only: %+v", faults)
	})
	close(stop)
	<-ended
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
