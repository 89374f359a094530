package ext4

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/image/tree"
	"github.com/billethq/billet/internal/testenv"
)

const testSize = MinBytes

func need(t testing.TB) {
	t.Helper()
	testenv.NeedFUSE(t)
	testenv.NeedBinary(t, "mke2fs")
}

// write writes tr in a directory of its own and returns the image's path.
func write(t testing.TB, tr *tree.Tree, size int64) (string, error) {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "disk")
	work := filepath.Join(dir, "work")
	if err := os.Mkdir(work, 0o700); err != nil {
		t.Fatal(err)
	}
	return path, Write(context.Background(), tr, Image{Path: path, Size: size, Dir: work}, nil)
}

func mustWrite(t testing.TB, tr *tree.Tree, size int64) string {
	t.Helper()
	path, err := write(t, tr, size)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func run(t testing.TB, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), "PATH="+os.Getenv("PATH")+":/usr/sbin:/sbin")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, args, err, out)
	}
	return string(out)
}

func TestWrite_SameTreeSameBytes(t *testing.T) {
	need(t)
	headers := sample()
	first := mustWrite(t, load(t, headers), testSize)
	// What mke2fs would stamp by the clock has whole seconds.
	clockTick(t)
	dirs, files, links := split(headers)
	slices.Reverse(files)
	second := mustWrite(t, load(t, slices.Concat(dirs, files, links)), testSize)
	a, b := readAll(t, first), readAll(t, second)
	if !bytes.Equal(a, b) {
		for i := range a {
			if a[i] != b[i] {
				t.Fatalf("images differ first at byte %d, in block %d", i, i/blockSize)
			}
		}
	}
}

// clockTick waits until the clock shows another second.
func clockTick(t testing.TB) {
	t.Helper()
	now := time.Now()
	time.Sleep(now.Truncate(time.Second).Add(time.Second).Sub(now))
}

func readAll(t testing.TB, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestWrite_IsSoundAndSparse(t *testing.T) {
	need(t)
	path := mustWrite(t, load(t, sample()), 16<<30)
	run(t, "e2fsck", "-fn", path)
	groups := run(t, "dumpe2fs", path)
	if n, zeroed := strings.Count(groups, ": (Blocks "), strings.Count(groups, "ITABLE_ZEROED"); n != 128 || zeroed != n {
		t.Errorf("%d of %d groups have zeroed inode tables: the kernel would write the others on an idle disk", zeroed, n)
	}
	if !strings.Contains(groups, "Reserved block count:     0\n") {
		t.Error("blocks are reserved for root")
	}
	// About 8 MB of files in whole blocks, and a few blocks of metadata in each of 8 flexible
	// groups; not the 20 MB of zeros, the 256 MB of tables, the journal.
	if data := dataBytes(t, path); data > 12<<20 {
		t.Errorf("the image holds %d bytes of data: zeros were written", data)
	}
}

// dataBytes sums the regions of a file that are no holes.
func dataBytes(t testing.TB, path string) int64 {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	var sum, off int64
	for {
		data, err := unix.Seek(int(f.Fd()), off, unix.SEEK_DATA)
		if err == unix.ENXIO {
			return sum
		}
		if err != nil {
			t.Fatal(err)
		}
		hole, err := unix.Seek(int(f.Fd()), data, unix.SEEK_HOLE)
		if err != nil {
			t.Fatal(err)
		}
		sum, off = sum+hole-data, hole
	}
}

// mount mounts an image through a loop device until the test ends.
func mount(t testing.TB, path, options string) string {
	t.Helper()
	testenv.NeedLoop(t)
	dir := t.TempDir()
	run(t, "mount", "-o", "loop,noatime,"+options, path, dir)
	t.Cleanup(func() { run(t, "umount", dir) })
	return dir
}

func TestWrite_MountShowsTheTree(t *testing.T) {
	need(t)
	headers := sample()
	tr := load(t, headers)
	dir := mount(t, mustWrite(t, tr, testSize), "ro")
	want := map[string]seen{}
	links := map[*tree.Node]uint64{}
	for n, names := range tr.Inodes() {
		links[n] = uint64(names)
	}
	_ = tr.Walk(func(path string, n *tree.Node) error {
		want[path] = expected(t, tr, n, links[n])
		return nil
	})
	got := map[string]seen{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		rel, _ := filepath.Rel(dir, path)
		if rel == "lost+found" {
			return fs.SkipDir
		}
		if rel == "." {
			rel = ""
		}
		got[rel] = observe(t, path)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(got) < 2000 {
		t.Errorf("only %d files are there", len(got))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-tree +mount):\n%.4000s", diff)
	}
}

// TestWrite_Grows: the smallest image becomes a disk of the size that
// descriptors are reserved for, while it is mounted where that is allowed.
func TestWrite_Grows(t *testing.T) {
	need(t)
	testenv.NeedBinary(t, "resize2fs")
	path := mustWrite(t, load(t, sample()), MinBytes)
	t.Run("unmounted", func(t *testing.T) {
		grown := filepath.Join(t.TempDir(), "grown")
		run(t, "cp", "--sparse=always", path, grown)
		if err := os.Truncate(grown, growthBytes); err != nil {
			t.Fatal(err)
		}
		run(t, "resize2fs", "-f", grown)
		run(t, "e2fsck", "-fn", grown)
		if !strings.Contains(run(t, "dumpe2fs", "-h", grown), "resize_inode") {
			t.Error("growth used up the reserved descriptors")
		}
		checkSize(t, mount(t, grown, "ro"), growthBytes)
	})
	t.Run("mounted", func(t *testing.T) {
		needResource(t)
		dir := mount(t, path, "rw")
		device := strings.TrimSpace(run(t, "findmnt", "-no", "SOURCE", dir))
		if err := os.Truncate(path, growthBytes); err != nil {
			t.Fatal(err)
		}
		run(t, "losetup", "-c", device)
		run(t, "resize2fs", device)
		checkSize(t, dir, growthBytes)
	})
}

// needResource skips without the capability that the kernel wants of who grows
// a mounted file system; some virtual machines withhold it from root.
func needResource(t testing.TB) {
	t.Helper()
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&hdr, &data[0]); err != nil {
		t.Fatal(err)
	}
	if data[0].Effective&(1<<unix.CAP_SYS_RESOURCE) == 0 {
		t.Skip("testenv: need cap_sys_resource: the kernel wants it for growing a mounted file system")
	}
}

