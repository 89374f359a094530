package cgroup

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/billethq/billet/internal/testenv"
)

// bootDeadline bounds the guest's whole life, which takes about 10 s without
// hardware virtualisation.
const bootDeadline = 4 * time.Minute

// TestInQEMU runs every test of this package again on version 2, as PID 1 of a
// virtual machine, because a host has one version or the other.
func TestInQEMU(t *testing.T) {
	if os.Getpid() == 1 {
		return // this is that machine
	}
	qemu := testenv.NeedBinary(t, "qemu-system-x86_64")
	kernel := testenv.NeedKernel(t)
	dir := t.TempDir()
	binary := filepath.Join(dir, "cgroup.test")
	build := exec.Command("go", "test", "-c", "-o", binary, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the test binary: %v\n%s", err, out)
	}
	initrd := filepath.Join(dir, "initrd")
	if err := writeInitrd(initrd, binary); err != nil {
		t.Fatal(err)
	}

	ctx, cancel := context.WithTimeout(t.Context(), bootDeadline)
	defer cancel()
	cmd := exec.CommandContext(ctx, qemu,
		// With ACPI the kernel waits for ever for the first tick of its clock.
		"-M", "microvm,x-option-roms=off,rtc=on,acpi=off", "-accel", "tcg", "-m", "512", "-smp", "1",
		"-nodefaults", "-no-user-config", "-no-reboot", "-display", "none", "-serial", "stdio",
		"-kernel", kernel, "-initrd", initrd,
		// Words after "--" are the arguments of PID 1.
		"-append", "console=ttyS0 quiet panic=-1 reboot=t -- -test.v")
	var console bytes.Buffer
	cmd.Stdout, cmd.Stderr = &console, &console
	err := cmd.Run()
	if err != nil || !bytes.Contains(console.Bytes(), []byte(passMark)) {
		t.Fatalf("the guest did not pass: %v\n%s", err, console.Bytes())
	}
	for _, want := range []string{"--- PASS: TestGroup_MemoryLimit", "--- PASS: TestVersion"} {
		if !bytes.Contains(console.Bytes(), []byte(want)) {
			t.Errorf("the console does not say %q\n%s", want, console.Bytes())
		}
	}
}

// TestVersion: the virtual machine is there for version 2 and has no other.
func TestVersion(t *testing.T) {
	v := newTree(t).Version()
	if os.Getpid() == 1 && v != 2 || v != 1 && v != 2 {
		t.Errorf("got version %d", v)
	}
}

// writeInitrd packs one program as /init, in the "newc" format of cpio that
// the kernel unpacks.
func writeInitrd(path, init string) error {
	program, err := os.ReadFile(init)
	if err != nil {
		return err
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	const directory, file, device = 0o040755, 0o100755, 0o020600
	for i, e := range []struct {
		name         string
		mode         uint32
		major, minor uint32
		data         []byte
	}{
		{name: "dev", mode: directory},
		{name: "dev/console", mode: device, major: 5, minor: 1},
		{name: "dev/null", mode: device, major: 1, minor: 3},
		{name: "init", mode: file, data: program},
		{name: "TRAILER!!!"},
	} {
		// Thirteen numbers of eight hexadecimal digits: inode, mode, owner,
		// group, links, time, size, device, device number, name size, checksum.
		header := fmt.Sprintf("070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x",
			i+1, e.mode, 0, 0, 1, 0, len(e.data), 0, 0, e.major, e.minor, len(e.name)+1, 0)
		for _, part := range [][]byte{append([]byte(header+e.name), 0), e.data} {
			padding := make([]byte, -(len(part))&3)
			if _, err := f.Write(append(part[:len(part):len(part)], padding...)); err != nil {
				return err
			}
		}
	}
	return f.Close()
}
