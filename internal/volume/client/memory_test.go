package client

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/model"
	"github.com/billethq/billet/internal/volume/protocol"
)

// TestVolume_MemoryIsOfOneDisk: memory is stored with the disk of its instant,
// and comes back on that disk, on a machine that can take it, or not at all.
func TestVolume_MemoryIsOfOneDisk(t *testing.T) {
	w := newWorld(t)
	machine := model.Machine{Driver: model.DriverGVisor, Binary: "one", CPUFeatures: "a b"}
	taken := map[string][]byte{"pages.img": bigFile(), "checkpoint.img": []byte("state")}
	dir := t.TempDir()
	for name, body := range taken {
		w.check(os.WriteFile(filepath.Join(dir, name), body, 0o600))
	}
	save := protocol.SaveMemoryRequest{Dir: dir, Machine: machine, Created: time.Unix(1700000000, 0)}

	v := w.spawn(w.config(w.image))
	v.write("note", []byte("before"))
	save.Disk = model.Root("b3:" + strings.Repeat("0", 64))
	if _, err := v.SaveMemory(w.ctx, save); !errs.Is(err, errs.Conflict) {
		t.Errorf("memory of a disk that is not stored: got %v, want conflict", err)
	}
	if !v.seal(true) {
		t.Fatal("nothing to save")
	}
	w.seq++
	up, err := v.Upload(w.ctx, w.intent(w.seq))
	w.check(err)
	save.Disk = up.Root
	mem, err := v.SaveMemory(w.ctx, save)
	w.check(err)
	w.check(v.Committed(w.ctx, up.Root))
	again, err := v.SaveMemory(w.ctx, save) // of the same disk, which is the base now
	if err != nil || again.Root != mem.Root {
		t.Errorf("stored again: %v, %v, want %v", again, err, mem.Root)
	}
	v.kill()

	load := protocol.LoadMemoryRequest{Root: mem.Root, Dir: t.TempDir(), Machine: machine}
	v = w.spawn(w.config(up.Root))
	_, err = v.LoadMemory(w.ctx, load)
	w.check(err)
	for name, want := range taken {
		if got, err := os.ReadFile(filepath.Join(load.Dir, name)); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s came back with %d bytes, %v, want %d", name, len(got), err, len(want))
		}
	}
	load.Dir, load.Machine.Binary = t.TempDir(), "two"
	if _, err := v.LoadMemory(w.ctx, load); !errs.Is(err, errs.Unsupported) {
		t.Errorf("on another machine: got %v, want unsupported", err)
	}
	v.kill()

	load.Machine = machine
	v = w.spawn(w.config(w.image))
	if _, err := v.LoadMemory(w.ctx, load); !errs.Is(err, errs.Unsupported) {
		t.Errorf("on another disk: got %v, want unsupported", err)
	}
}