func checkSize(t testing.TB, dir string, want int64) {
	t.Helper()
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		t.Fatal(err)
	}
	// An inode table for every 16 KiB is taken off.
	if size := int64(st.Blocks) * st.Bsize; size < want*98/100 {
		t.Errorf("the file system has %d bytes of %d", size, want)
	}
}

func TestWrite_RefusesWhatDoesNotFit(t *testing.T) {
	need(t)
	for _, c := range []struct {
		name    string
		headers []tar.Header
	}{
		{"bytes", []tar.Header{{Typeflag: tar.TypeReg, Name: "big", Size: 100 << 20}}},
		{"inodes", func() (out []tar.Header) {
			for i := range MinBytes / bytesPerInode {
				out = append(out, tar.Header{Typeflag: tar.TypeReg, Name: fmt.Sprint(i)})
			}
			return out
		}()},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := write(t, load(t, c.headers), MinBytes)
			if !errs.Is(err, errs.Exhausted) || errs.HintOf(err) == "" {
				t.Errorf("got %v, want exhausted with a hint", err)
			}
		})
	}
}

// TestWrite_FillsTheDisk: what check lets through, mke2fs can hold.
func TestWrite_FillsTheDisk(t *testing.T) {
	need(t)
	room := int64(MinBytes - MinBytes/16 - journalMiB<<20)
	mustWrite(t, load(t, []tar.Header{{Typeflag: tar.TypeReg, Name: "big", Size: room - 2*blockSize}}), MinBytes)
}

func TestCheckSize(t *testing.T) {
	for _, size := range []int64{-1, 0, 1 << 20, MinBytes - 1<<20, MinBytes + 1, MaxBytes + 1<<20} {
		if err := CheckSize(size); !errs.Is(err, errs.Invalid) || errs.HintOf(err) == "" {
			t.Errorf("size %d: %v", size, err)
		}
	}
	for _, size := range []int64{MinBytes, MaxBytes, 16 << 30} {
		if err := CheckSize(size); err != nil {
			t.Errorf("size %d: %v", size, err)
		}
	}
}

// TestWrite_EndsWithItsContext: a build that is given up ends mke2fs, the
// mount and the threads behind it.
func TestWrite_EndsWithItsContext(t *testing.T) {
	need(t)
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	tr := load(t, []tar.Header{{Typeflag: tar.TypeReg, Name: "big", Size: 60 << 20}})
	err := Write(ctx, tr, Image{Path: filepath.Join(dir, "disk"), Size: testSize, Dir: dir}, func(int64) { cancel() })
	if err == nil || ctx.Err() == nil {
		t.Fatalf("got %v, want the context's end", err)
	}
	if mounts := string(readAll(t, "/proc/self/mounts")); strings.Contains(mounts, dir) {
		t.Errorf("left mounted:\n%s", mounts)
	}
}
