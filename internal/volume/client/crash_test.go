package client

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/failpoint"
	"github.com/billethq/billet/internal/model"
	"github.com/billethq/billet/internal/testenv"
	"github.com/billethq/billet/internal/volume/mount"
	"github.com/billethq/billet/internal/volume/protocol"
)

// buildProcess builds this test binary, which is a volume process too, without
// the race detector. tags may be "".
func buildProcess(t *testing.T, tags string) []string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "volume")
	cmd := exec.Command("go", "test", "-c", "-tags="+tags, "-ldflags=-s -w", "-o", out, "./internal/volume/client")
	cmd.Dir = testenv.Root(t)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build volume process: %v\n%s", err, text)
	}
	return []string{out}
}

// points arms failpoints in the processes that are started from now on.
type points struct {
	t   *testing.T
	dir string
}

func newPoints(t *testing.T) *points {
	p := &points{t: t, dir: t.TempDir()}
	t.Setenv("BILLET_FAILPOINTS", p.dir)
	return p
}

func (p *points) arm(s failpoint.Step) {
	if err := os.WriteFile(filepath.Join(p.dir, string(s)), nil, 0o600); err != nil {
		p.t.Fatal(err)
	}
}

// kill waits until a process has reached s and kills it there.
func (p *points) kill(s failpoint.Step) {
	p.t.Helper()
	armed := filepath.Join(p.dir, string(s))
	hit := armed + ".hit"
	var pid int
	testenv.Await(p.t, 20*time.Second, func() error {
		raw, err := os.ReadFile(hit)
		if err == nil {
			pid, err = strconv.Atoi(string(raw))
		}
		return err
	})
	if err := errors.Join(unix.Kill(pid, unix.SIGKILL), os.Remove(armed), os.Remove(hit)); err != nil {
		p.t.Fatal(err)
	}
}

// TestVolume_KilledAtEachStep kills the process at each of its steps and looks
// for everything that was synced before, on this host and on another.
// invariant 12
// invariant 16
func TestVolume_KilledAtEachStep(t *testing.T) {
	w := newWorld(t)
	p := newPoints(t)
	w.command = buildProcess(t, "failpoint")
	create := func(s failpoint.Step) {
		cfg := w.config(w.image)
		cfg.Size = gib // so that the file system grows, too
		p.arm(s)
		failed := make(chan error)
		go func() {
			_, _, err := Spawn(w.ctx, w.command, cfg, nil)
			failed <- err
		}()
		p.kill(s)
		if err := <-failed; !errs.Is(err, errs.Unavailable) {
			t.Errorf("%s: spawn of a killed process: %v, want unavailable", s, err)
		}
		if loops, err := mount.Loops(protocol.Tag(cfg.Instance)); err != nil || len(loops) != 0 {
			t.Errorf("%s: loop devices are left: %v, %v", s, loops, err)
		}
		v := w.spawn(cfg)
		if !bytes.Equal(v.read("big"), bigFile()) {
			t.Errorf("%s: the image reads differently", s)
		}
		v.kill()
	}
	create(failpoint.CreateVolume)
	create(failpoint.CreateMounted)

	// Each step of a flush. committed: the ledger has the root when the
	// process is found dead.
	flush := func(s failpoint.Step, committed bool) {
		w.epoch++
		w.seq = 0
		cfg := w.config(w.image)
		v := w.spawn(cfg)
		v.write("before", bigFile()[:2*mib])
		p.arm(s)
		roots := make(chan model.Root, 1)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_ = v.flush(roots)
		}()
		p.kill(s)
		<-ended
		v.kill()
		if committed {
			cfg.Root = uploadedRoot(t, w, roots)
		}
		v = w.spawn(cfg)
		if !bytes.Equal(v.read("before"), bigFile()[:2*mib]) {
			t.Errorf("%s: what was synced is lost", s)
		}
		v.write("after", []byte("still writable"))
		up := v.saveAll()
		v.kill()
		v = w.spawn(w.config(up))
		if !bytes.Equal(v.read("before"), bigFile()[:2*mib]) || string(v.read("after")) != "still writable" {
			t.Errorf("%s: the snapshot made afterwards is not whole", s)
		}
		v.kill()
	}
	flush(failpoint.FlushFrozen, false)
	flush(failpoint.FlushSealed, false)
	flush(failpoint.FlushBlocks, false)
	flush(failpoint.FlushRoot, false)
	flush(failpoint.FlushDropped, true)

	w.epoch++
	w.seq = 0
	cfg := w.config(w.image)
	v := w.spawn(cfg)
	v.write("before", bigFile())
	p.arm(failpoint.StopUnmounted)
	ended := make(chan error)
	go func() { ended <- v.Unmount(w.ctx) }()
	p.kill(failpoint.StopUnmounted)
	<-ended
	v.kill()
	v = w.spawn(cfg)
	if !bytes.Equal(v.read("before"), bigFile()) {
		t.Error("killed after the unmount: what was written is lost")
	}
	v.kill()
}

