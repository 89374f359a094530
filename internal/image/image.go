// Package image turns sources of root file systems into image generations.
//
// A source (a container image by reference, a stream of an archive, a Debian
// bootstrap) becomes a tree in memory, the tree a deterministic ext4 file, and
// the file a root in the object store. The same input gives the same root.
package image

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/blob"
	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/guest/guestpath"
	"github.com/billethq/billet/internal/image/ext4"
	"github.com/billethq/billet/internal/image/tree"
	"github.com/billethq/billet/internal/model"
	"github.com/billethq/billet/internal/volume"
)

// DefaultDisk is the size of an image's device. A workspace's disk is its
// tier's, and is grown when that is larger.
const DefaultDisk = 16 << 30

// MaxBuilds bounds the builds of one builder at a time: each takes memory for
// every file of its source, and fills the cores when it uploads.
const MaxBuilds = 2

// The stages of a build, in their order, as api.ImageProgress names them.
const (
	StageFetching      = "fetching"      // bytes of input read
	StageUnpacking     = "unpacking"     // bytes of layers read
	StageBootstrapping = "bootstrapping" // messages only
	StageFormatting    = "formatting"    // bytes of files written
	StageUploading     = "uploading"     // bytes of the device
)

// Config is what a Builder needs.
type Config struct {
	Bucket blob.Bucket // stays the caller's to close
	// Dir is the directory for files of builds under way. It belongs to
	// builders alone, of this process or another.
	Dir string
	Log *slog.Logger
	// Platform is the one of several that is taken; zero: Linux on this
	// machine's architecture.
	Platform v1.Platform
}

// Request asks for one build.
type Request struct {
	Kind   api.ImageKind
	Source string // a reference, or what the stream was, for people
	Disk   int64  // bytes of the device; 0: DefaultDisk
	Keys   []model.DomainKey
}

// Result is an uploaded root that no record names yet.
type Result struct {
	Root        model.Root
	Source      string // what it was made from, for people
	DiskBytes   int64
	UsedBytes   int64 // of blocks that are not zero
	StoredBytes int64 // added to the object store
}

// Builder builds images. It is safe for concurrent use.
type Builder struct {
	cfg   Config
	slots chan struct{}
}

// New returns a Builder and removes what killed builds left in cfg.Dir. A
// build of another process that is still alive is left alone.
func New(cfg Config) (*Builder, error) {
	if cfg.Bucket == nil || cfg.Dir == "" || cfg.Log == nil {
		return nil, errs.New(errs.Invalid, "image builder needs a bucket, a directory and a log")
	}
	if cfg.Platform.OS == "" {
		cfg.Platform = v1.Platform{OS: "linux", Architecture: runtime.GOARCH}
	}
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("make image directory: %w", err)
	}
	swept, err := sweep(cfg.Dir)
	if err != nil {
		return nil, err
	}
	for _, name := range swept {
		cfg.Log.Info("image build of an earlier process removed", "build", name)
	}
	return &Builder{cfg: cfg, slots: make(chan struct{}, MaxBuilds)}, nil
}

// Build makes and uploads one image. input is read when req.Kind is "stream",
// and may be nil otherwise. progress may be nil; it is never called
// concurrently and must not block. Whatever the outcome, nothing is left in
// the work directory and no mount on the host.
//
// Errors: errs.Invalid when the source is no image of this platform or breaks
// a rule, errs.Exhausted at a limit or when MaxBuilds are under way,
// errs.NotFound, errs.Denied and errs.Unavailable of a registry,
// errs.Unsupported when the host lacks a tool; with hints.
func (b *Builder) Build(ctx context.Context, req Request, input io.Reader, progress func(api.ImageProgress)) (Result, error) {
	select {
	case b.slots <- struct{}{}:
		defer func() { <-b.slots }()
	default:
		return Result{}, errs.New(errs.Exhausted, "%d images are being built", MaxBuilds).WithHint("try again when one has ended")
	}
	if req.Disk == 0 {
		req.Disk = DefaultDisk
	}
	if err := ext4.CheckSize(req.Disk); err != nil {
		return Result{}, err
	}
	store, err := b.store(req.Keys)
	if err != nil {
		return Result{}, err
	}
	work, err := openWork(b.cfg.Dir)
	if err != nil {
		return Result{}, err
	}
	j := &job{cfg: b.cfg, req: req, store: store, work: work, report: newReporter(progress), stall: maxStall}
	res, err := j.run(ctx, input)
	if cerr := work.close(); err == nil {
		err = cerr
	}
	if err != nil {
		return Result{}, err
	}
	b.cfg.Log.Info("image built", "root", string(res.Root), "source", res.Source, "used_bytes", res.UsedBytes, "stored_bytes", res.StoredBytes)
	return res, nil
}

