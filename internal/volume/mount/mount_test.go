package mount

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/model"
	"github.com/billethq/billet/internal/testenv"
)

func TestMain(m *testing.M) {
	if os.Getenv(HelperEnv) == "" {
		os.Exit(m.Run())
	}
	in := json.NewDecoder(os.Stdin)
	var doc struct{ Helper Order }
	if err := errors.Join(in.Decode(&doc), Private()); err != nil {
		panic(err)
	}
	os.Exit(Helper(doc.Helper, io.MultiReader(in.Buffered(), os.Stdin), os.Stdout))
}

// disk is a file system on a plain file: no server is needed to test what is
// done to it.
type disk struct {
	t   *testing.T
	ctx context.Context
	m   Mounter
	ns  *Namespace
	req MountRequest
}

func newDisk(t *testing.T, size string) *disk {
	t.Helper()
	testenv.LeakCheck(t)
	testenv.NeedLoop(t)
	mkfs := testenv.NeedBinary(t, "mkfs.ext4")
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	host := t.TempDir()
	d := &disk{t: t, ctx: ctx, m: Mounter{Command: []string{"/proc/self/exe"}, Stderr: os.Stderr}, req: MountRequest{
		Disk: filepath.Join(host, "disk"), Dir: filepath.Join(host, "rootfs"), Tag: "billet-test:" + model.NewID(),
	}}
	if err := os.Mkdir(d.req.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if text, err := exec.Command(mkfs, "-q", "-b", "4096", d.req.Disk, size).CombinedOutput(); err != nil {
		t.Fatalf("mkfs.ext4: %v\n%s", err, text)
	}
	return d
}

func (d *disk) tryMount() (*Namespace, Mounted, error) {
	d.t.Helper()
	p, err := d.m.Prepare()
	if err != nil {
		d.t.Fatal(err)
	}
	return p.Mount(d.ctx, d.req)
}

func (d *disk) mount() Mounted {
	d.t.Helper()
	ns, made, err := d.tryMount()
	if err != nil {
		d.t.Fatal(err)
	}
	d.ns = ns
	d.t.Cleanup(func() { _ = ns.Close() })
	return made
}

// in runs fn on a thread of its own in the namespace.
func (d *disk) in(fn func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == os.Getpid() { // the first thread never ends
			done <- d.in(fn)
			runtime.UnlockOSThread()
			return
		}
		if err := enter(int(d.ns.ns.Fd())); err != nil {
			done <- err
			return
		}
		done <- fn()
	}()
	return <-done
}

func (d *disk) unmount() {
	d.t.Helper()
	for range 2 { // it may be repeated
		if err := d.m.Unmount(d.ctx, d.ns, UnmountRequest{Dir: d.req.Dir, Tag: d.req.Tag}); err != nil {
			d.t.Error(err)
		}
	}
}

func (d *disk) loops() []string {
	d.t.Helper()
	loops, err := Loops(d.req.Tag)
	if err != nil {
		d.t.Fatal(err)
	}
	return loops
}

func TestMount_IsSeenInItsNamespaceOnly(t *testing.T) {
	d := newDisk(t, "16m")
	made := d.mount()
	if loops := d.loops(); len(loops) != 1 || loops[0] != made.Loop {
		t.Errorf("loop devices %v, want %s", loops, made.Loop)
	}
	if entries, err := os.ReadDir(d.req.Dir); err != nil || len(entries) != 0 {
		t.Errorf("outside the directory holds %v, %v", entries, err)
	}
	var flags int64
	err := d.in(func() error {
		var st unix.Statfs_t
		err := unix.Statfs(d.req.Dir, &st)
		flags = st.Flags
		return err
	})
	if want := int64(unix.ST_NODEV | unix.ST_NOSUID | unix.ST_NOATIME); err != nil || flags&want != want {
		t.Errorf("mount flags %#x, %v, want %#x", flags, err, want)
	}
	if ro, err := d.ns.ReadOnly(d.req.Dir); ro || err != nil {
		t.Errorf("read-only: %v, %v", ro, err)
	}
	d.unmount()
	if loops := d.loops(); len(loops) != 0 {
		t.Errorf("after the unmount there are %v", loops)
	}
}

func TestMount_NamespaceTakesTheMountAlong(t *testing.T) {
	d := newDisk(t, "16m")
	d.mount()
	if err := d.ns.Close(); err != nil {
		t.Fatal(err)
	}
	if err := waitDetached(d.ctx, d.req.Tag); err != nil {
		t.Error(err)
	}
}

func TestMount_GrowsWhenAsked(t *testing.T) {
	d := newDisk(t, "16m")
	d.req.Size = 1 << 30
	if err := os.Truncate(d.req.Disk, d.req.Size); err != nil {
		t.Fatal(err)
	}
	if made := d.mount(); made.Grown {
		t.Error("grew without being asked")
	}
	d.unmount()
	d.req.Grow = true
	if made := d.mount(); !made.Grown {
		t.Error("did not grow")
	}
	d.unmount()
	if made := d.mount(); made.Grown {
		t.Error("grew twice")
	}
	d.unmount()
}