// flush is what a node does every few minutes. It tells the uploaded root.
func (v *vol) flush(roots chan<- model.Root) error {
	if _, err := v.Seal(v.w.ctx, true); err != nil {
		return err
	}
	up, err := v.Upload(v.w.ctx, v.w.intent(1))
	if err != nil {
		return err
	}
	roots <- up.Root
	return v.Committed(v.w.ctx, up.Root)
}

func uploadedRoot(t *testing.T, w *world, roots <-chan model.Root) model.Root {
	t.Helper()
	select {
	case r := <-roots:
		w.seq = 1
		return r
	case <-w.ctx.Done():
		t.Fatal("nothing was uploaded")
		return ""
	}
}

// saveAll saves until nothing is left to save and returns the root.
func (v *vol) saveAll() model.Root {
	v.w.t.Helper()
	for range 3 {
		if !v.seal(true) {
			return v.status().Root
		}
		v.w.seq++
		up, err := v.Upload(v.w.ctx, v.w.intent(v.w.seq))
		v.w.check(err)
		v.w.check(v.Committed(v.w.ctx, up.Root))
	}
	v.w.t.Fatal("there always is something to save")
	return ""
}

// TestVolume_KilledUnderAWriter kills the process under a program that appends
// and syncs: every record whose sync returned is there afterwards.
// invariant 12
func TestVolume_KilledUnderAWriter(t *testing.T) {
	w := newWorld(t)
	cfg := w.config(w.image)
	v := w.spawn(cfg)
	var mu sync.Mutex
	acked := 0
	ended := make(chan error, 1)
	go func() {
		ended <- v.in(func() error {
			f, err := os.Create(v.path("log"))
			if err != nil {
				return err
			}
			defer f.Close()
			for i := 0; ; i++ {
				if _, err := fmt.Fprintf(f, "%08d\n", i); err != nil {
					return err
				}
				if err := f.Sync(); err != nil {
					return err
				}
				mu.Lock()
				acked = i + 1
				mu.Unlock()
			}
		})
	}()
	count := func() int {
		mu.Lock()
		defer mu.Unlock()
		return acked
	}
	more := func() {
		from := count()
		testenv.Await(t, 20*time.Second, func() error {
			if n := count(); n < from+10 {
				return fmt.Errorf("%d records", n-from)
			}
			return nil
		})
	}
	more()
	if !v.seal(true) { // and a seal in between
		t.Error("seal under a writer found nothing")
	}
	more()
	w.check(unix.Kill(v.process.PID, unix.SIGKILL))
	if err := <-ended; err == nil {
		t.Error("the writer went on without a disk")
	}
	v.kill()
	v = w.spawn(cfg)
	log := v.read("log")
	for i := range count() {
		if want := fmt.Sprintf("%08d\n", i); !bytes.HasPrefix(log[min(9*i, len(log)):], []byte(want)) {
			t.Fatalf("record %d of %d is lost", i, count())
		}
	}
	t.Logf("%d records were acknowledged", count())
}
