package daemon

import (
	"archive/tar"
	"bytes"
	"os"
	"testing"
)

// busyboxTar is the root of a tiny guest: one binary under many names.
func busyboxTar(t *testing.T, busybox string) []byte {
	t.Helper()
	body, err := os.ReadFile(busybox)
	if err != nil {
		t.Fatal(err)
	}
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	add := func(h tar.Header, b []byte) {
		h.Size = int64(len(b))
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(b); err != nil {
			t.Fatal(err)
		}
	}
	for _, d := range []string{"bin/", "etc/", "root/", "tmp/"} {
		add(tar.Header{Name: d, Typeflag: tar.TypeDir, Mode: 0o755}, nil)
	}
	add(tar.Header{Name: "bin/busybox", Typeflag: tar.TypeReg, Mode: 0o755}, body)
	for _, n := range []string{"sh", "cat", "echo", "sync", "sleep", "dd", "ls", "sha256sum", "mkdir", "head", "true", "yes", "rm", "stty", "test", "nc", "kill", "ps", "mv", "grep"} {
		add(tar.Header{Name: "bin/" + n, Typeflag: tar.TypeSymlink, Linkname: "busybox"}, nil)
	}
	add(tar.Header{Name: "etc/passwd", Typeflag: tar.TypeReg, Mode: 0o644}, []byte("root:x:0:0:root:/root:/bin/sh\n"))
	add(tar.Header{Name: "etc/group", Typeflag: tar.TypeReg, Mode: 0o644}, []byte("root:x:0:\n"))
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}
