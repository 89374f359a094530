package client

import (
	"bytes"
	"context"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/billethq/billet/internal/blob"
	"github.com/billethq/billet/internal/blob/dir"
	"github.com/billethq/billet/internal/model"
	"github.com/billethq/billet/internal/testenv"
	"github.com/billethq/billet/internal/volume"
	"github.com/billethq/billet/internal/volume/protocol"
	"github.com/billethq/billet/internal/volume/server"
)

// processEnv makes this test binary a volume process.
const processEnv = "BILLET_TEST_VOLUME_PROCESS"

func TestMain(m *testing.M) {
	if os.Getenv(processEnv) != "" {
		os.Exit(server.Main(os.Stdin, os.Stdout, os.Stderr, openBucket))
	}
	os.Setenv(processEnv, "1")
	os.Exit(m.Run())
}

func openBucket(cfg protocol.StoreConfig) (blob.Bucket, error) { return dir.Open(cfg.Dir) }

const (
	gib       = 1 << 30
	mib       = 1 << 20
	imageSize = 64 * mib
)

// world is an object store with an image, and one subject's lineage on it.
type world struct {
	t       *testing.T
	ctx     context.Context
	command []string
	store   *volume.Store
	storeAt string
	keys    []model.DomainKey
	image   model.Root
	subject model.SubjectID
	seq     model.Seq
	epoch   model.Epoch
}

// newWorld makes a world on a machine with FUSE, loop devices and mkfs.ext4.
func newWorld(t *testing.T) *world {
	t.Helper()
	testenv.LeakCheck(t)
	testenv.NeedFUSE(t)
	testenv.NeedLoop(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	w := &world{
		t: t, ctx: ctx, command: []string{"/proc/self/exe"}, storeAt: t.TempDir(),
		subject: model.SubjectID(model.NewID()), epoch: 1,
		keys: []model.DomainKey{
			{Domain: string(model.DefaultTenant), Key: bytes.Repeat([]byte{1}, 32)},
			{Domain: model.DeploymentDomain, Key: bytes.Repeat([]byte{2}, 32)},
		},
	}
	bucket, err := dir.Create(w.storeAt)
	w.check(err)
	t.Cleanup(func() { _ = bucket.Close() })
	domains, err := volume.NewDomains(w.keys[0], w.keys[1])
	w.check(err)
	w.store, err = volume.NewStore(volume.StoreConfig{Bucket: bucket, Domains: domains})
	w.check(err)
	w.image = w.importImage()
	return w
}

func (w *world) check(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// importImage makes a small ext4 disk with a few files and stores it.
func (w *world) importImage() model.Root {
	w.t.Helper()
	mkfs := testenv.NeedBinary(w.t, "mkfs.ext4")
	tree := w.t.TempDir()
	w.check(os.MkdirAll(filepath.Join(tree, "etc"), 0o755))
	w.check(os.WriteFile(filepath.Join(tree, "etc/passwd"), []byte("root:x:0:0::/:/bin/sh\n"), 0o644))
	w.check(os.WriteFile(filepath.Join(tree, "big"), bigFile(), 0o644))
	disk := filepath.Join(w.t.TempDir(), "disk")
	text, err := exec.Command(mkfs, "-q", "-b", "4096", "-O", "^has_journal,has_journal", "-J", "size=4", "-d", tree, disk, "64m").CombinedOutput()
	if err != nil {
		w.t.Fatalf("mkfs.ext4: %v\n%s", err, text)
	}
	f, err := os.Open(disk)
	w.check(err)
	defer f.Close()
	m, _, err := volume.ImportDisk(w.ctx, w.store, volume.Import{Source: f, Size: imageSize, Meta: volume.Meta{
		Home: volume.SlotDeployment, Consistency: volume.Frozen, Writer: volume.WriterHost,
	}})
	w.check(err)
	return m.Root()
}

// stored is how many bytes the object store holds.
func (w *world) stored() (bytes int64) {
	w.t.Helper()
	w.check(filepath.WalkDir(w.storeAt, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		bytes += info.Size()
		return err
	}))
	return bytes
}

// bigFile is content that does not compress and spans several blocks.
func bigFile() []byte {
	out := make([]byte, 3*mib+4321)
	x := uint64(88172645463325252)
	for i := range out {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		out[i] = byte(x)
	}
	return out
}

// config is of an instance of its own, with a cache of its own: a host on
// which nothing is known.
func (w *world) config(root model.Root) protocol.Config {
	host := w.t.TempDir()
	return protocol.Config{
		Version: protocol.Version, Instance: model.InstanceID(model.NewID()), Subject: w.subject,
		Tenant: model.DefaultTenant, Epoch: w.epoch, Root: root, Size: imageSize, Dir: filepath.Join(host, "volume"),
		Cache: protocol.CacheConfig{Dir: filepath.Join(host, "cache"), MaxBytes: gib},
		Store: protocol.StoreConfig{Dir: w.storeAt}, DomainKeys: w.keys,
	}
}

// vol is a volume process with its file system.
type vol struct {
	*Client
	w     *world
	cfg   protocol.Config
	ready protocol.Ready
}

// spawn starts a process and has it ended with the test.
func (w *world) spawn(cfg protocol.Config) *vol {
	w.t.Helper()
	c, ready, err := Spawn(w.ctx, w.command, cfg, nil)
	if err != nil {
		log, _ := os.ReadFile(protocol.Place(cfg.Dir).LogFile())
		w.t.Fatalf("spawn: %v\n%s", err, log)
	}
	v := &vol{Client: c, w: w, cfg: cfg, ready: ready}
	w.t.Cleanup(func() {
		if w.t.Failed() {
			log, _ := os.ReadFile(protocol.Place(cfg.Dir).LogFile())
			w.t.Logf("log of volume process %d:\n%s", c.process.PID, log)
		}
		ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
		defer cancel()
		if err := c.Kill(ctx); err != nil {
			w.t.Errorf("kill volume process: %v", err)
		}
	})
	return v
}

// in runs fn on a thread of its own in the volume's mount namespace.
func (v *vol) in(fn func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == os.Getpid() {
			// The process's first thread never ends: its namespace would be kept.
			done <- v.in(fn)
			runtime.UnlockOSThread()
			return
		}
		done <- v.enter(fn) // still locked: the thread ends with the goroutine
	}()
	return <-done
}

