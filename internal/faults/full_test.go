//go:build failpoint

package faults

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/config"
	"github.com/billethq/billet/internal/model"
	"github.com/billethq/billet/internal/testenv"
)

// ballast fills a file system but for spare bytes. It returns what gives the
// room back.
func ballast(t *testing.T, dir string, spare int64) (free func()) {
	t.Helper()
	path := filepath.Join(dir, "ballast")
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	buf := make([]byte, 64<<10)
	size := int64(0)
	for err == nil {
		var n int
		n, err = f.Write(buf)
		size += int64(n)
	}
	if !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
	if err := f.Truncate(max(0, size-spare)); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Error(err)
		}
	}
}

// roomy is a capacity that no small disk lowers.
func roomy(cfg *config.Config) { cfg.Node.Capacity.Disk = 1 << 40 }

// TestFull_Overlay: a guest that finds the host's disk full is ended for that
// cause, is not started again by itself, and comes back with all that it had
// synced when there is room.
// invariants 12, 14
func TestFull_Overlay(t *testing.T) {
	t.Parallel()
	disk := testenv.TmpfsDir(t, "160m")
	w := deploy(t, options{node: func(cfg *config.Config) { cfg.State = disk; roomy(cfg) }})
	w.create("one")
	w.write("one", "a")
	free := ballast(t, disk, 1<<20)
	defer free()
	// The write may be refused or cut off, but never be acknowledged.
	s, err := w.run(t.Context(), "one", "dd if=/dev/urandom bs=1M count=16 conv=fsync of=/root/more", nil, nil)
	if err == nil && s.code == 0 {
		t.Error("16 MiB were synced to a disk with 1 MiB of room")
	}
	await(t, "the guest is ended", func() error {
		if left := sandboxes(w.scope.Dir); len(left) > 0 {
			return fmt.Errorf("%v", left)
		}
		return nil
	})
	w.until("one", api.WorkspaceStopping) // there is no room to save it
	free()
	w.untilFailed("one", model.CauseDiskFull)
	w.startAgain("one")
	w.holds("one")
	w.close()
}

// TestFull_Cache: the host's cache is a convenience.
func TestFull_Cache(t *testing.T) {
	t.Parallel()
	state := t.TempDir()
	cache := filepath.Join(state, "node", "cache")
	if err := os.MkdirAll(cache, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("billet-test", cache, "tmpfs", 0, "size=1m"); err != nil {
		t.Skipf("testenv: need tmpfs: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(cache, 0); err != nil {
			t.Error(err)
		}
	})
	w := deploy(t, options{node: func(cfg *config.Config) { cfg.State = state }})
	defer ballast(t, cache, 0)()
	w.create("one")
	w.write("one", "a")
	w.stop("one")
	w.startAgain("one")
	w.holds("one")
	w.close()
}

// TestFull_Store: a flush that finds no room is told and tried again, and the
// guest runs on; a stop waits, and comes to its end when there is room.
// invariants 12, 13
func TestFull_Store(t *testing.T) {
	t.Parallel()
	store := testenv.TmpfsDir(t, "24m")
	w := deploy(t, options{
		server: func(cfg *config.Config) { cfg.StoreDir = store; cfg.FlushEvery = 200 * time.Millisecond },
		node:   func(cfg *config.Config) { cfg.StoreDir = store },
	})
	w.create("one")
	w.write("one", "a")
	free := ballast(t, store, 64<<10)
	defer free()
	w.write("one", "b")
	told := func(want api.WorkspaceState) {
		t.Helper()
		await(t, "the flush error is shown", func() error {
			ws, err := w.client.Workspace(t.Context(), "one")
			if err == nil && (ws.State != want || ws.FlushError == "" || ws.UnsavedBytes == 0) {
				err = fmt.Errorf("it is %s, flush error %q, %d bytes unsaved", ws.State, ws.FlushError, ws.UnsavedBytes)
			}
			return err
		})
	}
	told(api.WorkspaceRunning)
	w.write("one", "c")
	if _, err := w.client.StopWorkspace(t.Context(), "one", api.StopWorkspaceRequest{}); err != nil {
		t.Fatal(err)
	}
	told(api.WorkspaceStopping)
	free()
	if ws := w.until("one", api.WorkspaceStopped); ws.FlushError != "" || ws.UnsavedBytes != 0 {
		t.Errorf("after there was room: %+v, want nothing unsaved", ws)
	}
	w.startAgain("one")
	w.holds("one")
	w.close()
}