// store returns the object store under the deployment's key: every tenant may
// build on an image.
func (b *Builder) store(keys []model.DomainKey) (*volume.Store, error) {
	for _, k := range keys {
		if k.Domain != model.DeploymentDomain {
			continue
		}
		domains, err := volume.NewDomains(model.DomainKey{}, k)
		if err != nil {
			return nil, err
		}
		return volume.NewStore(volume.StoreConfig{Bucket: b.cfg.Bucket, Domains: domains})
	}
	return nil, errs.New(errs.Invalid, "the key of the domain %s is missing", model.DeploymentDomain)
}

// job is one build.
type job struct {
	cfg    Config
	req    Request
	store  *volume.Store
	work   *workdir
	report *reporter
	stall  time.Duration // a registry may be silent for
	alive  func()        // a registry was not silent
}

func (j *job) run(ctx context.Context, input io.Reader) (Result, error) {
	t, source, err := j.tree(ctx, input)
	if err != nil {
		return Result{}, interrupted(ctx, err)
	}
	if err := finish(t); err != nil {
		return Result{}, err
	}
	path, err := j.format(ctx, t)
	if err != nil {
		return Result{}, interrupted(ctx, fmt.Errorf("format: %w", err))
	}
	res, err := j.upload(ctx, path)
	if err != nil {
		return Result{}, interrupted(ctx, fmt.Errorf("upload: %w", err))
	}
	res.Source = source
	return res, nil
}

// interrupted puts the reason for which ctx ended in the place of whatever
// that broke.
func interrupted(ctx context.Context, err error) error {
	if ctx.Err() != nil && !errors.Is(err, context.Cause(ctx)) {
		return fmt.Errorf("%w: %w", context.Cause(ctx), err)
	}
	return err
}

// tree makes the root file system, and says what it was made from.
func (j *job) tree(ctx context.Context, input io.Reader) (*tree.Tree, string, error) {
	switch j.req.Kind {
	case api.ImageOCI:
		return j.pull(ctx)
	case api.ImageStream:
		if input == nil {
			return nil, "", errs.New(errs.Invalid, "the stream is missing")
		}
		return j.unpack(ctx, input)
	case api.ImageDebian:
		return j.bootstrap(ctx)
	}
	return nil, "", errs.New(errs.Invalid, "kind %q is not one of stream, oci, debian", string(j.req.Kind))
}

// newTree returns an empty tree whose contents may fill the disk, not more.
func (j *job) newTree() (*tree.Tree, error) {
	f, err := j.work.file("spool")
	if err != nil {
		return nil, err
	}
	return tree.New(tree.NewSpool(f, j.req.Disk)), nil
}

// finish gives the root what every guest needs: places to mount on.
func finish(t *tree.Tree) error {
	if t.Empty() {
		return errs.New(errs.Invalid, "the source is empty: it has no file").WithHint("import a root file system, such as the output of docker export")
	}
	for path, perm := range map[string]uint32{"proc": 0o555, "sys": 0o555, "dev": 0o755, "run": 0o755, "tmp": 0o1777} {
		if err := t.EnsureDir(path, perm); err != nil {
			return err
		}
	}
	return agentPlaces(t)
}

// agentPlaces makes what the guest's own program is mounted on. The sandbox
// would make it at the first start, and so write to a disk that nobody uses.
func agentPlaces(t *tree.Tree) error {
	if run, err := t.Lookup("run"); err != nil || !run.IsDir() {
		return nil //nolint:nilerr // a link to nowhere, which the image brought
	}
	if err := t.EnsureDir(guestpath.SideDir[1:], 0o755); err != nil {
		return err
	}
	if _, err := t.Lookup(guestpath.Binary[1:]); err == nil {
		return nil
	}
	return t.WriteFile(guestpath.Binary[1:], nil, tree.Node{Mode: 0o755})
}

const diskName = "disk.ext4"

func (j *job) format(ctx context.Context, t *tree.Tree) (string, error) {
	dir, err := j.work.dir("format")
	if err != nil {
		return "", err
	}
	path := j.work.path(diskName)
	total := t.Usage(1).Bytes
	j.report.begin(StageFormatting, total)
	err = ext4.Write(ctx, t, ext4.Image{Path: path, Size: j.req.Disk, Dir: dir}, func(done int64) { j.report.at(min(done, total)) })
	return path, err
}

// upload stores the disk. Its metadata holds nothing but the disk's own
// properties: no time, no subject, so that equal disks have equal roots.
func (j *job) upload(ctx context.Context, path string) (Result, error) {
	f, err := os.Open(path)
	if err != nil {
		return Result{}, fmt.Errorf("open image file: %w", err)
	}
	defer f.Close()
	j.report.begin(StageUploading, j.req.Disk)
	m, stats, err := volume.ImportDisk(ctx, j.store, volume.Import{
		Source:   f,
		Size:     j.req.Disk,
		Meta:     volume.Meta{Home: volume.SlotDeployment, Consistency: volume.Frozen, Writer: volume.WriterHost},
		Progress: func(done, _ int64) { j.report.at(done) },
	})
	if err != nil {
		return Result{}, err
	}
	return Result{Root: m.Root(), DiskBytes: j.req.Disk, UsedBytes: stats.UsedBytes, StoredBytes: stats.StoredBytes}, nil
}