func (v *vol) enter(fn func() error) error {
	ns, err := os.Open(v.ready.MountNS)
	if err != nil {
		return err
	}
	defer ns.Close()
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return err
	}
	if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNS); err != nil {
		return err
	}
	return fn()
}

// path is of a file, for use within in.
func (v *vol) path(name string) string { return filepath.Join(v.ready.RootFS, name) }

func (v *vol) read(name string) []byte {
	v.w.t.Helper()
	var raw []byte
	v.w.check(v.in(func() (err error) {
		raw, err = os.ReadFile(v.path(name))
		return err
	}))
	return raw
}

// write stores a file and waits until the disk has it.
func (v *vol) write(name string, content []byte) {
	v.w.t.Helper()
	v.w.check(v.in(func() error { return writeSynced(v.path(name), content) }))
}

func writeSynced(path string, content []byte) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.Write(content); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	return f.Close()
}

func (v *vol) status() protocol.Status {
	v.w.t.Helper()
	st, err := v.Status(v.w.ctx)
	v.w.check(err)
	return st
}

func (v *vol) seal(freeze bool) bool {
	v.w.t.Helper()
	dirty, err := v.Seal(v.w.ctx, freeze)
	v.w.check(err)
	return dirty
}

// intent is what control would issue; the same number gives the same intent.
func (w *world) intent(seq model.Seq) protocol.UploadRequest {
	return protocol.UploadRequest{
		Intent: model.IntentID(model.NewID()), Epoch: w.epoch, Seq: seq, Started: time.Unix(1_700_000_000, 0).UTC(),
	}
}

// save seals, uploads and commits.
func (v *vol) save(freeze bool) protocol.UploadResponse {
	v.w.t.Helper()
	if !v.seal(freeze) {
		v.w.t.Fatal("seal found nothing to save")
	}
	v.w.seq++
	up, err := v.Upload(v.w.ctx, v.w.intent(v.w.seq))
	v.w.check(err)
	v.w.check(v.Committed(v.w.ctx, up.Root))
	return up
}

func (v *vol) kill() {
	v.w.t.Helper()
	v.w.check(v.Kill(v.w.ctx))
	v.w.check(v.Gone())
}
