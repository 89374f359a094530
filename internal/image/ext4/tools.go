package ext4

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"

	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/image/tree"
)

// What makes two images of one tree the same.
const (
	uuid     = "b111e700-0000-4000-8000-000000000001"
	hashSeed = "b111e700-0000-4000-8000-000000000002"
	// epoch is the time of creation of every file system and inode:
	// 2020-01-01. Zero would mean "now" to e2fsprogs.
	epoch = 1577836800
	// features are those that every kernel since Linux 5.10 mounts and that
	// e2fsprogs has had for years; orphan_file and metadata_csum_seed are newer.
	features = "none,has_journal,ext_attr,resize_inode,dir_index,filetype,extent,64bit,flex_bg," +
		"sparse_super,large_file,huge_file,dir_nlink,extra_isize,metadata_csum"
)

// tools are the paths of e2fsprogs' programs.
type tools struct{ mke2fs, debugfs string }

func findTools() (tools, error) {
	var t tools
	for name, path := range map[string]*string{"mke2fs": &t.mke2fs, "debugfs": &t.debugfs} {
		found, err := lookPath(name)
		if err != nil {
			return t, errs.Wrap(errs.Unsupported, err, "find %s", name).(*errs.Error).WithHint("apt-get install e2fsprogs")
		}
		*path = found
	}
	return t, nil
}

// lookPath also looks where a person's PATH often does not.
func lookPath(name string) (string, error) {
	path, err := exec.LookPath(name)
	for _, dir := range []string{"/usr/sbin/", "/sbin/"} {
		if err != nil {
			path, err = exec.LookPath(dir + name)
		}
	}
	return path, err
}

// maxOutput bounds what is kept of a program's output.
const maxOutput = 64 << 10

// command is one run of a tool: with nothing of this process's environment,
// and dead when this thread is.
func command(ctx context.Context, im Image, path string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = []string{
		"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C", "TZ=UTC",
		"MKE2FS_CONFIG=" + im.config(),
		"E2FSPROGS_FAKE_TIME=" + strconv.Itoa(epoch),
		"SOURCE_DATE_EPOCH=" + strconv.Itoa(epoch),
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}

// format runs mke2fs on the mounted tree.
func (t tools) format(ctx context.Context, im Image) error {
	cmd := command(ctx, im, t.mke2fs,
		"-q", "-F", "-t", "ext4", "-T", "default", "-O", features,
		"-b", strconv.Itoa(blockSize), "-I", strconv.Itoa(inodeSize), "-i", strconv.Itoa(bytesPerInode),
		"-m", "0", "-U", uuid, "-J", "size="+strconv.Itoa(journalMiB),
		// Initialised tables keep the kernel's lazy thread from writing to a
		// disk that nobody uses.
		"-E", fmt.Sprintf("hash_seed=%s,lazy_itable_init=0,lazy_journal_init=0,root_owner=0:0,resize=%d", hashSeed, growthBytes/blockSize),
		"-d", im.mountPoint(), im.Path)
	out := &tail{}
	cmd.Stdout, cmd.Stderr = out, out
	err := cmd.Run()
	switch text := out.String(); {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err == nil && text == "":
		return nil
	case strings.Contains(text, "o space left on"), strings.Contains(text, "ould not allocate"):
		return tooSmall(im, "the files")
	default:
		return fmt.Errorf("mke2fs: %w: %s", orSilent(err), text)
	}
}

// amend sets what mke2fs of some versions does not: the root directory's own
// attributes, the time of lost+found, and times beyond whole seconds of 31 bits.
func (t tools) amend(ctx context.Context, im Image, tr *tree.Tree) error {
	if err := os.WriteFile(im.script(), script(tr), 0o600); err != nil {
		return fmt.Errorf("write debugfs script: %w", err)
	}
	cmd := command(ctx, im, t.debugfs, "-w", "-f", im.script(), im.Path)
	out := &tail{}
	cmd.Stderr = out
	err := cmd.Run()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	// The first line is the version; anything after it is a command that failed.
	_, complaints, _ := strings.Cut(out.String(), "\n")
	if err != nil || complaints != "" {
		return fmt.Errorf("debugfs: %w: %s", orSilent(err), complaints)
	}
	return nil
}

// firstInode is the one after lost+found. mke2fs numbers upwards from it, in
// the order in which the mount shows the tree.
const firstInode = 12

func script(t *tree.Tree) []byte {
	var b bytes.Buffer
	root := t.Root()
	fmt.Fprintf(&b, "sif <2> mode 0%o\nsif <2> uid %d\nsif <2> gid %d\n", root.Mode, root.UID, root.GID)
	setTimes(&b, 2, root.ModTime)
	ino := uint64(firstInode)
	for n := range t.Inodes() {
		if n == root {
			continue
		}
		if at := n.ModTime; at.Nsec != 0 || at.Sec < 0 || at.Sec > 1<<31-1 {
			setTimes(&b, ino, at)
		}
		ino++
	}
	return b.Bytes()
}

// setTimes writes the low 32 bits of the seconds, and into the extra word two
// more above 30 of nanoseconds.
func setTimes(b *bytes.Buffer, ino uint64, at tree.Time) {
	low := uint32(at.Sec)
	extra := uint32((at.Sec-int64(int32(low)))>>32)&3 | uint32(at.Nsec)<<2
	for _, field := range []string{"atime", "ctime", "mtime"} {
		fmt.Fprintf(b, "sif <%d> %s @%d\nsif <%d> %s_extra 0x%x\n", ino, field, low, ino, field, extra)
	}
}

type silentError struct{}

func (silentError) Error() string { return "unexpected output" }

func orSilent(err error) error {
	if err == nil {
		return silentError{}
	}
	return err
}

// tail keeps the first bytes of a program's output.
type tail struct{ buf bytes.Buffer }

func (t *tail) Write(p []byte) (int, error) {
	t.buf.Write(p[:min(len(p), maxOutput-t.buf.Len())])
	return len(p), nil
}

func (t *tail) String() string { return strings.TrimSpace(t.buf.String()) }
