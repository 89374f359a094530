package testenv

import (
	"testing"

	"golang.org/x/sys/unix"
)

// TmpfsDir mounts an empty file system of the given size ("8m") in memory and
// returns its directory: a disk that a test can fill. It is unmounted when the
// test ends; a file still open in it then fails the test.
func TmpfsDir(t testing.TB, size string) string {
	t.Helper()
	NeedRoot(t)
	dir := t.TempDir()
	if err := unix.Mount("billet-test", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0755,size="+size); err != nil {
		need(t, "tmpfs", err.Error())
	}
	t.Cleanup(func() {
		err := unix.Unmount(dir, 0)
		if err == nil {
			return
		}
		t.Errorf("testenv: unmount %s: %v", dir, err)
		// Detached at least, so that the temporary directory can go.
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Errorf("testenv: detach %s: %v", dir, err)
		}
	})
	return dir
}
