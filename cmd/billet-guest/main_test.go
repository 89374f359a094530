package main_test

import (
	"debug/elf"
	"os"
	"os/exec"
	"testing"

	"github.com/billethq/billet/internal/testenv"
)

// maxSize is what the agent may cost every image and every node.
const maxSize = 12 << 20

func TestBinary_IsSmallAndStatic(t *testing.T) {
	path := testenv.NeedGuest(t)
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if info.Size() > maxSize {
		t.Errorf("%d bytes, more than %d", info.Size(), maxSize)
	}
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			t.Error("it needs a dynamic linker, which an image need not have")
		}
	}
}

func TestBinary_Usage(t *testing.T) {
	path := testenv.NeedGuest(t)
	for _, args := range [][]string{{"unknown"}, {"pack"}, {"unpack"}, {"unpack", "a", "b"}, {"version", "x"}, {"serve"}} {
		err := exec.Command(path, args...).Run()
		exit, ok := err.(*exec.ExitError)
		if !ok || exit.ExitCode() != 2 {
			t.Errorf("%q: %v, want exit code 2", args, err)
		}
	}
}
