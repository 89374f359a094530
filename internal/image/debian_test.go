package image

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/blob/dir"
	"github.com/billethq/billet/internal/testenv"
)

// TestBuild_Debian takes two minutes and a mirror, so it runs when it is asked
// for: BILLET_TEST_DEBIAN names a directory, which gets the image as disk.ext4.
func TestBuild_Debian(t *testing.T) {
	out := os.Getenv("BILLET_TEST_DEBIAN")
	if out == "" {
		t.Skip("testenv: need BILLET_TEST_DEBIAN: a bootstrap takes two minutes and a mirror")
	}
	testenv.NeedFUSE(t)
	testenv.NeedBinary(t, "debootstrap")
	bucket, err := dir.Create(filepath.Join(t.TempDir(), "objects"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = bucket.Close() })
	b, err := New(Config{Bucket: bucket, Dir: filepath.Join(out, "work"), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	store, err := b.store(testKeys())
	if err != nil {
		t.Fatal(err)
	}
	work, err := openWork(b.cfg.Dir)
	if err != nil {
		t.Fatal(err)
	}
	lines := 0
	j := &job{cfg: b.cfg, req: Request{Kind: api.ImageDebian, Disk: DefaultDisk}, store: store, work: work, report: newReporter(func(p api.ImageProgress) {
		if p.Message != "" {
			lines++
		}
	})}
	res, err := j.run(context.Background(), nil)
	if err == nil {
		err = os.Rename(work.path(diskName), filepath.Join(out, diskName))
	}
	if cerr := work.close(); err == nil {
		err = cerr
	}
	if err != nil {
		t.Fatal(err)
	}
	assertClean(t, b.cfg.Dir)
	if lines == 0 {
		t.Error("the bootstrap told no progress")
	}
	t.Logf("%+v", res)
}