func TestMount_RefusesWhatIsNoFileSystem(t *testing.T) {
	d := newDisk(t, "16m")
	if err := os.WriteFile(d.req.Disk, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := d.tryMount(); !errs.Is(err, errs.Invalid) {
		t.Errorf("mount of zeros: %v, want invalid", err)
	}
	if loops := d.loops(); len(loops) != 0 {
		t.Errorf("loop devices are left: %v", loops)
	}
}

// writes writes a file and tells when that returned.
func (d *disk) writes() <-chan error {
	done := make(chan error, 1)
	go func() {
		done <- d.in(func() error { return os.WriteFile(filepath.Join(d.req.Dir, "file"), []byte("x"), 0o600) })
	}()
	return done
}

func TestFreeze_HoldsWritesUntilThaw(t *testing.T) {
	d := newDisk(t, "16m")
	d.mount()
	frozen, err := d.m.Freeze(d.ctx, d.ns, d.req.Dir, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	write := d.writes()
	select {
	case err := <-write:
		t.Errorf("a write returned in a frozen file system: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	for range 2 {
		if held, err := frozen.Thaw(); !held || err != nil {
			t.Errorf("thaw: held %v, %v", held, err)
		}
	}
	if err := <-write; err != nil {
		t.Error(err)
	}
	d.unmount()
}

func TestFreeze_EndsAtItsDeadline(t *testing.T) {
	d := newDisk(t, "16m")
	d.mount()
	frozen, err := d.m.Freeze(d.ctx, d.ns, d.req.Dir, 100*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	if err := <-d.writes(); err != nil { // returns without a thaw of ours
		t.Error(err)
	}
	if held, err := frozen.Thaw(); held || err != nil {
		t.Errorf("thaw after the deadline: held %v, %v", held, err)
	}
	d.unmount()
}

func TestFreeze_SurvivesItsHelper(t *testing.T) {
	d := newDisk(t, "16m")
	d.mount()
	frozen, err := d.m.Freeze(d.ctx, d.ns, d.req.Dir, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if err := frozen.h.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if held, err := frozen.Thaw(); held || err != nil {
		t.Errorf("thaw after the helper was killed: held %v, %v", held, err)
	}
	if err := <-d.writes(); err != nil {
		t.Error(err)
	}
	// The same once more, and nobody thaws: the next freeze does.
	frozen, err = d.m.Freeze(d.ctx, d.ns, d.req.Dir, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	_ = frozen.h.cmd.Process.Kill()
	frozen.h.end()
	frozen, err = d.m.Freeze(d.ctx, d.ns, d.req.Dir, time.Minute)
	if err != nil {
		t.Fatalf("freeze of a file system that somebody left frozen: %v", err)
	}
	if held, err := frozen.Thaw(); !held || err != nil {
		t.Errorf("thaw: held %v, %v", held, err)
	}
	d.unmount()
}

func TestRecover_ThawsWhatNobodyHolds(t *testing.T) {
	d := newDisk(t, "16m")
	d.mount()
	frozen, err := d.m.Freeze(d.ctx, d.ns, d.req.Dir, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	_ = frozen.h.cmd.Process.Kill()
	frozen.h.end()
	_ = d.ns.Close()
	if len(d.loops()) != 1 {
		t.Fatal("the frozen file system did not keep its loop device: there is nothing to recover from")
	}
	for range 2 {
		if err := d.m.Recover(d.ctx, d.req.Tag); err != nil {
			t.Fatal(err)
		}
	}
	if loops := d.loops(); len(loops) != 0 {
		t.Errorf("after the recovery there are %v", loops)
	}
}

func TestReadOnly_ReadsTheMountTable(t *testing.T) {
	const table = `21 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,discard
30 21 7:0 / /a\040b/rootfs rw,nosuid - ext4 /dev/loop0 rw,errors=remount-ro
31 21 7:1 / /old rw,nosuid - ext4 /dev/loop1 ro,errors=remount-ro
32 21 7:2 / /new rw,nosuid - ext4 /dev/loop2 rw,emergency_ro
33 21 7:3 / /twice rw - ext4 /dev/loop3 ro
34 33 7:4 / /twice rw - ext4 /dev/loop4 rw
`
	for dir, want := range map[string]bool{"/a b/rootfs": false, "/old": true, "/new": true, "/twice": false} {
		if got, err := readOnly(table, dir); got != want || err != nil {
			t.Errorf("%s: %v, %v, want %v", dir, got, err, want)
		}
	}
	if _, err := readOnly(table, "/none"); !errs.Is(err, errs.NotFound) || !strings.Contains(err.Error(), "/none") {
		t.Errorf("a directory that is not mounted: %v, want not_found", err)
	}
}
