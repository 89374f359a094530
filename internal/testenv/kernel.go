package testenv

import (
	"os"
	"path/filepath"
	"testing"
)

// NeedKernel returns the path of a Linux kernel that boots in a QEMU microvm:
// $BILLET_TEST_KERNEL, what internal/cgroup/testdata/fetch-kernel.sh left below
// build/kernel, or Debian's cloud kernel in /boot.
func NeedKernel(t testing.TB) string {
	t.Helper()
	if path := os.Getenv("BILLET_TEST_KERNEL"); path != "" {
		return path
	}
	for _, pattern := range []string{filepath.Join(Root(t), "build/kernel/boot/vmlinuz-*"), "/boot/vmlinuz-*-cloud-*"} {
		if found, _ := filepath.Glob(pattern); len(found) > 0 {
			return found[len(found)-1]
		}
	}
	need(t, "kernel", "no vmlinuz in build/kernel/boot or /boot; internal/cgroup/testdata/fetch-kernel.sh gets one")
	return ""
}
